// Loading a part of draftmill that is a shared library of its own, because what it links takes long to load and is not
// everywhere wanted: a class with virtual functions behind one symbol,
//
//   extern "C" const DeviceEngine* draftmill_device_engine(const char* version);
//
// which returns null for another version than its own. A plug-in lies in the program's library search path (build tree:
// the build folder; bundle: lib/) and stays loaded. Functions are safe from any thread.
#pragma once

#include <string>

#include "base/status.h"

namespace draftmill {

/// The address of a symbol of a shared library, which is loaded for good; null where the library lacks it. kUnsupported
/// where the library, or one that it needs, is missing.
Result<void*> FindPluginSymbol(const char* library, const char* symbol);

/// The version of this program, which a plug-in is asked for.
const char* PluginVersion();

/// What the plug-in's symbol returns. kUnsupported says why there is nothing: no such library, or another version's.
template <typename T>
Result<const T*> LoadPlugin(const char* library, const char* symbol) {
  using EntryPoint = const T* (*)(const char*);
  DRAFTMILL_ASSIGN_OR_RETURN(void* const address, FindPluginSymbol(library, symbol));
  const auto entry = reinterpret_cast<EntryPoint>(address);
  const T* const plugin = entry == nullptr ? nullptr : entry(PluginVersion());
  if (plugin == nullptr) return Unsupported(std::string(library) + " belongs to another version of draftmill");
  return plugin;
}

/// What the dynamic loader said last on this thread.
std::string LoaderMessage();

}  // namespace draftmill

#include "stages/extract/plugin.h"

#include <dlfcn.h>

namespace draftmill {

std::string LoaderMessage() {
  const char* message = dlerror();  // NOLINT(concurrency-mt-unsafe): glibc keeps it per thread
  return message == nullptr ? "unknown reason" : message;
}

Result<void*> FindPluginSymbol(const char* library, const char* symbol) {
  void* const plugin = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (plugin == nullptr) return Unsupported(std::string(library) + " cannot be loaded (" + LoaderMessage() + ")");
  return dlsym(plugin, symbol);
}

const char* PluginVersion() { return DRAFTMILL_VERSION; }

}  // namespace draftmill

// A state database from anywhere: opened as every reader opens it, and asked everything that people ask.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "state/state_reader.h"
#include "state/temporary_folder.h"

namespace {

void AskEverything(draftmill::StateReader& reader) {
  static_cast<void>(reader.Progress());
  static_cast<void>(reader.Stages());
  static_cast<void>(reader.LastRun());
  static_cast<void>(reader.Sources());
  static_cast<void>(reader.Chunks());
  static_cast<void>(reader.Batches(0));
  static_cast<void>(reader.Shards(0));
  static_cast<void>(reader.FindSample(0));
  static_cast<void>(reader.Failures({}));
  static_cast<void>(reader.FailuresByReason());
  static_cast<void>(reader.ShardsByState());
  static_cast<void>(reader.Events(0, 100));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const draftmill::TemporaryFolder folder;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (!draftmill::RealFileSystem().WriteAtomically(draftmill::JoinPath(folder.path(), "state.db"), bytes).ok())
    return 0;
  draftmill::Result<draftmill::StateReader> reader = draftmill::StateReader::Open(folder.path());
  if (reader.ok()) AskEverything(*reader);
  return 0;
}

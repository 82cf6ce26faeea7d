// A state database from anywhere: opened as every reader opens it, and asked everything that people ask. An input that
// begins with "SQLite" is the file; any other is a list of changes to a database that a run could have left: four bytes
// of place and two of content each.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>

#include "state/example_state.h"
#include "state/state_reader.h"
#include "state/store.h"
#include "state/temporary_folder.h"

namespace {

constexpr std::size_t kChangeBytes = 6;

std::string ExampleDatabase() {
  const draftmill::TemporaryFolder folder;
  auto state = draftmill::StateWriter::Open(folder.path(), {.create = true});
  if (!state.ok() || !draftmill::FillExample(**state, {}).ok() || !(*state)->Close().ok()) {
    __builtin_trap();
  }
  auto bytes = draftmill::RealFileSystem().ReadAll(draftmill::JoinPath(folder.path(), "state.db"));
  if (!bytes.ok()) __builtin_trap();
  return *std::move(bytes);
}

std::string Changed(std::string database, std::string_view changes) {
  const auto byte = [&changes](std::size_t i) { return std::size_t{static_cast<unsigned char>(changes[i])}; };
  for (; changes.size() >= kChangeBytes; changes.remove_prefix(kChangeBytes)) {
    const std::size_t place = byte(0) | byte(1) << 8 | byte(2) << 16 | byte(3) << 24;
    database[place % database.size()] = changes[4];
    database[(place + 1) % database.size()] = changes[5];
  }
  return database;
}

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
  static const std::string example = ExampleDatabase();
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string path = draftmill::JoinPath(folder.path(), "state.db");
  for (const char* leftover : {"-wal", "-shm", "-journal"}) std::remove((path + leftover).c_str());
  std::ofstream(path, std::ios::binary) << (input.starts_with("SQLite") ? std::string(input) : Changed(example, input));
  draftmill::Result<draftmill::StateReader> reader = draftmill::StateReader::Open(folder.path());
  if (reader.ok()) AskEverything(*reader);
  return 0;
}

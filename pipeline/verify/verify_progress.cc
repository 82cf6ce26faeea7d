#include "pipeline/verify/verify_progress.h"

#include <algorithm>

#include "base/json.h"
#include "state/schema.h"

namespace draftmill {
namespace {

constexpr std::int64_t kKeepEveryNs = 5'000'000'000;
constexpr std::int64_t kMaxBytes = 4096;

/// The database by what changes whenever something is written to it.
std::string StateOf(FileSystem& files, const std::string& work_folder) {
  const Result<FileInfo> info = files.Stat(StateDatabasePath(work_folder));
  return info.ok() ? std::to_string(info->size_bytes) + "/" + std::to_string(info->modified_ns) : "";
}

std::int64_t ReadFirstChunk(FileSystem& files, const std::string& path, const std::string& state) {
  const Result<std::string> text = files.ReadAll(path, kMaxBytes);
  if (!text.ok()) return 0;
  const Result<json::Value> progress = json::Parse(*text);
  if (!progress.ok()) return 0;
  const json::Value* of = progress->Find("state");
  const json::Value* next = progress->Find("next_chunk");
  if (of == nullptr || *of != json::Value(state) || next == nullptr || !next->is_integer()) return 0;
  return std::max<std::int64_t>(0, next->as_integer());
}

}  // namespace

VerifyProgress::VerifyProgress(FileSystem& files, Clock& clock, const std::string& work_folder)
    : files_(files),
      clock_(clock),
      path_(JoinPath(work_folder, "verify.json")),
      state_(StateOf(files, work_folder)),
      first_chunk_(ReadFirstChunk(files, path_, state_)),
      next_(first_chunk_),
      kept_ns_(clock.MonotonicNs()) {}

void VerifyProgress::Note(std::int64_t next, const VerifyReport& so_far) {
  std::int64_t good = next;
  for (const VerifyFault& fault : so_far.faults) {
    if (fault.chunk >= 0) good = std::min(good, fault.chunk);
  }
  next_ = good;
  if (clock_.MonotonicNs() - kept_ns_ >= kKeepEveryNs) Keep();
}

void VerifyProgress::Keep() {
  const json::Value progress = json::Object{{"state", state_}, {"next_chunk", next_}};
  static_cast<void>(files_.WriteAtomically(path_, json::Write(progress) + "\n"));
  kept_ns_ = clock_.MonotonicNs();
}

void VerifyProgress::Finish() { static_cast<void>(files_.Remove(path_)); }

}  // namespace draftmill

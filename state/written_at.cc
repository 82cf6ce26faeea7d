#include "state/written_at.h"

#include <string_view>

#include "state/run_lock.h"
#include "state/write_operations.h"

namespace draftmill {
namespace {

constexpr std::string_view kFact = "written_at";

Result<std::string> Remembered(sqlite::Connection& connection) {
  DRAFTMILL_ASSIGN_OR_RETURN(sqlite::Statement query, connection.Prepare("SELECT value FROM facts WHERE name = ?"));
  DRAFTMILL_RETURN_IF_ERROR(query.Bind(kFact));
  DRAFTMILL_ASSIGN_OR_RETURN(const bool found, query.Step());
  return found ? query.Text(0) : std::string();
}

}  // namespace

std::string PlaceOf(FileSystem& files, const std::string& path) {
  const std::string boot_id = BootId();
  const Result<FileInfo> file = files.Stat(path);
  if (boot_id.empty() || !file.ok()) return {};
  return "boot " + boot_id + ", device " + std::to_string(file->device) + ", inode " + std::to_string(file->inode) +
         ", changed " + std::to_string(file->changed_ns);
}

Result<bool> IsAsWritten(FileSystem& files, sqlite::Connection& connection, const std::string& path) {
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string remembered, Remembered(connection));
  return !remembered.empty() && remembered == PlaceOf(files, path);
}

Status RememberWritten(FileSystem& files, sqlite::Connection& connection, const std::string& path) {
  // Remembering is a commit, which may make a checkpoint itself; behind one the log is short.
  constexpr int kTries = 2;
  for (int i = 0; i < kTries; ++i) {
    const std::string place = PlaceOf(files, path);
    DRAFTMILL_ASSIGN_OR_RETURN(const std::string remembered, Remembered(connection));
    if (remembered == place) return OkStatus();
    DRAFTMILL_RETURN_IF_ERROR(operations::SetFact(connection, kFact, place));
  }
  return OkStatus();
}

}  // namespace draftmill

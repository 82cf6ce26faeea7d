#include "state/state_place.h"

#include <filesystem>
#include <system_error>

#include "state/schema.h"

namespace draftmill {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAdvice =
    "name a folder on a local disk with --state-dir DIR; the work folder keeps a link to it, and where that disk is "
    "lost "
    "`draftmill state TARGET rebuild` makes state.db again";

Status RefuseNetwork(FileSystem& files, const std::string& folder) {
  DRAFTMILL_ASSIGN_OR_RETURN(const DiskSpace space, files.Space(folder));
  if (space.network.empty()) return OkStatus();
  return Unsupported(folder + " is on a network file system (" + space.network +
                     "), where SQLite cannot keep state.db safely. Nothing was started: " + kAdvice);
}

Status Link(FileSystem& files, const std::string& work_folder, const fs::path& target) {
  const std::string link = StateDatabasePath(work_folder);
  DRAFTMILL_RETURN_IF_ERROR(files.Remove(link));
  std::error_code error;
  fs::create_symlink(target, link, error);
  if (error) return ErrnoStatus(error.value(), "link " + link + " to " + target.string());
  return files.SyncFolder(work_folder);
}

/// SQLite's log goes by the database's name: under two names two logs would come to one database, or one log to two, and
/// ruin it.
Status RefuseSecondName(const std::string& path) {
  std::error_code none;
  const std::uintmax_t names = fs::hard_link_count(path, none);
  if (none || names < 2) return OkStatus();
  return Conflict(path + " has " + std::to_string(names) +
                  " names (hard links), as in a copy made with `cp -l`: runs of both "
                  "folders would write into one database. Nothing was started. Give this folder its own: `cp " +
                  path + " " + path + ".own && mv " + path + ".own " + path + "`");
}

/// Where the link leads; empty where state.db is no link.
std::string LinkTarget(const std::string& work_folder) {
  std::error_code error;
  const fs::path target = fs::read_symlink(StateDatabasePath(work_folder), error);
  if (error) return "";
  return target.is_absolute() ? target.string() : JoinPath(work_folder, target.string());
}

}  // namespace

std::string FolderOfStateDatabase(const std::string& work_folder) {
  const std::string linked = LinkTarget(work_folder);
  return linked.empty() ? work_folder : ParentPath(linked);
}

Status PlaceState(FileSystem& files, const std::string& work_folder, const std::optional<std::string>& state_folder) {
  const std::string path = StateDatabasePath(work_folder);
  const std::string linked = LinkTarget(work_folder);
  for (const char* suffix : {"", "-wal", "-shm", "-journal"})
    DRAFTMILL_RETURN_IF_ERROR(RefuseSecondName(path + suffix));
  if (!state_folder) {
    if (linked.empty()) return RefuseNetwork(files, work_folder);
    if (files.Exists(ParentPath(linked))) return RefuseNetwork(files, ParentPath(linked));
    return NotFound(
        path + " is a link to " + linked +
        ", which is not on this machine. Nothing was started: bring the file "
        "here and name its folder with --state-dir DIR, or name an empty folder and run `draftmill state TARGET "
        "rebuild`");
  }
  std::error_code ignored;
  const fs::path target = fs::absolute(*state_folder, ignored) / "state.db";
  if (linked == target) return RefuseNetwork(files, ParentPath(linked));
  if (linked.empty() && files.Exists(path)) {
    return Conflict(path + " lies in the work folder already. Nothing was started: move it to " + *state_folder +
                    " first, or leave --state-dir away");
  }
  DRAFTMILL_RETURN_IF_ERROR(files.MakeFolder(*state_folder));
  DRAFTMILL_RETURN_IF_ERROR(RefuseNetwork(files, *state_folder));
  // Behind a link of this work folder that leads nowhere, a state.db in the named folder is the one that was brought here.
  if (linked.empty() && files.Exists(target.string())) {
    return Conflict(target.string() +
                    " is there already, of another work folder perhaps. Nothing was started: name an empty "
                    "folder with --state-dir");
  }
  return Link(files, work_folder, target);
}

}  // namespace draftmill

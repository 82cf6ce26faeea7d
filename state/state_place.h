// Where state.db lies: in the work folder, or, where that is on a network file system, in a folder on a local disk that the
// work folder names by a symbolic link `state.db`. SQLite's write-ahead log needs memory that all processes share, which no
// network file system gives.
//
// The link is made here and nowhere else; SQLite follows it and keeps its log beside the real file. One thread.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "state/file_system.h"

namespace draftmill {

/// Makes sure that state.db of the work folder can lie where it does, before it is opened for writing. With `state_folder`
/// the folder is made and linked to.
///
/// kUnsupported where it would be on a network file system; kConflict where `state_folder` is named but state.db lies
/// elsewhere, or the folder holds the database of another run; kNotFound where the link leads nowhere (the work folder was
/// moved to another machine) and no folder is named. All say what to do.
Status PlaceState(FileSystem& files, const std::string& work_folder, const std::optional<std::string>& state_folder);

/// The folder in which state.db really lies: the work folder, or where the link leads.
std::string FolderOfStateDatabase(const std::string& work_folder);

}  // namespace draftmill

// Which file a database was written in, and when it changed last: whether a start must look for torn pages.
//
// A process that is killed takes nothing back from the kernel, so what SQLite wrote is there. After a power cut, in a copy
// and in a restored backup there may be pages of different times. The database's fact `written_at` tells them apart: this
// start of the machine, the file, and the time of the file's last change.
//
// The file changes in checkpoints only, and the fact is committed behind each: into the log, which leaves the file as it
// is. Whoever else writes the file, in place or under an inode that became free, gives it another time. A process that
// ends between a checkpoint and the fact costs a check that was not needed.
#pragma once

#include <string>

#include "base/status.h"
#include "state/file_system.h"
#include "state/sqlite.h"

namespace draftmill {

/// The file as it is now; empty where it cannot be told from others.
std::string PlaceOf(FileSystem& files, const std::string& path);

/// Whether the file is as its writer left it on this machine since its start.
Result<bool> IsAsWritten(FileSystem& files, sqlite::Connection& connection, const std::string& path);

/// For the writer behind a commit, which may have made a checkpoint. Writes nothing where the file did not change.
Status RememberWritten(FileSystem& files, sqlite::Connection& connection, const std::string& path);

}  // namespace draftmill

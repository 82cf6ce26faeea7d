// SQLite's files through the FileSystem seam, so that faults, kills and power cuts meet state.db as they meet all other
// files. For tests; nothing that ships links it.
//
//   FaultyFileSystem files(RealFileSystem(), folder.path());
//   const SqliteOverFileSystem databases(files);      // from here on every connection of the process that is opened
//
// A virtual file system (sqlite.org/vfs.html) over the one for Unix: databases, journals and logs are created, written,
// cut, synced and removed through the FileSystem, which so sees every change as a point; reading, locks and shared memory
// stay with Unix. As there, the first sync of a journal or log that was created also syncs its folder.
//
// Threads: as SQLite's. One at a time in a process; connections must be closed before it goes.
#pragma once

#include <memory>

#include "state/file_system.h"

namespace draftmill {

class SqliteOverFileSystem {
 public:
  /// Becomes SQLite's default. `files` must outlive it.
  explicit SqliteOverFileSystem(FileSystem& files);
  ~SqliteOverFileSystem();
  SqliteOverFileSystem(const SqliteOverFileSystem&) = delete;
  SqliteOverFileSystem& operator=(const SqliteOverFileSystem&) = delete;

 private:
  struct Registration;
  std::unique_ptr<Registration> registration_;
};

}  // namespace draftmill

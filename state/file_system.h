// The seam between draftmill and the operating system's files and clock (LevelDB's Env is the model).
//
// Everything draftmill writes goes through a FileSystem, so that a test can stand a faulty one in its place: one that
// loses what was not synced, fails the n-th write, or is full. Everything that draftmill reads of its own files too;
// weights of a model may be read past it by direct I/O.
//
// The order of publication, everywhere: write `name.partial` -> Sync -> Rename -> SyncFolder -> the row in state.db.
//
// Thread-safety: a FileSystem and a Clock may be used by any number of threads; one open file by one thread at a time,
// except that ReadAt and WriteAt of different ranges may run at once. Paths are UTF-8; relative ones stand for the
// process's current folder. No function follows up on EINTR or short transfers by failing: they are completed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace draftmill {

/// What stands in a folder or at a path.
struct FileInfo {
  std::string name;  ///< last component of the path
  std::int64_t size_bytes = 0;
  std::int64_t modified_ns = 0;  ///< since 1970; only to skip hashing a file that cannot have changed
  std::int64_t changed_ns = 0;   ///< of the content or the inode; unlike `modified_ns` nobody can set it
  std::uint64_t inode = 0;
  std::uint64_t device = 0;  ///< of the file system that numbers the inodes
  bool is_folder = false;
};

/// Space of the file system that holds a path.
struct DiskSpace {
  std::int64_t free_bytes = 0;  ///< that this user may still write
  std::int64_t total_bytes = 0;
  std::string network{};  ///< the kind where it is a network file system, "NFS"; empty for a local one
};

/// A file open for reading.
class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  /// Reads up to buffer.size() bytes at `offset`; fewer only at the end of the file. Returns how many.
  virtual Result<std::size_t> ReadAt(std::int64_t offset, std::span<std::byte> buffer) = 0;
  virtual Result<std::int64_t> Size() = 0;
};

/// A file open for writing. Closing (the destructor) does not sync.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  /// Writes all bytes at `offset`, growing the file as needed. Large ones go past the page cache, on a few threads at once,
  /// where the file system allows it (state/direct_write.h).
  virtual Status WriteAt(std::int64_t offset, std::span<const std::byte> bytes) = 0;
  /// Reserves space, so that later writes below `size_bytes` do not meet a full disk where the file system can promise
  /// it. The size of the file stays as it is.
  virtual Status Allocate(std::int64_t size_bytes) = 0;
  /// Cuts or extends (with zeros) to this size.
  virtual Status Truncate(std::int64_t size_bytes) = 0;
  /// Returns when everything written so far survives a power loss.
  virtual Status Sync() = 0;
  /// Closes the file and reports what close() says; nothing may follow.
  virtual Status Close() = 0;
};

/// How OpenForWriting treats what is there.
enum class OpenMode : std::uint8_t {
  kCreate,        ///< an empty file; what was there is cut to nothing
  kCreateNew,     ///< fails with kConflict where the file exists
  kOpenExisting,  ///< content stays; fails with kNotFound where there is none
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  /// Refuses what is no regular file (kInvalidInput).
  virtual Result<std::unique_ptr<ReadableFile>> OpenForReading(const std::string& path) = 0;
  /// New files get mode 0644 less the umask.
  virtual Result<std::unique_ptr<WritableFile>> OpenForWriting(const std::string& path, OpenMode mode) = 0;
  /// Atomic replacement within one file system. Durable only after SyncFolder.
  virtual Status Rename(const std::string& from, const std::string& to) = 0;
  /// Removes a file; success where there is none.
  virtual Status Remove(const std::string& path) = 0;
  /// Makes this folder and those above it; success where it exists. Durable with its parents.
  virtual Status MakeFolder(const std::string& path) = 0;
  /// Removes a folder with all that is in it; success where there is none. Links are removed, not followed.
  virtual Status RemoveTree(const std::string& path) = 0;
  /// Makes creations, renames and removals in this folder durable.
  virtual Status SyncFolder(const std::string& path) = 0;
  /// The entries of a folder, sorted by the bytes of their names, without "." and "..".
  virtual Result<std::vector<FileInfo>> List(const std::string& folder) = 0;
  /// kNotFound where nothing is there.
  virtual Result<FileInfo> Stat(const std::string& path) = 0;
  virtual Result<DiskSpace> Space(const std::string& path) = 0;

  /// True where Stat finds something.
  bool Exists(const std::string& path);
  /// The whole file; refuses one larger than `max_bytes`.
  Result<std::string> ReadAll(const std::string& path, std::int64_t max_bytes = std::int64_t{1} << 30);
  /// Publishes a whole file: `path`.partial, Sync, Rename, SyncFolder. A reader sees the old or the new file, never a
  /// mixture.
  Status WriteAtomically(const std::string& path, std::string_view content);
};

/// The operating system's files. One for the process, never destroyed.
FileSystem& RealFileSystem();

/// Time, for messages and rates; never for content or decisions about what is published.
class Clock {
 public:
  virtual ~Clock() = default;
  /// Nanoseconds that never run backwards, from an unknown start.
  virtual std::int64_t MonotonicNs() = 0;
  /// Milliseconds since 1970-01-01 UTC.
  virtual std::int64_t UnixMs() = 0;
};

/// The operating system's clock. One for the process, never destroyed.
Clock& RealClock();

/// `folder` + "/" + `name`.
std::string JoinPath(std::string_view folder, std::string_view name);
/// The folder that a path stands in: everything before its last component, "." where that is all. As for the shell's
/// dirname, a '/' at the end says nothing: both "a/b" and "a/b/" stand in "a".
std::string ParentPath(std::string_view path);
/// The path without a '/' at its end, as people get it from their shell's completion: what is to be renamed, or gets another
/// ending, needs its bare name. "/" stays.
std::string WithoutTrailingSlash(std::string_view path);

}  // namespace draftmill

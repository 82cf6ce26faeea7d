#include "state/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

#include "state/direct_write.h"
#include "state/mount_kind.h"
#include "state/quota.h"

namespace draftmill {
namespace {

constexpr int kFileMode = 0644;
constexpr int kFolderMode = 0755;

/// Repeats a system call that a signal interrupted.
template <typename Call>
auto RetryInterrupted(Call call) {
  for (;;) {
    const auto result = call();
    if (result != -1 || errno != EINTR) return result;
  }
}

std::string Describe(std::string_view verb, std::string_view path) {
  std::string text(verb);
  text += ' ';
  text += path;
  return text;
}

/// An owned file descriptor.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&&) = delete;
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }

  int get() const { return fd_; }
  /// Closes now; the errno of close(), or 0. EINTR counts as closed: on Linux the descriptor is gone.
  int Close() {
    const int fd = std::exchange(fd_, -1);
    if (fd < 0 || ::close(fd) == 0 || errno == EINTR) return 0;
    return errno;
  }

 private:
  int fd_;
};

class PosixReadableFile final : public ReadableFile {
 public:
  PosixReadableFile(FileDescriptor fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  Result<std::size_t> ReadAt(std::int64_t offset, std::span<std::byte> buffer) override {
    std::size_t done = 0;
    while (done < buffer.size()) {
      const auto count = RetryInterrupted([&] {
        return ::pread(fd_.get(), buffer.data() + done, buffer.size() - done, offset + static_cast<off_t>(done));
      });
      if (count < 0) return ErrnoStatus(errno, Describe("read", path_));
      if (count == 0) break;
      done += static_cast<std::size_t>(count);
    }
    return done;
  }

  Result<std::int64_t> Size() override {
    struct stat info {};
    if (::fstat(fd_.get(), &info) != 0) return ErrnoStatus(errno, Describe("stat", path_));
    return std::int64_t{info.st_size};
  }

 private:
  FileDescriptor fd_;
  std::string path_;
};

class PosixWritableFile final : public WritableFile {
 public:
  PosixWritableFile(FileDescriptor fd, std::string path)
      : fd_(std::move(fd)), path_(std::move(path)), direct_(fd_.get()) {}

  Status WriteAt(std::int64_t offset, std::span<const std::byte> bytes) override {
    if (static_cast<std::int64_t>(bytes.size()) < kLeastDirectBytes) return WriteCached(offset, bytes);
    // Blocks that are not this write's alone go through the page cache, where their neighbours' bytes are too.
    const auto head = static_cast<std::size_t>((kDirectBlock - offset % kDirectBlock) % kDirectBlock);
    const std::size_t middle = (bytes.size() - head) / kDirectBlock * kDirectBlock;
    const std::int64_t first_block = offset + static_cast<std::int64_t>(head);
    Result<bool> done = direct_.Write(first_block, bytes.subspan(head, middle));
    if (!done.ok()) return done.status().WithContext(path_);
    if (!*done) return WriteCached(offset, bytes);
    DRAFTMILL_RETURN_IF_ERROR(WriteCached(offset, bytes.first(head)));
    return WriteCached(first_block + static_cast<std::int64_t>(middle), bytes.subspan(head + middle));
  }

  Status Allocate(std::int64_t size_bytes) override {
    if (size_bytes <= 0) return OkStatus();
    const int result =
        RetryInterrupted([&] { return ::fallocate(fd_.get(), FALLOC_FL_KEEP_SIZE, 0, off_t{size_bytes}); });
    if (result == 0) return OkStatus();
    // File systems without reservation (some network and FUSE ones) say one of these; writes then find out themselves.
    if (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL) return OkStatus();
    return ErrnoStatus(errno, Describe("reserve space for", path_));
  }

  Status Truncate(std::int64_t size_bytes) override {
    if (RetryInterrupted([&] { return ::ftruncate(fd_.get(), off_t{size_bytes}); }) == 0) return OkStatus();
    return ErrnoStatus(errno, Describe("change the size of", path_));
  }

  Status Sync() override {
    // fsync rather than fdatasync: the modification time is what later skips hashing an unchanged file.
    if (RetryInterrupted([&] { return ::fsync(fd_.get()); }) == 0) return OkStatus();
    return ErrnoStatus(errno, Describe("sync", path_));
  }

  Status Close() override {
    const int error = fd_.Close();
    return error == 0 ? OkStatus() : ErrnoStatus(error, Describe("close", path_));
  }

 private:
  /// Through the page cache.
  Status WriteCached(std::int64_t offset, std::span<const std::byte> bytes) {
    std::size_t done = 0;
    while (done < bytes.size()) {
      const auto count = RetryInterrupted([&] {
        return ::pwrite(fd_.get(), bytes.data() + done, bytes.size() - done, offset + static_cast<off_t>(done));
      });
      if (count < 0) return ErrnoStatus(errno, Describe("write", path_));
      // A write of nothing without an error would repeat for ever.
      if (count == 0) return ErrnoStatus(EIO, Describe("write", path_));
      done += static_cast<std::size_t>(count);
    }
    return OkStatus();
  }

  FileDescriptor fd_;
  std::string path_;
  DirectWriter direct_;
};

/// Makes the entries of a folder durable; 0 or an errno.
int SyncFolderErrno(const std::string& path) {
  const FileDescriptor fd(RetryInterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (fd.get() < 0) return errno;
  if (RetryInterrupted([&] { return ::fsync(fd.get()); }) == 0) return 0;
  // Some file systems cannot sync folders and say so; there is nothing more that could be done there.
  return errno == EINVAL || errno == ENOTSUP ? 0 : errno;
}

/// The network file systems that Linux tells by their number (statfs(2)), and those that only its table of mounts tells.
std::string NetworkKind(const std::string& path) {
  struct Kind {
    std::uint32_t magic;
    const char* name;
  };
  constexpr std::array kKinds = {Kind{0x6969, "NFS"},        Kind{0x517b, "SMB"},       Kind{0xff534d42, "CIFS"},
                                 Kind{0xfe534d42, "SMB2"},   Kind{0x00c36400, "Ceph"},  Kind{0x0bd00bd0, "Lustre"},
                                 Kind{0x5346414f, "AFS"},    Kind{0x01021997, "9P"},    Kind{0x47504653, "GPFS"},
                                 Kind{0x19830326, "BeeGFS"}, Kind{0x7461636f, "OCFS2"}, Kind{0x01161970, "GFS2"}};
  struct statfs info {};
  if (RetryInterrupted([&] { return ::statfs(path.c_str(), &info); }) != 0) return "";
  for (const Kind& kind : kKinds) {
    if (static_cast<std::uint32_t>(info.f_type) == kind.magic) return kind.name;
  }
  // ext, XFS, Btrfs, tmpfs, overlay, ZFS: the disks that most work folders lie on need no look at the table.
  constexpr std::array<std::uint32_t, 6> kLocal = {0xef53, 0x58465342, 0x9123683e, 0x01021994, 0x794c7630, 0x2fc12fc1};
  if (std::find(kLocal.begin(), kLocal.end(), static_cast<std::uint32_t>(info.f_type)) != kLocal.end()) return "";
  struct stat place {};
  const Result<std::string> mounts = RealFileSystem().ReadAll("/proc/self/mountinfo");
  if (!mounts.ok() || ::stat(path.c_str(), &place) != 0) return "";
  return NetworkMountKind(*mounts, major(place.st_dev), minor(place.st_dev));
}

std::int64_t ToNs(const timespec& time) { return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec; }

FileInfo FromStat(std::string name, const struct stat& info) {
  return {.name = std::move(name),
          .size_bytes = info.st_size,
          .modified_ns = ToNs(info.st_mtim),
          .changed_ns = ToNs(info.st_ctim),
          .inode = info.st_ino,
          .device = info.st_dev,
          .is_folder = S_ISDIR(info.st_mode)};
}

std::string LastComponent(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

/// A file that is to be emptied may have other names, in a copy made with `cp -l`: theirs must keep its content.
void LeaveOtherLinks(const std::string& path) {
  struct stat info {};
  // A failure shows when the file is opened.
  if (::lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && info.st_nlink > 1) ::unlink(path.c_str());
}

class PosixFileSystem final : public FileSystem {
 public:
  Result<std::unique_ptr<ReadableFile>> OpenForReading(const std::string& path) override {
    // O_NONBLOCK: opening a pipe that nobody writes must not hang; it means nothing for regular files.
    FileDescriptor fd(RetryInterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC); }));
    if (fd.get() < 0) return ErrnoStatus(errno, Describe("open", path));
    struct stat info {};
    if (::fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, Describe("stat", path));
    if (!S_ISREG(info.st_mode)) return InvalidInput(Describe("open", path) + ": not a regular file");
    return std::unique_ptr<ReadableFile>(std::make_unique<PosixReadableFile>(std::move(fd), path));
  }

  Result<std::unique_ptr<WritableFile>> OpenForWriting(const std::string& path, OpenMode mode) override {
    if (mode == OpenMode::kCreate) LeaveOtherLinks(path);
    int flags = O_RDWR | O_CLOEXEC;
    if (mode == OpenMode::kCreate) flags |= O_CREAT | O_TRUNC;
    if (mode == OpenMode::kCreateNew) flags |= O_CREAT | O_EXCL;
    FileDescriptor fd(RetryInterrupted([&] { return ::open(path.c_str(), flags, kFileMode); }));
    if (fd.get() < 0) {
      if (errno == EEXIST) return Conflict(Describe("create", path) + ": the file exists");
      return ErrnoStatus(errno, Describe(mode == OpenMode::kOpenExisting ? "open" : "create", path));
    }
    return std::unique_ptr<WritableFile>(std::make_unique<PosixWritableFile>(std::move(fd), path));
  }

  Status Rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) == 0) return OkStatus();
    return ErrnoStatus(errno, Describe("rename", from) + " to " + to);
  }

  Status Remove(const std::string& path) override {
    if (::unlink(path.c_str()) == 0 || errno == ENOENT) return OkStatus();
    return ErrnoStatus(errno, Describe("remove", path));
  }

  Status MakeFolder(const std::string& path) override {
    int made = ::mkdir(path.c_str(), kFolderMode);
    if (made != 0 && errno == ENOENT && ParentPath(path) != path && ParentPath(path) != ".") {
      DRAFTMILL_RETURN_IF_ERROR(MakeFolder(ParentPath(path)));
      // Once: where no folder can be made (/proc), this is the answer however often it is asked.
      made = ::mkdir(path.c_str(), kFolderMode);
    }
    if (made != 0) {
      if (errno != EEXIST) return ErrnoStatus(errno, Describe("make folder", path));
      DRAFTMILL_ASSIGN_OR_RETURN(const FileInfo info, Stat(path));
      if (!info.is_folder) return ErrnoStatus(ENOTDIR, Describe("make folder", path));
    }
    // Also for one that was there: whoever made it may have been killed before syncing its parent.
    const int error = SyncFolderErrno(ParentPath(path));
    // A parent that may not be read (mode 0711) cannot be synced by us and was not made by us.
    return error == 0 || error == EACCES ? OkStatus() : ErrnoStatus(error, Describe("sync", ParentPath(path)));
  }

  Status RemoveTree(const std::string& path) override {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    return error ? ErrnoStatus(error.value(), Describe("remove", path)) : OkStatus();
  }

  Status SyncFolder(const std::string& path) override {
    const int error = SyncFolderErrno(path);
    return error == 0 ? OkStatus() : ErrnoStatus(error, Describe("sync", path));
  }

  Result<std::vector<FileInfo>> List(const std::string& folder) override {
    const std::unique_ptr<DIR, int (*)(DIR*)> stream(::opendir(folder.c_str()), &::closedir);
    if (stream == nullptr) return ErrnoStatus(errno, Describe("list", folder));
    std::vector<FileInfo> entries;
    for (;;) {
      errno = 0;
      const dirent* entry = ::readdir(stream.get());
      if (entry == nullptr) break;
      std::string name(static_cast<const char*>(entry->d_name));
      if (name == "." || name == "..") continue;
      struct stat info {};
      if (::fstatat(::dirfd(stream.get()), name.c_str(), &info, 0) != 0) {
        if (errno != ENOENT) return ErrnoStatus(errno, Describe("stat", JoinPath(folder, name)));
        // A dangling link is listed as itself; an entry removed meanwhile is left out.
        if (::fstatat(::dirfd(stream.get()), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
      }
      entries.push_back(FromStat(std::move(name), info));
    }
    if (errno != 0) return ErrnoStatus(errno, Describe("list", folder));
    std::sort(entries.begin(), entries.end(), [](const FileInfo& a, const FileInfo& b) { return a.name < b.name; });
    return entries;
  }

  Result<FileInfo> Stat(const std::string& path) override {
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) return ErrnoStatus(errno, Describe("stat", path));
    return FromStat(LastComponent(path), info);
  }

  Result<DiskSpace> Space(const std::string& path) override {
    struct statvfs info {};
    if (RetryInterrupted([&] { return ::statvfs(path.c_str(), &info); }) != 0) {
      return ErrnoStatus(errno, Describe("ask for the free space of", path));
    }
    const auto bytes = [&](fsblkcnt_t blocks) { return static_cast<std::int64_t>(blocks * info.f_frsize); };
    const std::int64_t free_bytes = bytes(info.f_bavail);
    return DiskSpace{.free_bytes = std::min(free_bytes, QuotaLeft(path).value_or(free_bytes)),
                     .total_bytes = bytes(info.f_blocks),
                     .network = NetworkKind(path)};
  }
};

class SystemClock final : public Clock {
 public:
  std::int64_t MonotonicNs() override {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
  }
  std::int64_t UnixMs() override {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  }
};

Status TooLarge(const std::string& path, std::int64_t max_bytes) {
  return InvalidInput("read " + path + ": the file is larger than " + std::to_string(max_bytes) + " bytes");
}

Status WriteDurably(FileSystem& files, const std::string& path, std::string_view content) {
  DRAFTMILL_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file, files.OpenForWriting(path, OpenMode::kCreate));
  DRAFTMILL_RETURN_IF_ERROR(file->WriteAt(0, std::as_bytes(std::span(content.data(), content.size()))));
  DRAFTMILL_RETURN_IF_ERROR(file->Sync());
  return file->Close();
}

}  // namespace

bool FileSystem::Exists(const std::string& path) { return Stat(path).ok(); }

Result<std::string> FileSystem::ReadAll(const std::string& path, std::int64_t max_bytes) {
  DRAFTMILL_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file, OpenForReading(path));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::int64_t size, file->Size());
  if (size > max_bytes) return TooLarge(path, max_bytes);
  std::string content;
  // One byte more than the size tells the end of the file; files of /proc have size 0 and content all the same.
  constexpr std::size_t kLeastBuffer = 4096;
  std::size_t done = 0;
  for (std::size_t want = std::max(static_cast<std::size_t>(size) + 1, kLeastBuffer);; want *= 2) {
    content.resize(want);
    const std::span<std::byte> rest = std::as_writable_bytes(std::span(content)).subspan(done);
    DRAFTMILL_ASSIGN_OR_RETURN(const std::size_t count, file->ReadAt(static_cast<std::int64_t>(done), rest));
    done += count;
    if (done > static_cast<std::size_t>(max_bytes)) return TooLarge(path, max_bytes);
    if (count < rest.size()) break;
  }
  content.resize(done);
  return content;
}

Status FileSystem::WriteAtomically(const std::string& path, std::string_view content) {
  const std::string partial = path + ".partial";
  Status status = WriteDurably(*this, partial, content);
  if (status.ok()) status = Rename(partial, path);
  if (!status.ok()) {
    // The failure that matters is the first one; a partial file left behind harms nothing.
    static_cast<void>(Remove(partial));
    return status;
  }
  return SyncFolder(ParentPath(path));
}

FileSystem& RealFileSystem() {
  static PosixFileSystem& files = *std::make_unique<PosixFileSystem>().release();
  return files;
}

Clock& RealClock() {
  static SystemClock& clock = *std::make_unique<SystemClock>().release();
  return clock;
}

std::string JoinPath(std::string_view folder, std::string_view name) {
  std::string path(folder);
  if (path.empty() || path.back() != '/') path += '/';
  path += name;
  return path;
}

std::string ParentPath(std::string_view path) {
  const std::string name = WithoutTrailingSlash(path);
  const std::size_t slash = name.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : name.substr(0, slash);
}

std::string WithoutTrailingSlash(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  return std::string(path);
}

}  // namespace draftmill

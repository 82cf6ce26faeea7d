#include "state/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <ctime>
#include <string_view>
#include <thread>
#include <utility>

namespace draftmill {
namespace {

constexpr std::size_t kMaxOwnerBytes = 4096;

std::string LockPath(const std::string& work_folder) { return JoinPath(work_folder, "run.lock"); }

/// The text up to the next line feed, which is taken off `text`.
std::string TakeLine(std::string_view& text) {
  const std::size_t end = text.find('\n');
  std::string line(text.substr(0, end));
  text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  return line;
}

std::int64_t ToInteger(const std::string& text) {
  std::int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

std::string Serialize(const LockOwner& owner) {
  return owner.host + '\n' + owner.boot_id + '\n' + std::to_string(owner.pid) + '\n' + std::to_string(owner.since_ms) +
         '\n';
}

/// Reads what Serialize wrote. Whatever else stands there gives an owner with empty parts.
LockOwner ReadOwner(int fd) {
  std::array<char, kMaxOwnerBytes> buffer{};
  const auto count = ::pread(fd, buffer.data(), buffer.size(), 0);
  std::string_view text(buffer.data(), count > 0 ? static_cast<std::size_t>(count) : 0);
  LockOwner owner;
  owner.host = TakeLine(text);
  owner.boot_id = TakeLine(text);
  owner.pid = ToInteger(TakeLine(text));
  owner.since_ms = ToInteger(TakeLine(text));
  return owner;
}

Status Held(const std::string& work_folder, const LockOwner& owner) {
  return Conflict("another run works in " + work_folder + ": " + owner.ToString() +
                  ". Nothing was started or changed. Wait until it ends, or stop it with `draftmill stop`.");
}

/// Who holds the lock according to the file; empty parts where there is none.
LockOwner OwnerIn(const std::string& work_folder) {
  const int file = ::open(LockPath(work_folder).c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  LockOwner owner = ReadOwner(file);
  ::close(file);
  return owner;
}

int OpenFolder(const std::string& work_folder) {
  return ::open(work_folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/// Whether somebody else holds it. What cannot be locked at all (a folder on some network file systems) is not.
bool IsLocked(int fd) { return fd >= 0 && ::flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK; }

/// 0 or an errno. Asking is tried for a while: whoever peeks holds the lock for an instant.
int TryLock(int fd, int operation) {
  constexpr int kTries = 25;
  constexpr std::chrono::milliseconds kPause(20);
  for (int i = 0;; ++i) {
    if (::flock(fd, operation | LOCK_NB) == 0) return 0;
    if (errno != EWOULDBLOCK && errno != EINTR) return errno;
    if (i == kTries) return EWOULDBLOCK;
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace

std::string LockOwner::ToString() const {
  if (pid == 0) return "a process whose name does not stand in run.lock";
  std::string text = "process " + std::to_string(pid) + " on " + (host.empty() ? "an unnamed host" : host);
  const auto seconds = static_cast<std::time_t>(since_ms / 1000);
  std::tm parts{};
  std::array<char, 64> time{};
  if (::gmtime_r(&seconds, &parts) != nullptr &&
      std::strftime(time.data(), time.size(), "%Y-%m-%d %H:%M:%S UTC", &parts) > 0) {
    text += ", since ";
    text += time.data();
  }
  return text;
}

std::string BootId() {
  const Result<std::string> text = RealFileSystem().ReadAll("/proc/sys/kernel/random/boot_id", kMaxOwnerBytes);
  return text.ok() ? text->substr(0, text->find('\n')) : std::string();
}

LockOwner ThisProcess(Clock& clock) {
  LockOwner owner;
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) == 0) owner.host = host.data();
  owner.boot_id = BootId();
  owner.pid = ::getpid();
  owner.since_ms = clock.UnixMs();
  return owner;
}

Result<RunLock> RunLock::Acquire(const std::string& work_folder, Clock& clock) {
  const std::string path = LockPath(work_folder);
  constexpr int kMode = 0644;
  RunLock lock(OpenFolder(work_folder), -1);
  if (lock.folder_ >= 0 && TryLock(lock.folder_, LOCK_EX) == EWOULDBLOCK)
    return Held(work_folder, OwnerIn(work_folder));
  lock.file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kMode);
  if (lock.file_ < 0) return ErrnoStatus(errno, "open " + path);
  const int error = TryLock(lock.file_, LOCK_EX);
  if (error == EWOULDBLOCK) return Held(work_folder, ReadOwner(lock.file_));
  if (error != 0) return ErrnoStatus(error, "lock " + path);
  const std::string text = Serialize(ThisProcess(clock));
  if (::ftruncate(lock.file_, 0) != 0 || ::pwrite(lock.file_, text.data(), text.size(), 0) < 0) {
    return ErrnoStatus(errno, "write " + path);
  }
  return lock;
}

Result<std::optional<RunLock>> RunLock::AcquireForReading(const std::string& work_folder, Clock& clock) {
  const std::string path = LockPath(work_folder);
  const std::string& asked = RealFileSystem().Exists(path) ? path : work_folder;
  if (::faccessat(AT_FDCWD, asked.c_str(), W_OK, AT_EACCESS) == 0) {
    Result<RunLock> lock = Acquire(work_folder, clock);
    if (!lock.ok()) return lock.status();
    return std::optional<RunLock>(std::move(lock).value());
  }
  DRAFTMILL_ASSIGN_OR_RETURN(const std::optional<LockOwner> owner, Peek(work_folder));
  if (owner) return Held(work_folder, *owner);
  return std::optional<RunLock>();
}

Result<std::optional<LockOwner>> RunLock::Peek(const std::string& work_folder) {
  const std::string path = LockPath(work_folder);
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const int file_error = file < 0 ? errno : 0;
  const RunLock probe(OpenFolder(work_folder), file);
  if (IsLocked(probe.folder_)) return std::optional(OwnerIn(work_folder));
  if (file_error == ENOENT) return std::optional<LockOwner>();
  if (file_error != 0) return ErrnoStatus(file_error, "open " + path);
  if (::flock(probe.file_, LOCK_SH | LOCK_NB) == 0) return std::optional<LockOwner>();
  if (errno != EWOULDBLOCK) return ErrnoStatus(errno, "lock " + path);
  return std::optional(ReadOwner(probe.file_));
}

RunLock::RunLock(RunLock&& other) noexcept
    : folder_(std::exchange(other.folder_, -1)), file_(std::exchange(other.file_, -1)) {}

RunLock::~RunLock() {
  if (file_ >= 0) ::close(file_);
  if (folder_ >= 0) ::close(folder_);
}

}  // namespace draftmill

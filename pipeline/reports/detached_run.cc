#include "pipeline/reports/detached_run.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "state/run_lock.h"

namespace draftmill {
namespace {

constexpr std::string_view kLogPrefix = "run-";
constexpr std::string_view kLogSuffix = ".log";
constexpr std::chrono::milliseconds kPollInterval{200};

std::string LogFolder(const std::string& work_folder) { return JoinPath(work_folder, "logs"); }

/// Names that sort by time: "run-20260131-120000-4711.log".
std::string LogName(Clock& clock, int process) {
  const auto seconds = static_cast<std::time_t>(clock.UnixMs() / 1000);
  std::tm parts{};
  std::array<char, 32> time{};
  if (::gmtime_r(&seconds, &parts) != nullptr) std::strftime(time.data(), time.size(), "%Y%m%d-%H%M%S", &parts);
  return std::string(kLogPrefix) + time.data() + "-" + std::to_string(process) + std::string(kLogSuffix);
}

/// Lets output go to this file from now on.
bool RedirectOutput(int fd) { return ::dup2(fd, STDOUT_FILENO) >= 0 && ::dup2(fd, STDERR_FILENO) >= 0; }

std::string ReadMemory(int fd) {
  std::string text;
  std::array<char, 4096> buffer{};
  for (;;) {
    const auto count = ::pread(fd, buffer.data(), buffer.size(), static_cast<off_t>(text.size()));
    if (count <= 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(count));
  }
}

/// Moves what was written so far into a log of the work folder, and lets the rest follow.
Status BeginLog(FileSystem& files, Clock& clock, const std::string& work_folder, int memory) {
  constexpr int kMode = 0644;
  DRAFTMILL_RETURN_IF_ERROR(files.MakeFolder(LogFolder(work_folder)));
  const std::string path = JoinPath(LogFolder(work_folder), LogName(clock, ::getpid()));
  const int log = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, kMode);
  if (log < 0) return ErrnoStatus(errno, "make " + path);
  std::fflush(nullptr);
  const std::string text = ReadMemory(memory);
  if (::write(log, text.data(), text.size()) < 0 || !RedirectOutput(log)) return ErrnoStatus(errno, "write " + path);
  return OkStatus();
}

/// The new process: a session of its own, no input, output into memory until the run has begun. It never returns.
[[noreturn]] void RunInNewSession(FileSystem& files, Clock& clock, const std::string& work_folder, int memory, int told,
                                  const std::function<int(const std::function<void()>& started)>& run) {
  ::setsid();
  std::signal(SIGHUP, SIG_IGN);
  const int input = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (input < 0 || ::dup2(input, STDIN_FILENO) < 0 || !RedirectOutput(memory)) _exit(EXIT_FAILURE);
  const int exit_status = run([&] {
    const Status begun = BeginLog(files, clock, work_folder, memory);
    // A run without a log is better than none: what it does stands in the database.
    if (!begun.ok()) std::fprintf(stderr, "draftmill: %s\n", begun.message().c_str());
    static_cast<void>(::write(told, "s", 1) == 1);
  });
  std::fflush(nullptr);
  _exit(exit_status);
}

/// True when the new process says that it has begun; false when it has ended.
bool WaitForStart(int told) {
  for (;;) {
    char sign = 0;
    const auto count = ::read(told, &sign, 1);
    if (count == 1) return true;
    if (count == 0 || errno != EINTR) return false;
  }
}

}  // namespace

Result<DetachedRun> Detach(FileSystem& files, Clock& clock, const std::string& work_folder,
                           const std::function<int(const std::function<void()>& started)>& run) {
  const int memory = ::memfd_create("draftmill-log", MFD_CLOEXEC);
  std::array<int, 2> told{};
  if (memory < 0 || ::pipe2(told.data(), O_CLOEXEC) != 0)
    return ErrnoStatus(errno, "make room for the output of a process");
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0) return ErrnoStatus(errno, "start a process");
  if (child == 0) {
    ::close(told[0]);
    RunInNewSession(files, clock, work_folder, memory, told[1], run);
  }
  ::close(told[1]);
  DetachedRun detached;
  detached.process = static_cast<int>(child);
  detached.is_running = WaitForStart(told[0]);
  ::close(told[0]);
  if (detached.is_running) {
    if (Result<std::string> log = NewestLog(files, work_folder); log.ok()) detached.log_path = std::move(log).value();
  } else {
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    detached.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILURE;
    detached.log = ReadMemory(memory);
  }
  ::close(memory);
  return detached;
}

Result<std::string> NewestLog(FileSystem& files, const std::string& work_folder) {
  const Status none =
      NotFound("there is no log in " + LogFolder(work_folder) +
               ": only runs that were started with --detach write one. `draftmill status` shows the last events");
  const Result<std::vector<FileInfo>> entries = files.List(LogFolder(work_folder));
  if (!entries.ok()) return entries.status().code() == StatusCode::kNotFound ? none : entries.status();
  for (auto entry = entries->rbegin(); entry != entries->rend(); ++entry) {
    if (entry->name.starts_with(kLogPrefix) && entry->name.ends_with(kLogSuffix)) {
      return JoinPath(LogFolder(work_folder), entry->name);
    }
  }
  return none;
}

Status ReadLog(FileSystem& files, const std::string& work_folder, const std::string& log_path, bool follow,
               const std::function<bool()>& should_stop, const std::function<void(std::string_view text)>& write) {
  DRAFTMILL_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file, files.OpenForReading(log_path));
  std::vector<char> buffer(std::size_t{64} << 10);
  std::int64_t offset = 0;
  for (;;) {
    // Asked before the read: what a run wrote last is then read after it has ended.
    DRAFTMILL_ASSIGN_OR_RETURN(const std::optional<LockOwner> owner, RunLock::Peek(work_folder));
    DRAFTMILL_ASSIGN_OR_RETURN(const std::size_t count,
                               file->ReadAt(offset, std::as_writable_bytes(std::span(buffer))));
    write(std::string_view(buffer.data(), count));
    offset += static_cast<std::int64_t>(count);
    if (count == buffer.size()) continue;
    if (!follow || !owner || should_stop()) return OkStatus();
    std::this_thread::sleep_for(kPollInterval);
  }
}

}  // namespace draftmill

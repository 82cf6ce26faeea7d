#include "pipeline/detached_run.h"

#include <fcntl.h>
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

/// The new process: a session of its own, output into the log. It never returns.
[[noreturn]] void RunInNewSession(const std::string& log_path, int told,
                                  const std::function<int(const std::function<void()>& started)>& run) {
  constexpr int kMode = 0644;
  ::setsid();
  std::signal(SIGHUP, SIG_IGN);
  const int input = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const int log = ::open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, kMode);
  if (input < 0 || log < 0 || ::dup2(input, STDIN_FILENO) < 0 || ::dup2(log, STDOUT_FILENO) < 0 ||
      ::dup2(log, STDERR_FILENO) < 0) {
    _exit(EXIT_FAILURE);
  }
  const int exit_status = run([told] { static_cast<void>(::write(told, "s", 1) == 1); });
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
  const bool had_folder = files.Exists(work_folder);
  DRAFTMILL_RETURN_IF_ERROR(files.MakeFolder(LogFolder(work_folder)));
  std::array<int, 2> told{};
  if (::pipe2(told.data(), O_CLOEXEC) != 0) return ErrnoStatus(errno, "make a pipe");
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0) return ErrnoStatus(errno, "start a process");
  if (child == 0) {
    ::close(told[0]);
    RunInNewSession(JoinPath(LogFolder(work_folder), LogName(clock, ::getpid())), told[1], run);
  }
  ::close(told[1]);
  DetachedRun detached;
  detached.process = static_cast<int>(child);
  detached.is_running = WaitForStart(told[0]);
  ::close(told[0]);
  const Result<std::string> log = NewestLog(files, work_folder);
  if (log.ok()) detached.log_path = *log;
  if (detached.is_running) return detached;
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  detached.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILURE;
  if (Result<std::string> text = files.ReadAll(detached.log_path); text.ok()) detached.log = std::move(text).value();
  // What never began leaves no trace.
  DRAFTMILL_RETURN_IF_ERROR(files.Remove(detached.log_path));
  ::rmdir(LogFolder(work_folder).c_str());
  if (!had_folder) ::rmdir(work_folder.c_str());
  return detached;
}

Result<std::string> NewestLog(FileSystem& files, const std::string& work_folder) {
  const Status none = NotFound("there is no log in " + LogFolder(work_folder) +
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
    DRAFTMILL_ASSIGN_OR_RETURN(const std::size_t count, file->ReadAt(offset, std::as_writable_bytes(std::span(buffer))));
    write(std::string_view(buffer.data(), count));
    offset += static_cast<std::int64_t>(count);
    if (count == buffer.size()) continue;
    if (!follow || !owner || should_stop()) return OkStatus();
    std::this_thread::sleep_for(kPollInterval);
  }
}

}  // namespace draftmill

// A run that goes on when its terminal is closed: `draftmill run TARGET --detach`, and its log.
//
//   const auto run = Detach(files, clock, work_folder, [&](const std::function<void()>& started) {
//     return RunThePipeline(started);                      // in the new process; calls `started` once it has begun
//   });
//
// Must be called while the process has one thread. The new process has a session of its own, no input, and its output in
// `logs/run-<time>-<process>.log` of the work folder, which is made when the run has begun; SIGHUP means nothing to it.
// Errors: kIo.
#pragma once

#include <functional>
#include <string>

#include "base/status.h"
#include "state/file_system.h"

namespace draftmill {

struct DetachedRun {
  bool is_running = false;  ///< it has begun; else it ended before, with `exit_status`
  int exit_status = 0;
  int process = 0;
  std::string log_path;
  std::string log;  ///< what it wrote, where it ended before it began
};

/// Forks, and returns in the caller when the run has begun or ended. The new process ends with what `run` returns.
Result<DetachedRun> Detach(FileSystem& files, Clock& clock, const std::string& work_folder,
                           const std::function<int(const std::function<void()>& started)>& run);

/// The newest log of detached runs; kNotFound where there is none.
Result<std::string> NewestLog(FileSystem& files, const std::string& work_folder);

/// Hands on the log from its start; with `follow` also what is written later, until no run holds the work folder's lock or
/// `should_stop` says so.
Status ReadLog(FileSystem& files, const std::string& work_folder, const std::string& log_path, bool follow,
               const std::function<bool()>& should_stop, const std::function<void(std::string_view text)>& write);

}  // namespace draftmill

#include "base/start_threads.h"

#include <condition_variable>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>

namespace draftmill {

Result<std::thread> StartThread(std::function<void()> body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {
    return IoError("the operating system gives no further thread (" + error.code().message() +
                   "). Nothing published was lost: lower limits.threads, or raise what this user or container may have "
                   "(ulimit -u, pids.max), then run the same command again");
  }
}

Status CheckThatThreadsStart(int count) {
  std::mutex mutex;
  std::condition_variable ended;
  bool may_end = false;
  std::vector<std::thread> threads;
  Status status;
  for (int i = 0; i < count && status.ok(); ++i) {
    Result<std::thread> thread = StartThread([&] {
      std::unique_lock<std::mutex> lock(mutex);
      ended.wait(lock, [&] { return may_end; });
    });
    status = thread.status();
    if (thread.ok()) threads.push_back(std::move(thread).value());
  }
  {
    const std::lock_guard<std::mutex> lock(mutex);
    may_end = true;
  }
  ended.notify_all();
  for (std::thread& thread : threads) thread.join();
  return status;
}

}  // namespace draftmill

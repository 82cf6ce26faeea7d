// Starting threads where the system may have none to give: a limit of the user (ulimit -u), of a container (pids.max) or of
// memory. std::thread throws then, and what it throws through ends the process where other threads are not joined yet.
#pragma once

#include <cstddef>
#include <functional>
#include <system_error>
#include <thread>
#include <vector>

#include "base/status.h"

namespace draftmill {

/// A thread that the work cannot do without, for the caller to join. kIo with what to do about it where the system gives none.
Result<std::thread> StartThread(std::function<void()> body);

/// Whether the system gives `count` threads at once; they are ended again. For a library that starts its own and cannot say
/// that it failed.
Status CheckThatThreadsStart(int count);

/// For work that fewer can do as well: the threads that `start`(0) .. `start`(count - 1) give, in this order, until the
/// system gives no more: perhaps none. The caller joins them.
///
///   std::vector<std::thread> threads = StartThreads(7, [&](std::size_t) { return std::thread([&] { Work(); }); });
///   Work();
///   for (std::thread& thread : threads) thread.join();
template <typename Start>
std::vector<std::thread> StartThreads(std::size_t count, Start start) {
  std::vector<std::thread> threads;
  threads.reserve(count);
  try {
    while (threads.size() < count) threads.push_back(start(threads.size()));
  } catch (const std::system_error&) {
    // A limit of the user or of the container: no reason to give up what the others can do.
  }
  return threads;
}

}  // namespace draftmill

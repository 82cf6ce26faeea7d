// Threads for work that fewer can do as well: where the system gives no more of them, those that there are do it all.
#pragma once

#include <cstddef>
#include <system_error>
#include <thread>
#include <vector>

namespace draftmill {

/// The threads that `start`(0) .. `start`(count - 1) give, in this order, until the system gives no more: perhaps none.
/// The caller joins them.
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

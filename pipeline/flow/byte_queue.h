// A queue between two threads of their own (never a TBB worker), bounded by the bytes of what it holds.
//
// Push waits while the queue is full; an item larger than the limit passes alone. Close ends it: Push then drops, Pop
// returns what is left and then nothing. Thread-safe.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace draftmill {

template <typename T>
class ByteQueue {
 public:
  explicit ByteQueue(std::int64_t limit_bytes) : limit_bytes_(limit_bytes) {}

  /// Waits for room and adds the item; false where the queue was closed and the item dropped.
  bool Push(T item, std::int64_t bytes) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return closed_ || items_.empty() || held_bytes_ + bytes <= limit_bytes_; });
    if (closed_) return false;
    items_.emplace_back(std::move(item), bytes);
    held_bytes_ += bytes;
    peak_bytes_ = std::max(peak_bytes_, held_bytes_);
    changed_.notify_all();
    return true;
  }

  /// Waits for an item; nothing once the queue is closed and empty.
  std::optional<T> Pop() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return closed_ || !items_.empty(); });
    if (items_.empty()) return std::nullopt;
    std::pair<T, std::int64_t> front = std::move(items_.front());
    items_.pop_front();
    held_bytes_ -= front.second;
    changed_.notify_all();
    return std::move(front.first);
  }

  /// No item follows. What is held may still be popped.
  void Close() {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

  std::int64_t held_bytes() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return held_bytes_;
  }
  std::int64_t peak_bytes() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return peak_bytes_;
  }
  std::int64_t limit_bytes() const { return limit_bytes_; }

 private:
  const std::int64_t limit_bytes_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<T, std::int64_t>> items_;
  std::int64_t held_bytes_ = 0;
  std::int64_t peak_bytes_ = 0;
  bool closed_ = false;
};

}  // namespace draftmill

// Items go to any of several threads and come back in the order in which they were given: so that a result does not
// depend on how many threads there are.
//
//   OrderedWorkers<Batch> workers(threads, [](Batch& batch) { Parse(batch); });
//   workers.Submit(std::move(batch));           // never waits; the caller bounds in_flight()
//   std::unique_ptr<Batch> done = workers.TakeOldest();
//
// Submit, TakeOldest and in_flight belong to one thread; `work` runs on the workers, at one item each. With one thread,
// or where the system gives none, the work is done inside Submit. The destructor waits for work under way; items not
// taken are dropped.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/start_threads.h"

namespace draftmill {

template <typename Item>
class OrderedWorkers {
 public:
  OrderedWorkers(int threads, std::function<void(Item&)> work) : work_(std::move(work)) {
    if (threads <= 1) return;
    threads_ =
        StartThreads(static_cast<std::size_t>(threads), [this](std::size_t) { return std::thread([this] { Run(); }); });
  }

  ~OrderedWorkers() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    wake_worker_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  OrderedWorkers(const OrderedWorkers&) = delete;
  OrderedWorkers& operator=(const OrderedWorkers&) = delete;

  void Submit(std::unique_ptr<Item> item) {
    auto slot = std::make_shared<Slot>();
    slot->item = std::move(item);
    order_.push_back(slot);
    if (threads_.empty()) {
      work_(*slot->item);
      slot->done = true;
      return;
    }
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      waiting_.push_back(std::move(slot));
    }
    wake_worker_.notify_one();
  }

  /// The oldest item not taken yet, once it is done; in_flight() must not be 0.
  std::unique_ptr<Item> TakeOldest() {
    const std::shared_ptr<Slot> slot = std::move(order_.front());
    order_.pop_front();
    std::unique_lock<std::mutex> lock(mutex_);
    wake_caller_.wait(lock, [&] { return slot->done; });
    return std::move(slot->item);
  }

  /// Items submitted and not taken.
  std::size_t in_flight() const { return order_.size(); }

 private:
  struct Slot {
    std::unique_ptr<Item> item;
    bool done = false;
  };

  void Run() {
    while (true) {
      std::unique_lock<std::mutex> lock(mutex_);
      wake_worker_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
      if (stopping_) return;
      const std::shared_ptr<Slot> slot = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      work_(*slot->item);
      lock.lock();
      slot->done = true;
      lock.unlock();
      wake_caller_.notify_one();
    }
  }

  std::function<void(Item&)> work_;
  std::deque<std::shared_ptr<Slot>> order_;  // the caller's alone
  std::mutex mutex_;
  std::condition_variable wake_worker_;
  std::condition_variable wake_caller_;
  std::deque<std::shared_ptr<Slot>> waiting_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace draftmill

#include "stages/extract/device_slabs.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

namespace draftmill {
namespace {

constexpr auto kStopPoll = std::chrono::milliseconds(100);

}  // namespace

SlabPool::SlabPool(int slabs) {
  for (int i = 0; i < slabs; ++i) slabs_.push_back(std::make_shared<Slab>(shared_));
}

Result<std::shared_ptr<Slab>> SlabPool::Acquire(std::int64_t bytes, const std::atomic<bool>& stop) {
  std::shared_ptr<Slab> slab;
  {
    std::unique_lock lock(shared_->mutex);
    const auto find = [&] {
      const auto found = std::find_if(slabs_.begin(), slabs_.end(), [](const auto& each) { return !each->held_; });
      if (found != slabs_.end()) slab = *found;
      return slab != nullptr || stop;
    };
    while (!shared_->freed.wait_for(lock, kStopPoll, find)) {
    }
    if (!slab) return Cancelled("stopped while waiting for the shard writer");
    slab->held_ = true;
  }
  if (slab->memory_.count() >= bytes) return slab;
  slab->memory_ = {};
  Result<cuda::PinnedBuffer<std::byte>> memory = cuda::PinnedBuffer<std::byte>::Make(bytes);
  if (!memory.ok()) {
    slab->GiveBack(nullptr);
    return memory.status();
  }
  slab->memory_ = std::move(*memory);
  return slab;
}

void* Slab::Take(std::size_t bytes) {
  if (static_cast<std::int64_t>(bytes) > memory_.count()) throw std::bad_alloc();
  return memory_.data();
}

void Slab::GiveBack(void* /*memory*/) {
  {
    const std::lock_guard lock(shared_->mutex);
    held_ = false;
  }
  shared_->freed.notify_one();
}

}  // namespace draftmill

#include "stages/extract/device/device_slabs.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

namespace draftmill {
namespace {

constexpr auto kStopPoll = std::chrono::milliseconds(100);

}  // namespace

void SlabPool::Allow(int slabs) {
  while (static_cast<int>(slabs_.size()) < slabs) slabs_.push_back(std::make_shared<Slab>(shared_));
}

Result<std::shared_ptr<Slab>> SlabPool::Hold(std::int64_t bytes, IsFit is_fit, const std::atomic<bool>& stop) {
  std::shared_ptr<Slab> slab;
  std::unique_lock lock(shared_->mutex);
  const auto find = [&] {
    for (const std::shared_ptr<Slab>& each : slabs_) {
      if (each->held_ || !is_fit(*each, bytes)) continue;
      // One that has the memory goes before one that must first get it.
      if (slab == nullptr || (slab->memory_.count() < bytes && each->memory_.count() >= bytes)) slab = each;
    }
    return slab != nullptr || stop;
  };
  while (!shared_->freed.wait_for(lock, kStopPoll, find)) {
  }
  if (!slab) return Cancelled("stopped while waiting for the shard writer");
  slab->held_ = true;
  return slab;
}

Result<std::shared_ptr<Slab>> SlabPool::Acquire(std::int64_t bytes, const std::atomic<bool>& stop) {
  DRAFTMILL_ASSIGN_OR_RETURN(std::shared_ptr<Slab> slab,
                             Hold(
                                 bytes, [](const Slab&, std::int64_t) { return true; }, stop));
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

void SlabPool::MakeAhead(std::int64_t bytes, std::size_t count) {
  std::vector<std::shared_ptr<Slab>> small;
  {
    const std::lock_guard lock(shared_->mutex);
    for (const std::shared_ptr<Slab>& each : slabs_) {
      if (each->held_) continue;
      if (each->memory_.count() < bytes) {
        small.push_back(each);
      } else if (count > 0) {
        --count;
      }
    }
  }
  // Nobody but this thread takes one that is free.
  for (std::size_t i = 0; i < std::min(count, small.size()); ++i) {
    small[i]->memory_ = {};
    Result<cuda::PinnedBuffer<std::byte>> memory = cuda::PinnedBuffer<std::byte>::Make(bytes);
    if (!memory.ok()) return;
    small[i]->memory_ = std::move(*memory);
  }
}

Result<std::shared_ptr<Slab>> SlabPool::AcquireMade(std::int64_t bytes, std::size_t needed,
                                                    const std::atomic<bool>& stop) {
  {
    const std::lock_guard lock(shared_->mutex);
    const auto made =
        std::count_if(slabs_.begin(), slabs_.end(), [&](const auto& each) { return each->memory_.count() >= bytes; });
    if (static_cast<std::size_t>(made) < needed) {
      return OutOfMemory(
          "the host has no pinned memory for " + std::to_string(needed) + " batches of " + std::to_string(bytes) +
          " bytes of states; lower limits.memory and extract.block_tokens, or free memory. What is published is safe");
    }
  }
  return Hold(
      bytes, [](const Slab& slab, std::int64_t wanted) { return slab.memory_.count() >= wanted; }, stop);
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

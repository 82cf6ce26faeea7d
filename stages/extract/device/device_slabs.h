// Pinned host memory for states: a few slabs that a GPU copies into and the shard writer reads from, used again and again.
//
//   pool.Allow(4);
//   DRAFTMILL_ASSIGN_OR_RETURN(std::shared_ptr<Slab> slab, pool.Acquire(bytes, stop));    // waits for a free one
//   StateVector states(count, StateAllocator(slab));                                      // gives it back when destroyed
//
// Waiting here is how a slow disk holds the engine back. A vector may outlive the pool. Safe from any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/status.h"
#include "kernels/device_buffer.h"
#include "stages/extract/state_memory.h"

namespace draftmill {

class Slab;

class SlabPool {
 public:
  /// From now on there may be this many slabs, or more where there were.
  void Allow(int slabs);

  /// A slab of at least `bytes` bytes that nobody else holds; one that is free is taken before a new one is made. kCancelled
  /// once `stop` is true, kOutOfMemory where the host gives no more pinned memory.
  Result<std::shared_ptr<Slab>> Acquire(std::int64_t bytes, const std::atomic<bool>& stop);
  /// Waits for one of the slabs that are there. kOutOfMemory where fewer than `needed` are of that size.
  Result<std::shared_ptr<Slab>> AcquireMade(std::int64_t bytes, std::size_t needed, const std::atomic<bool>& stop);

  /// Sees to it that `count` slabs of that size are free or can be taken without being made, as far as it may; Acquire says
  /// what the host refuses. For the moment in which the GPU has work.
  void MakeAhead(std::int64_t bytes, std::size_t count);

  /// What the slabs and the pool share.
  struct Shared {
    std::mutex mutex;
    std::condition_variable freed;
  };

 private:
  using IsFit = bool (*)(const Slab& slab, std::int64_t bytes);
  /// The first slab that nobody holds and that is fit, held from now on; waits for one.
  Result<std::shared_ptr<Slab>> Hold(std::int64_t bytes, IsFit is_fit, const std::atomic<bool>& stop);

  const std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::vector<std::shared_ptr<Slab>> slabs_;
};

/// One slab. Between Acquire and the end of the StateVector that was made with it, it belongs to that vector.
class Slab : public StateMemory {
 public:
  explicit Slab(std::shared_ptr<SlabPool::Shared> shared) : shared_(std::move(shared)) {}

  void* Take(std::size_t bytes) override;
  void GiveBack(void* memory) override;

 private:
  friend class SlabPool;
  const std::shared_ptr<SlabPool::Shared> shared_;
  cuda::PinnedBuffer<std::byte> memory_;
  bool held_ = false;  ///< under the pool's mutex
};

}  // namespace draftmill

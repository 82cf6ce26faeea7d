// Pinned host memory for states: a few slabs that a GPU copies into and the shard writer reads from, used again and again.
//
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
  explicit SlabPool(int slabs);

  /// A slab of at least `bytes` bytes that nobody else holds. kCancelled once `stop` is true.
  Result<std::shared_ptr<Slab>> Acquire(std::int64_t bytes, const std::atomic<bool>& stop);

  /// What the slabs and the pool share.
  struct Shared {
    std::mutex mutex;
    std::condition_variable freed;
  };

 private:
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

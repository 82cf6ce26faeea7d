// Memory of captured states on their way from the engine to the shard writer.
//
// A StateVector is a std::vector that leaves new elements uninitialised and may live in memory that an engine lends: a
// GPU's pinned slabs, which go back to their pool when the vector is destroyed, on whatever thread that happens.
//
//   StateVector states(count);                               // on the heap
//   StateVector states(count, StateAllocator(slabs));        // in a slab of the pool
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

namespace draftmill {

/// Lends memory for states. Implementations are safe from any thread.
class StateMemory {
 public:
  virtual ~StateMemory() = default;
  /// At least `bytes` bytes, aligned to 4,096. Throws std::bad_alloc where there are none.
  virtual void* Take(std::size_t bytes) = 0;
  virtual void GiveBack(void* memory) = 0;
};

/// The allocator of StateVector: lent memory, or the heap where it was made without a lender.
template <typename T>
class StateAllocatorOf {
 public:
  using value_type = T;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;

  StateAllocatorOf() = default;
  explicit StateAllocatorOf(std::shared_ptr<StateMemory> lender) : lender_(std::move(lender)) {}
  template <typename U>
  StateAllocatorOf(const StateAllocatorOf<U>& other) : lender_(other.lender()) {}  // NOLINT: as allocators convert

  T* allocate(std::size_t count) {
    const std::size_t bytes = count * sizeof(T);
    return static_cast<T*>(lender_ ? lender_->Take(bytes) : ::operator new (bytes, std::align_val_t{64}));
  }
  void deallocate(T* memory, std::size_t /*count*/) {
    if (lender_) return lender_->GiveBack(memory);
    ::operator delete (memory, std::align_val_t{64});
  }
  /// A new element without a value is left as the memory is: it is about to be overwritten.
  template <typename U>
  void construct(U* element) {
    ::new (static_cast<void*>(element)) U;
  }
  template <typename U, typename... Arguments>
  void construct(U* element, Arguments&&... arguments) {
    ::new (static_cast<void*>(element)) U(std::forward<Arguments>(arguments)...);
  }
  /// A copy of a vector lives on the heap: lent memory is scarce.
  StateAllocatorOf select_on_container_copy_construction() const { return {}; }

  const std::shared_ptr<StateMemory>& lender() const { return lender_; }
  friend bool operator==(const StateAllocatorOf& a, const StateAllocatorOf& b) { return a.lender_ == b.lender_; }

 private:
  std::shared_ptr<StateMemory> lender_;
};

using StateAllocator = StateAllocatorOf<std::uint16_t>;
/// bfloat16 bits, [t, L, H].
using StateVector = std::vector<std::uint16_t, StateAllocator>;

}  // namespace draftmill

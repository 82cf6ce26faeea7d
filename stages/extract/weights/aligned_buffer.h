// Memory for weights and activations: aligned to pages, not initialised, kept for the life of its owner so that its
// pages are touched once. A product's bits may depend on the alignment of its operands, so all operands begin in these.
//
// Movable, owned by one object; its bytes follow the owner's rules for threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace draftmill {

/// Uninitialised elements of a plain type.
template <typename T>
class AlignedBuffer {
 public:
  static constexpr std::size_t kAlignment = 4096;

  AlignedBuffer() = default;
  /// Throws std::bad_alloc, as containers do; the engine's boundary functions catch it.
  explicit AlignedBuffer(std::int64_t count) { Grow(count); }

  /// Makes room for `count` elements; the content is lost where the buffer grows.
  void Grow(std::int64_t count) {
    if (count <= count_) return;
    data_.reset();
    count_ = 0;
    const std::size_t bytes = (static_cast<std::size_t>(count) * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    data_.reset(static_cast<T*>(std::aligned_alloc(kAlignment, bytes)));
    if (data_ == nullptr) throw std::bad_alloc();
    count_ = count;
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  std::int64_t count() const { return count_; }
  std::int64_t bytes() const { return count_ * static_cast<std::int64_t>(sizeof(T)); }

 private:
  struct Free {
    void operator()(T* pointer) const { std::free(pointer); }  // NOLINT: pairs with aligned_alloc
  };
  std::unique_ptr<T, Free> data_;
  std::int64_t count_ = 0;
};

}  // namespace draftmill

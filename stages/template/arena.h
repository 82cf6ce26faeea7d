// Memory of one rendering: values are bump-allocated, never freed one by one, and given back together.
//
// Nothing allocated here may need a destructor. The budget bounds what a template can make the engine allocate: past it
// Allocate still succeeds (callers need no error path in the middle of an operation), but over_budget() turns true and
// the evaluator stops at its next step; a single allocation larger than the budget must be refused by the caller
// beforehand (Fits). The same holds for work on values that hangs on no allocation (comparing what is nested): whoever
// does it counts it with Work and leaves off past the budget. Not safe for concurrent use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace draftmill::jinja {

class Arena {
 public:
  explicit Arena(std::size_t budget_bytes, std::int64_t budget_work = std::numeric_limits<std::int64_t>::max())
      : budget_bytes_(budget_bytes), budget_work_(budget_work) {}

  /// A place in the arena to which Rewind gives everything after it back.
  struct Mark {
    std::size_t block = 0;
    std::size_t used = 0;
    std::size_t total = 0;
  };

  bool over_budget() const { return total_bytes_ > budget_bytes_ || work_ > budget_work_; }
  bool over_work() const { return work_ > budget_work_; }
  /// Counts a step of work on values, or the bytes that it looked at.
  void Work(std::size_t bytes = 0) { work_ += 1 + static_cast<std::int64_t>(bytes / 64); }
  void ResetWork() { work_ = 0; }
  bool Fits(std::size_t bytes) const { return bytes <= budget_bytes_ && total_bytes_ <= budget_bytes_ - bytes; }

  Mark mark() const { return {block_, used_, total_bytes_}; }

  /// Frees what was allocated after `mark`; its blocks are kept for the next rendering, large ones are released.
  void Rewind(const Mark& mark) {
    block_ = mark.block;
    used_ = mark.used;
    total_bytes_ = mark.total;
    while (blocks_.size() > block_ + 1 && (blocks_.size() > kKeptBlocks || blocks_.back().size > kBlockBytes)) {
      blocks_.pop_back();
    }
  }

  void* Allocate(std::size_t bytes) {
    bytes = (bytes + kAlignment - 1) & ~(kAlignment - 1);
    total_bytes_ += bytes;
    if (blocks_.empty() || used_ + bytes > blocks_[block_].size) NextBlock(bytes);
    void* place = blocks_[block_].bytes.get() + used_;
    used_ += bytes;
    return place;
  }

  template <typename T, typename... Arguments>
  T* Make(Arguments&&... arguments) {
    static_assert(std::is_trivially_destructible_v<T>);
    return ::new (Allocate(sizeof(T))) T{std::forward<Arguments>(arguments)...};
  }

  /// `count` default-constructed elements.
  template <typename T>
  std::span<T> MakeArray(std::size_t count) {
    static_assert(std::is_trivially_destructible_v<T>);
    if (count == 0) return {};
    T* first = static_cast<T*>(Allocate(count * sizeof(T)));
    std::uninitialized_default_construct_n(first, count);
    return {first, count};
  }

  const char* CopyBytes(std::string_view bytes) {
    if (bytes.empty()) return "";
    char* place = static_cast<char*>(Allocate(bytes.size()));
    std::memcpy(place, bytes.data(), bytes.size());
    return place;
  }

 private:
  struct Block {
    std::unique_ptr<std::byte[]> bytes;
    std::size_t size = 0;
  };
  static constexpr std::size_t kAlignment = 8;
  static constexpr std::size_t kBlockBytes = std::size_t{64} << 10;
  static constexpr std::size_t kKeptBlocks = 16;

  void NextBlock(std::size_t bytes) {
    if (!blocks_.empty()) ++block_;
    used_ = 0;
    if (block_ < blocks_.size() && blocks_[block_].size >= bytes) return;
    blocks_.resize(block_);
    const std::size_t size = bytes > kBlockBytes ? bytes : kBlockBytes;
    blocks_.push_back({std::make_unique_for_overwrite<std::byte[]>(size), size});
  }

  std::size_t budget_bytes_;
  std::size_t total_bytes_ = 0;
  std::int64_t budget_work_;
  std::int64_t work_ = 0;
  std::vector<Block> blocks_;
  std::size_t block_ = 0;
  std::size_t used_ = 0;
};

}  // namespace draftmill::jinja

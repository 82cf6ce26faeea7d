// Byte credits: how the flow graph bounds what is in flight (design: buffers are bounded by bytes, not by messages).
//
// Credits are taken by one serial node in plan order, before work on an item begins, and given back when the item has
// left the bounded segment. An item larger than the whole budget passes when nothing else is in flight, so no item can
// wait for ever. Thread-safe.
#pragma once

#include <cstdint>
#include <mutex>

namespace draftmill {

class CreditLedger {
 public:
  explicit CreditLedger(std::int64_t budget_bytes) : budget_bytes_(budget_bytes) {}

  /// Takes `bytes` where they fit into the budget or nothing is in flight; false: ask again after a Return.
  bool TryTake(std::int64_t bytes);
  /// Gives back what TryTake took.
  void Return(std::int64_t bytes);

  /// The most that was ever in flight: shown at the end of the run.
  std::int64_t peak_bytes() const;

 private:
  const std::int64_t budget_bytes_;
  mutable std::mutex mutex_;
  std::int64_t used_bytes_ = 0;
  std::int64_t items_ = 0;
  std::int64_t peak_bytes_ = 0;
};

}  // namespace draftmill

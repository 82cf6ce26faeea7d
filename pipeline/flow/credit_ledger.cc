#include "pipeline/flow/credit_ledger.h"

#include <algorithm>

#include "base/status.h"

namespace draftmill {

bool CreditLedger::TryTake(std::int64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (items_ > 0 && used_bytes_ + bytes > budget_bytes_) return false;
  ++items_;
  used_bytes_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, used_bytes_);
  return true;
}

void CreditLedger::Return(std::int64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  DRAFTMILL_CHECK(items_ > 0 && used_bytes_ >= bytes, "more credits were returned than taken");
  --items_;
  used_bytes_ -= bytes;
}

std::int64_t CreditLedger::peak_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return peak_bytes_;
}

}  // namespace draftmill

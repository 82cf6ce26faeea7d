// Floating-point operations of a model's forward pass, for shares of what a machine can do.
//
// Counted are linear layers, of routed experts those that a token goes through, and causal attention within its
// windows; nothing else. Plain values; safe from any thread.
#pragma once

#include <cstdint>
#include <map>

#include "stages/extract/model/model_config.h"

namespace draftmill {

class ModelFlops {
 public:
  /// The first `layers` layers.
  ModelFlops(const ModelConfig& config, std::int64_t layers);
  /// Of one sample of so many tokens.
  double Of(std::int64_t tokens) const;

 private:
  double per_token_ = 0;
  std::map<std::int64_t, double> per_pair_;  ///< of a query and a key that it sees, by window (0: none)
};

}  // namespace draftmill

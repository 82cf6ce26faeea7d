// What the branches of a layer take of a GPU beside its weights. Pure functions of the model; no CUDA here.
#pragma once

#include <cstdint>

#include "stages/extract/model/model_config.h"

namespace draftmill {

/// Rows of a piece of a gated MLP: products have long been at their full rate, and the wide buffers stay small beside a
/// block.
inline constexpr std::int64_t kMostPieceRows = 32768;

/// The widest of a model's MLPs: dense, shared experts, one expert.
std::int64_t WidestMlp(const ModelConfig& config);

/// Bytes for each row of a batch: attention, and the gated MLP of models without experts.
std::int64_t BatchRowBytes(const ModelConfig& config);
/// Bytes for each row of a block: routed experts; 0 for models without.
std::int64_t BlockRowBytes(const ModelConfig& config);
/// Bytes whatever the rows: pieces of gated MLPs and experts expanded from their packed form, parts of a router; 0 for
/// models without experts.
std::int64_t FixedBranchBytes(const ModelConfig& config);

/// Experts that are expanded at a time.
inline constexpr std::int64_t kExpandedExperts = 4;

}  // namespace draftmill

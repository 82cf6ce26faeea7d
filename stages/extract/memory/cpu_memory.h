// The fixed shapes of the CPU engine's work, and the memory that follows from them.
#pragma once

#include <cstdint>

#include "stages/extract/extractor.h"
#include "stages/extract/model/model_config.h"

namespace draftmill {

/// Rows of a dense product: enough for its full rate (within 3 % of 2,048 rows), few enough that the threads of a small block
/// end together.
inline constexpr std::int64_t kTileRows = 256;
/// Fewest rows of any product: a single row takes other kernels with other bits.
inline constexpr std::int64_t kMinProductRows = 2;
/// Queries of one attention product; with grouped heads the product has that many rows times the group.
inline constexpr std::int64_t kQueryBlock = 128;
/// Keys of one attention product: bounds the scores, so that no sequence needs a [T, T] matrix.
inline constexpr std::int64_t kKeyBlock = 512;

/// Heads of k and v as attention is computed: latent attention has as many as queries.
std::int64_t KvHeads(const ModelConfig& config);
/// Width of a head's values.
std::int64_t ValueDim(const ModelConfig& config);
/// Rows of the largest attention product.
std::int64_t AttentionRows(const ModelConfig& config);

/// What the engine takes for a model of which `layers` layers are captured, on this machine.
EngineMemory CpuMemoryOf(const ModelConfig& config, std::int64_t layers);

}  // namespace draftmill

// What mixture-of-experts layers do on a GPU beside their products: the routers' choice, sorting rows by expert,
// spreading them and summing what a token's experts gave.
//
//   DRAFTMILL_RETURN_IF_ERROR(cuda::Route({.logits = logits, ...}, stream));       // queued, does not wait
//   DRAFTMILL_RETURN_IF_ERROR(cuda::PlanSlots({.chosen = chosen, ...}, stream));   // a place for each choice
//   DRAFTMILL_RETURN_IF_ERROR(cuda::SpreadRows({...}, stream));
//   ... products of each expert over its rows ...
//   DRAFTMILL_RETURN_IF_ERROR(cuda::JoinExperts({...}, stream));
//
// A token's experts are kept in ascending order and every float32 sum runs in that order; rows of an expert stand in
// the order of their tokens. So nothing depends on which block of threads ran when. Ties in the choice go to the lower
// expert. The same rules as kernels/experts_cpu.h, whose results differ from these by the last bit of an exponential at
// most. `reference` is the same arithmetic in plain loops on host memory. Launches that the driver refuses are kDevice.
// Safe from any thread. Sources: transformers models/{qwen3_moe,gpt_oss,deepseek_v3} (routers), integrations/moe.py
// (sums).
#pragma once

#include <cstdint>

#include "base/status.h"
#include "kernels/bfloat16.h"
#include "kernels/experts_cpu.h"

using cudaStream_t = struct CUstream_st*;

namespace draftmill::cuda {

/// Experts of a layer, at most: a block of threads keeps their scores and a bit for each of its rows.
inline constexpr std::int64_t kMostExperts = 2048;
/// Parts of a router's weight, at most: three bfloat16 hold any float32.
inline constexpr std::int64_t kMostParts = 3;

/// parts[p][i]: bfloat16 numbers whose sum is values[i], the largest first. Exact with three parts but for numbers so
/// small that bfloat16 has no more bits for them.
struct SplitFloatsArgs {
  const float* values = nullptr;  ///< [count]
  Bf16* parts = nullptr;          ///< [parts, count]
  std::int64_t count = 0;
  std::int64_t part_count = 1;  ///< at most kMostParts
};

/// Chooses each row's experts. All arithmetic is float32.
struct RouteRowsArgs {
  const float* logits = nullptr;       ///< [rows, parts, experts]: a row's logits are the sums over the parts
  const float* logit_bias = nullptr;   ///< [experts], added to the logits; may be null
  const float* choice_bias = nullptr;  ///< [experts], kSigmoidBiased; may be null
  std::int32_t* chosen = nullptr;      ///< [rows, top_k], ascending
  float* weights = nullptr;            ///< [rows, top_k]
  std::int64_t rows = 0;
  std::int64_t parts = 1;
  std::int64_t experts = 0;  ///< at most kMostExperts
  std::int64_t top_k = 0;    ///< at most `experts`, and at most what the kept groups hold
  RouterKind kind = RouterKind::kSoftmax;
  std::int64_t groups = 1;  ///< kSigmoidBiased: experts / groups each, at least 2 where there is more than one
  std::int64_t groups_kept = 1;
  bool renormalise = false;
  float scaling = 1;
  bool rounds = false;  ///< softmax routers of bfloat16 models: weights follow from rounded logits and are rounded
};

/// Sorts all choices by expert, then by row.
struct PlanSlotsArgs {
  const std::int32_t* chosen = nullptr;  ///< [rows, top_k]
  std::int32_t* slots = nullptr;         ///< [rows, top_k]: each choice's place among all
  std::int32_t* first_slot = nullptr;    ///< [experts + 1]: where each expert's rows begin
  std::int32_t* scratch = nullptr;       ///< [PlanSlotsScratch(rows, experts)]
  std::int64_t rows = 0;
  std::int64_t top_k = 0;
  std::int64_t experts = 0;  ///< at most kMostExperts
};
std::int64_t PlanSlotsScratch(std::int64_t rows, std::int64_t experts);

/// out[slots[r][k]] = in[r]: a row is read once and written to each of its places.
struct SpreadRowsArgs {
  const Bf16* in = nullptr;             ///< [rows, cols]
  const std::int32_t* slots = nullptr;  ///< [rows, top_k]
  Bf16* out = nullptr;                  ///< [rows * top_k, cols]
  std::int64_t rows = 0;
  std::int64_t top_k = 0;
  std::int64_t cols = 0;
};

/// out[r] = sum over k of weights[r][k] * expert_rows[slots[r][k]], plus shared[r] where there is one, each rounded.
struct JoinExpertsArgs {
  const Bf16* expert_rows = nullptr;    ///< [slots, cols]
  const std::int32_t* slots = nullptr;  ///< [rows, top_k]
  const float* weights = nullptr;       ///< [rows, top_k]
  const Bf16* shared = nullptr;         ///< [rows, cols], or null; may be `out`
  Bf16* out = nullptr;                  ///< [rows, cols]
  std::int64_t rows = 0;
  std::int64_t top_k = 0;
  std::int64_t cols = 0;
  bool rounds_terms = true;  ///< each weighted row is rounded (bfloat16 weights); else terms stay float32
};

Status SplitFloats(const SplitFloatsArgs& args, cudaStream_t stream);
Status RouteRows(const RouteRowsArgs& args, cudaStream_t stream);
Status PlanSlots(const PlanSlotsArgs& args, cudaStream_t stream);
Status SpreadRows(const SpreadRowsArgs& args, cudaStream_t stream);
Status JoinExperts(const JoinExpertsArgs& args, cudaStream_t stream);

namespace reference {

void SplitFloats(const SplitFloatsArgs& args);
void RouteRows(const RouteRowsArgs& args);
void PlanSlots(const PlanSlotsArgs& args);
void SpreadRows(const SpreadRowsArgs& args);
void JoinExperts(const JoinExpertsArgs& args);

}  // namespace reference
}  // namespace draftmill::cuda

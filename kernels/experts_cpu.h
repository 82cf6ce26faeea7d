// Mixture-of-experts work that is no product of matrices: the routers' choice, gathering an expert's rows, and summing
// what a token's experts gave.
//
//   const ExpertKernels<float>& kernels = ExpertKernelsFor<float>(DetectInstructionSet());
//   kernels.route({.logits = logits, .rows = 1024, .experts = 128, .top_k = 8, ...});
//
// A token's experts are kept in ascending order, and every sum runs in that order in float32, so results depend neither
// on threads nor on how work was cut. Ties in the choice go to the lower expert. Compiled for three instruction sets
// that give the same bits, as decoder_cpu.h. Plain loops on the caller's memory: safe from any thread. References:
// transformers models/{qwen3_moe,gpt_oss,deepseek_v3} (routers), integrations/moe.py (sums).
#pragma once

#include <cstdint>

#include "kernels/bfloat16.h"
#include "kernels/instruction_set.h"

namespace draftmill {

/// How logits become a choice and weights.
enum class RouterKind : std::uint8_t {
  kSoftmax,        ///< softmax over all experts, then the top k (Qwen3-MoE)
  kSoftmaxChosen,  ///< the top k of the logits, then softmax over those (gpt-oss)
  kSigmoidBiased,  ///< sigmoid; a bias takes part in the choice alone, which keeps the best groups first (DeepSeek-V3)
};

/// Chooses each row's experts. All arithmetic is float32.
struct RouteArgs {
  const float* logits = nullptr;   ///< [rows, experts], not rounded
  const float* bias = nullptr;     ///< [experts], kSigmoidBiased; may be null
  float* scratch = nullptr;        ///< [2 * experts]
  std::int32_t* chosen = nullptr;  ///< [rows, top_k], ascending
  float* weights = nullptr;        ///< [rows, top_k]
  std::int64_t rows = 0;
  std::int64_t experts = 0;
  std::int64_t top_k = 0;  ///< at most `experts`, and at most what the kept groups hold
  RouterKind kind = RouterKind::kSoftmax;
  std::int64_t groups = 1;  ///< kSigmoidBiased: experts / groups each, at least 2 where there is more than one
  std::int64_t groups_kept = 1;
  bool renormalise = false;  ///< weights are divided by their sum
  float scaling = 1;
  /// Softmax routers of bfloat16 models: weights follow from the logits rounded to it, and are rounded themselves. The choice
  /// is made from the logits as they are: rounding keeps their order, and what it makes equal is no tie.
  bool rounds = false;
};

/// sums[r] += weight * rows of the experts of row r that lie in [first_expert, end_expert).
template <typename T>
struct AddExpertsArgs {
  const T* expert_rows = nullptr;        ///< what the experts gave, one row a slot
  const std::int32_t* chosen = nullptr;  ///< [rows, top_k]
  const float* weights = nullptr;        ///< [rows, top_k]
  const std::int32_t* slots = nullptr;   ///< [rows, top_k]: where each choice stands among all slots of the block
  std::int64_t first_slot = 0;           ///< of expert_rows
  std::int32_t first_expert = 0;
  std::int32_t end_expert = 0;
  float* sums = nullptr;  ///< [rows, cols]
  std::int64_t rows = 0;
  std::int64_t top_k = 0;
  std::int64_t cols = 0;
  bool rounds = true;        ///< the experts' rows stand for bfloat16
  bool rounds_terms = true;  ///< so does each weighted row (bfloat16 weights); else terms stay float32
};

/// out[i] = sums[i], plus shared[i] where there is one, each rounded.
template <typename T>
struct JoinSharedArgs {
  const float* sums = nullptr;
  const T* shared = nullptr;  ///< may be null; may be `out`
  T* out = nullptr;
  std::int64_t count = 0;
  bool rounds = true;
};

/// The kernels of one instruction set.
template <typename T>
struct ExpertKernels {
  void (*route)(const RouteArgs&);
  /// Copies whole rows: out[i] = rows[indices[i]].
  void (*gather_rows)(const T* rows, const std::int32_t* indices, T* out, std::int64_t count, std::int64_t cols);
  void (*add_experts)(const AddExpertsArgs<T>&);
  void (*join_shared)(const JoinSharedArgs<T>&);
};

/// The table for an instruction set that this machine has. T is float or Bf16.
template <typename T>
const ExpertKernels<T>& ExpertKernelsFor(InstructionSet set);

}  // namespace draftmill

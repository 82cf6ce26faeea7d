// Causal attention of packed sequences on a GPU, for what the libraries' kernels leave out: soft caps on logits, heads
// of any number of dims, keys and values of different width, windows and sinks with them.
//
//   DRAFTMILL_RETURN_IF_ERROR(cuda::Attend({.q = q, .k = k, .v = v, .out = out, .starts = cu_seqlens, ...}, stream));
//
// Softmax by blocks of keys with running maxima and sums (Dao 2023, FlashAttention-2), products on tensor cores; scores
// and sums are float32, weights of keys are rounded to bfloat16 for their product with the values. A block of threads
// owns 64 queries of a head, so the result depends on nothing but its own sequence. Needs compute capability 8.0.
// Queued, does not wait; a launch that the driver refuses is kDevice. `reference` is plain loops on host memory. Safe
// from any thread.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "kernels/bfloat16.h"

using cudaStream_t = struct CUstream_st*;

namespace draftmill::cuda {

/// Dims of a head of q and k, or of v, at most.
inline constexpr std::int64_t kMostAttentionDims = 256;

/// Element (token, head, dim) of q stands at q + token * q_token + head * q_head + dim; k and v likewise.
struct AttendArgs {
  const Bf16* q = nullptr;
  const Bf16* k = nullptr;
  const Bf16* v = nullptr;
  Bf16* out = nullptr;  ///< [tokens, heads, value_dim]
  std::int64_t q_token = 0;
  std::int64_t q_head = 0;
  std::int64_t k_token = 0;
  std::int64_t k_head = 0;
  std::int64_t v_token = 0;
  std::int64_t v_head = 0;
  const std::int32_t* starts = nullptr;  ///< [sequences + 1]: first token of each sequence, and the end
  std::int64_t sequences = 0;            ///< at most 65,535
  std::int64_t longest = 0;              ///< tokens of the longest one
  std::int64_t heads = 0;                ///< at most 65,535
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t value_dim = 0;
  float scale = 1;
  float softcap = 0;             ///< logits become cap * tanh(logit / cap) before the mask; 0 for none
  std::int64_t window = 0;       ///< keys that a query sees, its own included; 0 for all before it
  const float* sinks = nullptr;  ///< [heads]: one more logit whose value is zero; null for none
};

Status Attend(const AttendArgs& args, cudaStream_t stream);

namespace reference {
void Attend(const AttendArgs& args);
}

}  // namespace draftmill::cuda

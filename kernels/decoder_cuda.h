// Everything of a decoder layer on a GPU that is neither a product of matrices nor attention: embedding rows, residual
// add with RMSNorm and capture, rotation, gating, sinks, the search for NaN. Each is bound by memory and fused so that
// a value is read and written once.
//
//   DRAFTMILL_RETURN_IF_ERROR(cuda::AddNorm({.residual = x, .branch = y, ...}, stream));      // queued, does not wait
//   cuda::reference::AddNorm({...});                                                          // the same on host
//   memory
//
// Activations are bfloat16, weights of norms and sinks float32, all row-major on the device of `stream`; sums and
// exponentials are float32. Roundings stand where transformers' bfloat16 model has them. Widths that are no multiple of
// eight, and rows that do not begin at 16 bytes, take a slower path with the same arithmetic. A launch that the driver
// refuses is kDevice; what a kernel does wrong while it runs shows at the next synchronisation. Safe from any thread;
// the same input gives the same bits.
//
// The reference is the same arithmetic in plain loops (float32 sums in ascending order), for tests.
// Sources: transformers models/{llama,gemma2,gemma3,gpt_oss} (order of roundings), openai/gpt-oss gpt_oss/torch
// (sinks).
#pragma once

#include <cstdint>

#include "base/status.h"
#include "kernels/bfloat16.h"
#include "kernels/decoder_cpu.h"

// As the CUDA runtime declares it: this header needs no toolkit.
using cudaStream_t = struct CUstream_st*;

namespace draftmill::cuda {

/// out[r] = table[ids[r]], times `scale` where it is not 1 (rounded once).
struct EmbedRowsArgs {
  const Bf16* table = nullptr;        ///< [vocabulary, cols]
  const std::int32_t* ids = nullptr;  ///< [rows]
  Bf16* out = nullptr;                ///< [rows, cols]
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  float scale = 1.0F;
};

/// to[i] = from[i]. Either may be pinned host memory, which the kernel reaches over the link by itself: a copy of the
/// runtime would wait until a layer's weights or a batch's states, gigabytes on the same way, are through. The host sees
/// what was written once an event after it has come.
struct CopyIntegersArgs {
  const std::int32_t* from = nullptr;  ///< [count]
  std::int32_t* to = nullptr;          ///< [count]
  std::int64_t count = 0;
};

/// residual += branch; capture = residual; out = RMSNorm(residual) * weight. Parts whose pointer is null are left out.
struct AddNormArgs {
  Bf16* residual = nullptr;              ///< [rows, cols], in place
  const Bf16* branch = nullptr;          ///< [rows, cols]
  const float* branch_weight = nullptr;  ///< [cols]: the branch has a norm of its own before it is added (Gemma)
  const float* weight = nullptr;         ///< [cols]
  Bf16* out = nullptr;                   ///< [rows, cols]
  Bf16* capture = nullptr;               ///< first row's place among the captured layers
  std::int64_t capture_stride = 0;       ///< elements between rows of `capture`
  std::int64_t rows = 0;
  std::int64_t cols = 0;  ///< at most 16,384
  float epsilon = 0;
  NormRounding rounding = NormRounding::kHf;  ///< kHf or kFused
  bool one_plus = false;                      ///< the weight is 1 + w (Gemma)
  std::int64_t residual_stride = 0;           ///< elements between rows of `residual`; 0 for cols
};

/// Heads of q and k inside a fused product: RMSNorm of each head where there are weights, then rotation, in place.
struct RotateHeadsArgs {
  Bf16* heads = nullptr;                    ///< [rows, row_stride]; q's heads, then k's, then what is left alone
  const std::int32_t* positions = nullptr;  ///< [rows]
  const float* cosines = nullptr;           ///< [positions, rotary_dims / 2], rounded as the model rounds them
  const float* sines = nullptr;
  const float* q_norm = nullptr;  ///< [head_dim], or null
  const float* k_norm = nullptr;
  std::int64_t rows = 0;
  std::int64_t row_stride = 0;
  std::int64_t q_heads = 0;
  std::int64_t k_heads = 0;
  std::int64_t head_dim = 0;     ///< at most 256
  std::int64_t rotary_dims = 0;  ///< leading dims of a head that are rotated
  bool interleaved = false;      ///< pairs are (2i, 2i + 1) instead of halves
  float epsilon = 0;
  NormRounding norm_rounding = NormRounding::kHf;
  bool one_plus = false;
};

/// Latent attention (MLA) in its expanded form: rotates the last dims of q's heads in place, and puts each head's k
/// together from its own part and the rotated part that all heads share.
struct AssembleLatentArgs {
  Bf16* q = nullptr;                        ///< [rows, heads, nope_dim + rope_dim], in place
  const Bf16* kv = nullptr;                 ///< [rows, heads, nope_dim + v_dim]
  const Bf16* k_rope = nullptr;             ///< rows of rope_dim values, `k_rope_stride` apart
  Bf16* k = nullptr;                        ///< [rows, heads, nope_dim + rope_dim]
  const std::int32_t* positions = nullptr;  ///< [rows]
  const float* cosines = nullptr;           ///< [positions, rope_dim / 2], rounded as the model rounds them
  const float* sines = nullptr;
  std::int64_t rows = 0;
  std::int64_t k_rope_stride = 0;
  std::int64_t heads = 0;
  std::int64_t nope_dim = 0;
  std::int64_t rope_dim = 0;  ///< even, at most 256
  std::int64_t v_dim = 0;
  bool interleaved = false;  ///< pairs are (2i, 2i + 1) instead of halves
};

/// out[r][i] = act(gate_up[r][i]) * gate_up[r][width + i].
struct GateArgs {
  const Bf16* gate_up = nullptr;  ///< [rows, 2 * width]
  Bf16* out = nullptr;            ///< [rows, width]
  std::int64_t rows = 0;
  std::int64_t width = 0;
  GateKind kind = GateKind::kSilu;
  float limit = 0;  ///< kClampedSwiglu
};

/// Lets a learnt logit per head join a softmax that was computed without it: out *= sigmoid(lse - sink).
struct SinksArgs {
  Bf16* out = nullptr;           ///< [rows, heads, head_dim], in place
  const float* lse = nullptr;    ///< [heads, rows]: natural logarithm of the softmax's sum
  const float* sinks = nullptr;  ///< [heads]
  std::int64_t rows = 0;
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
};

/// bad[owner[r]] = 1 for each row that holds a NaN or an infinity; the other places are left alone.
struct MarkNonFiniteArgs {
  const Bf16* values = nullptr;         ///< [rows, cols]
  const std::int32_t* owner = nullptr;  ///< [rows]
  std::int32_t* bad = nullptr;          ///< [owners]
  std::int64_t rows = 0;
  std::int64_t cols = 0;
};

Status EmbedRows(const EmbedRowsArgs& args, cudaStream_t stream);
Status CopyIntegers(const CopyIntegersArgs& args, cudaStream_t stream);
Status AddNorm(const AddNormArgs& args, cudaStream_t stream);
Status RotateHeads(const RotateHeadsArgs& args, cudaStream_t stream);
Status AssembleLatent(const AssembleLatentArgs& args, cudaStream_t stream);
Status Gate(const GateArgs& args, cudaStream_t stream);
Status ApplySinks(const SinksArgs& args, cudaStream_t stream);
Status MarkNonFinite(const MarkNonFiniteArgs& args, cudaStream_t stream);

namespace reference {

void EmbedRows(const EmbedRowsArgs& args);
void CopyIntegers(const CopyIntegersArgs& args);
void AddNorm(const AddNormArgs& args);
void RotateHeads(const RotateHeadsArgs& args);
void AssembleLatent(const AssembleLatentArgs& args);
void Gate(const GateArgs& args);
void ApplySinks(const SinksArgs& args);
void MarkNonFinite(const MarkNonFiniteArgs& args);

}  // namespace reference
}  // namespace draftmill::cuda

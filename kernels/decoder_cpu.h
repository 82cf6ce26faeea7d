// Everything of a decoder layer on the CPU that is no product of matrices: norms, rotation, softmax, gating, residuals,
// captures. Memory-bound loops, each fused so that a value is read and written once.
//
//   const DecoderKernels<float>& kernels = DecoderKernelsFor<float>(DetectInstructionSet());
//   kernels.rms_norm({.x = x, .weight = w, .out = out, .rows = 1024, .cols = 576, .epsilon = 1e-5F, ...});
//
// T is the type in which products take and give their operands: Bf16, or float (values that `rounds` makes bfloat16
// all the same). The residual stream, q, k, v and everything in attention are float. `rounds` puts a rounding to bfloat16
// wherever transformers' bfloat16 model has one; without it the kernels compute a float32 model.
//
// One source (decoder_cpu_body.h) is compiled for three instruction sets. Sums run in eight fixed lanes and products are
// never contracted, so all three give the same bits. Plain loops on the caller's memory: safe from any thread.
// A learnt sink (gpt-oss) needs no kernel: a row begins with the sink as its maximum and a sum of 1.
// References: transformers models/{llama,gemma2,gpt_oss,deepseek_v3} (order of roundings), Dao 2022 (softmax by blocks).
#pragma once

#include <cstdint>

#include "kernels/bfloat16.h"
#include "kernels/instruction_set.h"

namespace draftmill {

/// Where RMSNorm rounds to bfloat16.
enum class NormRounding : std::uint8_t {
  kNone,   ///< float32 model
  kHf,     ///< the normalised value, then its product with the weight (transformers)
  kFused,  ///< the product alone (serving engines; Gemma and gpt-oss in transformers)
};

/// out[r] = x[r] / rms(x[r]) * weight.
template <typename T>
struct RmsNormArgs {
  const float* x = nullptr;       ///< [rows, cols]
  const float* weight = nullptr;  ///< [cols]
  T* out = nullptr;               ///< [rows, cols]
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  float epsilon = 0;
  NormRounding rounding = NormRounding::kHf;
  float weight_offset = 0;  ///< 1 where the model multiplies with 1 + w (Gemma)
};

/// The same over rows of a product: MLA's latents, a branch before it joins the residual stream. `out` may be `x` where
/// the stride is `cols`.
template <typename T>
struct ProductNormArgs {
  const T* x = nullptr;  ///< rows of `cols` values, `x_stride` apart
  std::int64_t x_stride = 0;
  const float* weight = nullptr;  ///< [cols]
  T* out = nullptr;               ///< [rows, cols]
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  float epsilon = 0;
  NormRounding rounding = NormRounding::kHf;
  float weight_offset = 0;
};

/// Splits rows of a fused qkv product, normalises the heads of q and k where the model does, rotates them, and lays
/// them out by kv head: q [kv_heads][tokens][group * head_dim], k and v [kv_heads][tokens][head_dim].
template <typename T>
struct SplitRotateArgs {
  const T* qkv = nullptr;                     ///< [rows, (heads + 2 kv_heads) * head_dim]
  const std::int32_t* rotary_rows = nullptr;  ///< [rows]: each token's row of cosines and sines
  const float* cosines = nullptr;             ///< [..., rotary_dims / 2], rounded as the model rounds them
  const float* sines = nullptr;
  const float* q_norm = nullptr;  ///< [head_dim], or null
  const float* k_norm = nullptr;
  float* q = nullptr;  ///< at this tile's first token, first kv head
  float* k = nullptr;
  float* v = nullptr;
  std::int64_t tokens = 0;  ///< distance between kv heads of q, k and v, in tokens
  std::int64_t rows = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t rotary_dims = 0;
  float epsilon = 0;
  bool rounds = true;
  NormRounding norm_rounding = NormRounding::kHf;
  float norm_weight_offset = 0;
};

/// The same for latent attention in its expanded form, in which every head has keys and values of its own and the
/// rotated part of k is shared: q, k [heads][tokens][nope_dim + rope_dim], v [heads][tokens][v_dim].
template <typename T>
struct LatentSplitArgs {
  const T* q_rows = nullptr;   ///< [rows, heads * (nope_dim + rope_dim)]
  const T* kv_rows = nullptr;  ///< [rows, heads * (nope_dim + v_dim)]
  const T* k_rope = nullptr;   ///< rows of rope_dim values, `k_rope_stride` apart
  std::int64_t k_rope_stride = 0;
  const std::int32_t* rotary_rows = nullptr;
  const float* cosines = nullptr;  ///< [..., rope_dim / 2]
  const float* sines = nullptr;
  float* q = nullptr;  ///< at this tile's first token, first head
  float* k = nullptr;
  float* v = nullptr;
  std::int64_t tokens = 0;  ///< distance between heads, in tokens
  std::int64_t rows = 0;
  std::int64_t heads = 0;
  std::int64_t nope_dim = 0;
  std::int64_t rope_dim = 0;
  std::int64_t v_dim = 0;
  bool interleaved = false;  ///< pairs are (2i, 2i + 1) instead of (i, i + rope_dim / 2)
  bool rounds = true;
};

/// One step of softmax by blocks over keys: turns raw scores into weights exp(scale * s - max) in place, and carries
/// each row's running maximum and sum. Row r belongs to query `first_query + r / group`; it sees keys
/// max(0, query - window + 1) .. query, of which this block holds `first_key .. first_key + keys`.
struct SoftmaxArgs {
  float* scores = nullptr;   ///< [rows, keys]
  float* maximum = nullptr;  ///< [rows]
  float* sum = nullptr;      ///< [rows]
  float* rescale = nullptr;  ///< [rows]: what earlier blocks' results are multiplied with
  std::int64_t rows = 0;
  std::int64_t keys = 0;
  std::int64_t group = 1;
  std::int64_t first_query = 0;  ///< in the sequence
  std::int64_t first_key = 0;    ///< in the sequence
  std::int64_t window = 0;       ///< 0 for none
  float scale = 1;
  float softcap = 0;  ///< scores become cap * tanh(score / cap); 0 for none
};

/// Divides attention's sums by the rows' sums and puts the heads of a group side by side:
/// out[token][group * head_dim] = values[token * group + g] / sum.
template <typename T>
struct StoreHeadsArgs {
  const float* values = nullptr;  ///< [rows, head_dim]
  const float* sum = nullptr;     ///< [rows]
  T* out = nullptr;               ///< at the first token and the group's first head
  std::int64_t rows = 0;          ///< tokens * group
  std::int64_t group = 1;
  std::int64_t head_dim = 0;
  std::int64_t out_stride = 0;  ///< elements between tokens
  bool rounds = true;
};

/// How a gated MLP joins its two halves.
enum class GateKind : std::uint8_t {
  kSilu,           ///< silu(gate) * up
  kGeluTanh,       ///< gelu(gate), tanh form, * up
  kClampedSwiglu,  ///< g = min(gate, limit): g * sigmoid(1.702 g) * (clamp(up, -limit, limit) + 1)
};

/// out[r][i] from gate_up[r][i] and gate_up[r][width + i].
template <typename T>
struct GateArgs {
  const T* gate_up = nullptr;  ///< [rows, 2 * width]
  T* out = nullptr;            ///< [rows, width]
  std::int64_t rows = 0;
  std::int64_t width = 0;
  bool rounds = true;
  GateKind kind = GateKind::kSilu;
  float limit = 0;  ///< kClampedSwiglu
};

/// residual[i] += branch[i]. The branch counts as the bfloat16 value that its module returns; the sum stays in float32,
/// since its rounding in every layer makes a third of the error of transformers' bfloat16 states (docs/models.md).
template <typename T>
struct AddResidualArgs {
  float* residual = nullptr;
  const T* branch = nullptr;
  std::int64_t count = 0;
  bool rounds = true;  ///< the branch, where it is stored as float
};

/// Copies rows of the residual stream to their place among the captured layers, as bfloat16.
struct CaptureArgs {
  const float* residual = nullptr;  ///< [rows, cols]
  Bf16* out = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t out_stride = 0;  ///< elements between rows
};

/// The kernels of one instruction set.
template <typename T>
struct DecoderKernels {
  void (*rms_norm)(const RmsNormArgs<T>&);
  void (*product_norm)(const ProductNormArgs<T>&);
  void (*split_rotate)(const SplitRotateArgs<T>&);
  void (*latent_split)(const LatentSplitArgs<T>&);
  void (*store_heads)(const StoreHeadsArgs<T>&);
  void (*gate)(const GateArgs<T>&);
  void (*add_residual)(const AddResidualArgs<T>&);
  void (*softmax_block)(const SoftmaxArgs&);
  /// values[r][i] *= factors[r].
  void (*scale_rows)(float* values, const float* factors, std::int64_t rows, std::int64_t cols);
  /// values[i] *= factor.
  void (*scale_values)(float* values, float factor, std::int64_t count, bool rounds);
  void (*capture)(const CaptureArgs&);
  /// Exact widening.
  void (*widen)(const Bf16* in, float* out, std::int64_t count);
  /// The L2 norm of a row.
  float (*norm)(const T* values, std::int64_t count);
  /// True where no value is NaN or infinite.
  bool (*all_finite)(const Bf16* values, std::int64_t count);
};

/// The table for an instruction set that this machine has. T is float or Bf16.
template <typename T>
const DecoderKernels<T>& DecoderKernelsFor(InstructionSet set);

}  // namespace draftmill

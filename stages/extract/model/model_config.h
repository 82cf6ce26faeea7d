// A model's config.json as draftmill understands it: every number the engine needs, checked, with the family's published
// defaults where the file is silent.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(ModelConfig config, ReadModelConfig(model_folder));
//
// What is not understood is refused by name (kUnsupported: architecture, RoPE type, quantisation, activation); what is
// malformed is kInvalidInput with file and field. Files are bounded in size, depth and every number.
// Plain values; functions are safe from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "stages/extract/model/rope.h"

namespace draftmill {

struct ModelFamily;

/// In which precision the published model runs: bfloat16 also where config.json says float16, because float16 overflows
/// on the residual streams of large models.
enum class ComputeType : std::uint8_t { kBfloat16, kFloat32 };

enum class Activation : std::uint8_t {
  kSilu,           ///< silu(gate) * up
  kGeluTanh,       ///< gelu with the tanh form (gelu_pytorch_tanh), times up
  kClampedSwiglu,  ///< gpt-oss: min(gate, limit) * sigmoid(1.702 gate) * (clamp(up, -limit, limit) + 1)
};

/// How the router turns its logits into experts and weights.
enum class RouterScoring : std::uint8_t {
  kSoftmax,        ///< Qwen3-MoE: float32 softmax over all experts, then the top k
  kSoftmaxChosen,  ///< gpt-oss: the top k of the logits, then softmax over those
  kSigmoidBiased,  ///< DeepSeek-V3 noaux_tc: sigmoid; a correction bias takes part in the choice alone
};

/// Multi-head latent attention (DeepSeek-V3, Kimi-K2) in its expanded form: heads are nope + rope wide for q and k.
struct LatentAttention {
  std::int64_t q_lora_rank = 0;  ///< 0: q_proj directly
  std::int64_t kv_lora_rank = 0;
  std::int64_t nope_dim = 0;
  std::int64_t rope_dim = 0;
  std::int64_t v_dim = 0;
  double latent_norm_eps = 1e-6;  ///< of q_a_layernorm and kv_a_layernorm: the class default, not rms_norm_eps
};

/// Routed experts of the layers that have them; the others have the dense MLP.
struct MixtureOfExperts {
  std::int64_t experts = 0;
  std::int64_t top_k = 0;
  std::int64_t shared_experts = 0;  ///< as one dense MLP of shared_experts * expert_intermediate
  std::int64_t expert_intermediate = 0;
  RouterScoring scoring = RouterScoring::kSoftmax;
  std::int64_t groups = 1;  ///< kSigmoidBiased
  std::int64_t groups_kept = 1;
  bool renormalise = false;  ///< the chosen weights are divided by their sum
  double scaling = 1.0;
  bool router_bias = false;                ///< gpt-oss
  bool expert_bias = false;                ///< gpt-oss
  std::vector<std::int32_t> dense_layers;  ///< layers (from 0) without experts, ascending
};

/// How a checkpoint's matrices are stored where they are not plain numbers.
enum class QuantizationMethod : std::uint8_t {
  kNone,
  kBlockFp8,    ///< e4m3 with weight_scale_inv per block (DeepSeek-V3, Qwen3-FP8)
  kPackedInt4,  ///< compressed-tensors pack-quantized, symmetric groups (Kimi-K2.5)
  kMxfp4,       ///< blocks and scales of the experts (gpt-oss)
};

/// "fp8", "compressed-tensors", "mxfp4": as config.json names the method; "none".
const char* QuantizationName(QuantizationMethod method);

/// How the scales of kPackedInt4 are stored. config.json does not say it; the headers do.
enum class ScaleType : std::uint8_t { kBfloat16, kFloat16, kFloat32 };

struct Quantization {
  QuantizationMethod method = QuantizationMethod::kNone;
  ScaleType scale_type = ScaleType::kBfloat16;  ///< kPackedInt4; set from the checkpoint before any layout is made
  std::int64_t block_rows = 0;                  ///< kBlockFp8
  std::int64_t block_columns = 0;               ///< kBlockFp8; group size of kPackedInt4 and kMxfp4
  std::vector<std::string> not_quantised;       ///< patterns of module names, as config.json gives them
  std::set<std::string, std::less<>> kept;      ///< the layers' matrices that these mean: "layers.0.self_attn.q_proj"

  std::int64_t int4_scale_bytes() const { return scale_type == ScaleType::kFloat32 ? 4 : 2; }
};

/// A decoder with pre-norm blocks of attention and gated MLP. The flags are what tells the families apart.
struct ModelConfig {
  const ModelFamily* family = nullptr;  ///< never null after ReadModelConfig
  std::string architecture;             ///< "LlamaForCausalLM"
  std::string model_type;               ///< "llama"
  bool nested_text_config = false;      ///< the fields stood under text_config
  std::int64_t hidden_size = 0;
  std::int64_t num_layers = 0;
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t vocab_size = 0;
  std::int64_t max_positions = 0;
  double norm_eps = 0;
  bool tied_embeddings = false;
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;                   ///< RMSNorm over each head of q and k before rotation
  bool norm_one_plus = false;             ///< Gemma: norms multiply with 1 + w
  bool norm_multiplies_in_float = false;  ///< Gemma, gpt-oss: the weight is multiplied before the one rounding
  bool sandwich_norms = false;            ///< Gemma-2/3: attention's and the MLP's outputs have norms of their own
  double embedding_scale = 1.0;           ///< Gemma: sqrt(hidden_size), to be rounded to the compute type before use
  Activation activation = Activation::kSilu;
  double swiglu_limit = 0;                   ///< kClampedSwiglu
  double attention_softcap = 0;              ///< Gemma-2: cap * tanh(logit / cap) before the mask; 0 for none
  double final_softcap = 0;                  ///< Gemma-2, of the head's logits; 0 for none
  bool attention_sinks = false;              ///< gpt-oss: one learnt logit per head joins the softmax
  bool fused_qkv_in_checkpoint = false;      ///< Phi-3: qkv_proj rows are q, k, v
  bool fused_gate_up_in_checkpoint = false;  ///< Phi-3: gate_up_proj rows are gate, then up
  std::optional<LatentAttention> latent;     ///< MLA; then head_dim is nope + rope
  std::optional<MixtureOfExperts> experts;
  Quantization quantization;
  RopeConfig rope;                       ///< of full-attention layers
  std::optional<RopeConfig> local_rope;  ///< Gemma-3: of sliding layers
  double softmax_scale = 0;
  std::int64_t sliding_window = 0;           ///< tokens, the query's own included; 0 for none
  std::vector<std::int32_t> sliding_layers;  ///< layers (from 0) that have the window
  std::int64_t mtp_layers = 0;  ///< layers after the last one that the checkpoint may hold and nobody needs
  json::Value rope_stated;      ///< the parameters of scaled rotation as config.json states them
  std::string dtype;            ///< as config.json says; "bfloat16" where it says nothing
  bool dtype_stated = false;
  ComputeType compute = ComputeType::kBfloat16;
  std::vector<std::string> taken_from_class_defaults;  ///< fields that config.json leaves out, sorted
  /// End-of-text ids by the file that names them.
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> eos_by_file;

  std::int64_t q_width() const { return num_heads * head_dim; }
  std::int64_t kv_width() const { return num_kv_heads * head_dim; }
  /// Rows of the q, k and v projections together.
  std::int64_t qkv_width() const { return q_width() + 2 * kv_width(); }
};

/// Reads config.json of a model folder, and the quantisation and generation files beside it where there are any.
Result<ModelConfig> ReadModelConfig(const std::string& model_folder);

/// The same from parsed JSON, without the files beside it; `path` is for messages.
Result<ModelConfig> ParseModelConfig(const json::Value& config, const std::string& path);

/// Every derived number under the names that `doctor model --json` prints.
json::Value ModelFacts(const ModelConfig& config);

/// The layers that EAGLE-3 keeps by default: x_2, x_{n/2}, x_{n-3} and the final x_n. Fails for models in which these
/// are not distinct and ascending (fewer than 7 layers): they need an explicit list.
Result<std::vector<std::int32_t>> DefaultEagle3Layers(std::int64_t num_layers);

/// Checks an explicit list against the model: ascending, distinct, 0 <= k <= n; an empty one becomes the default.
Result<std::vector<std::int32_t>> ResolveLayers(const std::vector<std::int32_t>& layers, std::int64_t num_layers);

}  // namespace draftmill

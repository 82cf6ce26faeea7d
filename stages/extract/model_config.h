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
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "stages/extract/rope.h"

namespace draftmill {

struct ModelFamily;

/// In which precision the published model runs: bfloat16 also where config.json says float16, because float16 overflows
/// on the residual streams of large models.
enum class ComputeType : std::uint8_t { kBfloat16, kFloat32 };

/// A decoder with pre-norm blocks of attention and gated MLP. The flags are what tells the families apart.
struct ModelConfig {
  const ModelFamily* family = nullptr;   ///< never null after ReadModelConfig
  std::string architecture;              ///< "LlamaForCausalLM"
  std::string model_type;                ///< "llama"
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
  bool qk_norm = false;                  ///< RMSNorm over each head of q and k before rotation
  RopeConfig rope;
  double softmax_scale = 0;
  std::int64_t sliding_window = 0;       ///< tokens, the query's own included; 0 for none
  std::vector<std::int32_t> sliding_layers;  ///< layers (from 0) that have the window
  std::string dtype;                     ///< as config.json says; "bfloat16" where it says nothing
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

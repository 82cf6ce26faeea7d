// Model families: what a family adds to the shared decoder, and which tensors its checkpoints hold.
//
// A family is a description in families/: the architectures it answers to, its class's defaults, a reader of the fields
// that are its own, and what its checkpoints name differently. The engine runs the shared decoder that ModelConfig's flags
// describe; it never asks for a family's name. docs/models.md tells how to add one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "stages/extract/model/config_fields.h"
#include "stages/extract/model/layer_tensors.h"
#include "stages/extract/model/model_config.h"

namespace draftmill {

/// What a family's checkpoints call the parts whose names differ between families. Names stand within a layer.
struct TensorNames {
  const char* router = "mlp.gate";
  bool experts_in_one = false;  ///< gpt-oss: one tensor holds all experts, gate and up interleaved
};

/// What the published class takes where config.json leaves a field out.
struct ClassDefaults {
  std::int64_t max_positions = 2048;
  double norm_eps = 1e-6;
  bool tied_embeddings = false;
  std::int64_t vocab_size = 0;  ///< 0: config.json must say
  std::int64_t heads = 0;       ///< 0: config.json must say
  std::int64_t kv_heads = 0;    ///< 0: as many as heads
  std::int64_t head_dim = 0;    ///< 0: hidden_size / heads
  double rope_theta = 10000.0;
};

/// One family. Constant data.
struct ModelFamily {
  const char* name;  ///< "llama": as `doctor model` prints it
  std::span<const char* const> architectures;
  ClassDefaults defaults;
  /// Reads the family's own fields after the shared ones; failures go into `fields`.
  void (*read_fields)(ConfigFields& fields, ModelConfig& config);
  TensorNames names = {};
  /// Values of text_config.model_type where the fields stand under text_config; empty: they stand at the top.
  std::span<const char* const> text_model_types = {};
  /// Values of model_type that mean this family's class; without any the field is not looked at.
  std::span<const char* const> model_types = {};
  /// Prefixes of tensors that belong to other parts of the model (vision, projectors).
  std::span<const char* const> ignored_prefixes = {};
};

/// All families, in the order in which messages name them.
std::span<const ModelFamily* const> ModelFamilies();
/// The family that reads configurations of an architecture, or nullptr.
const ModelFamily* FindFamily(std::string_view architecture);

/// True where model_type names a class that is not the family's: another family's, or a published relative's.
bool IsTypeOfAnotherClass(const ModelFamily& family, std::string_view model_type);

/// ParseModelConfig with a family that need not be one of ModelFamilies(). `family` must outlive the configuration.
Result<ModelConfig> ParseModelConfigAs(const ModelFamily& family, const json::Value& config, const std::string& path);

/// A tensor that the checkpoint must (or may) hold. Names stand without the prefix of the body ("layers.0...").
struct ExpectedTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  bool required = true;
  TensorRole role = TensorRole::kPlain;
};

/// Every tensor of the checkpoint, embedding first, then layer by layer, then the final norm and the head.
std::vector<ExpectedTensor> ExpectedTensors(const ModelConfig& config);

/// True for tensors that a checkpoint may carry and the engine does not need: rotary buffers, scales of KV caches, other
/// parts of a multimodal model, layers for multi-token prediction. `prefix` is that of the body.
bool IsIgnoredTensor(const ModelConfig& config, std::string_view prefix, std::string_view name);

}  // namespace draftmill

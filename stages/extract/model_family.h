// Model families: what a family adds to the shared decoder, and which tensors its checkpoints hold.
//
// A family is a description: the architectures it answers to, a reader of the fields that are its own, and the list of
// its tensors. The engine runs the shared decoder that ModelConfig's flags describe; it never asks for a family's name.
// docs/models.md tells how to add one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "stages/extract/config_fields.h"
#include "stages/extract/model_config.h"

namespace draftmill {

/// A tensor that the checkpoint must (or may) hold. Names stand without the prefix of the body ("layers.0...").
struct ExpectedTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  bool required = true;
};

/// One family. Constant data.
struct ModelFamily {
  const char* name;                          ///< "llama": as `doctor model` prints it
  std::span<const char* const> architectures;
  /// Reads the family's own fields over the shared ones; failures go into `fields`.
  void (*read_fields)(ConfigFields& fields, ModelConfig& config);
  /// Shared fields whose absence falls back to the published class default.
  std::int64_t default_max_positions;
  double default_norm_eps;
  bool default_tied_embeddings;
};

/// All families, in the order in which messages name them.
std::span<const ModelFamily> ModelFamilies();
/// The family of an architecture, or nullptr.
const ModelFamily* FindFamily(std::string_view architecture);

/// Every tensor of the checkpoint, embedding first, then layer by layer, then the final norm and the head.
std::vector<ExpectedTensor> ExpectedTensors(const ModelConfig& config);

/// True for tensors that a checkpoint may carry and the engine does not need: rotary buffers, scales of KV caches.
bool IsIgnoredTensor(std::string_view name);

}  // namespace draftmill

// Phi-3, Phi-3.5 and Phi-4 (mini): modeling_phi3.py of transformers. q, k, v and gate, up are stored fused.
#include <array>

#include "stages/extract/model/families/families.h"
#include "stages/extract/model/rope_fields.h"

namespace draftmill::families {
namespace {

void ReadPhi3(ConfigFields& fields, ModelConfig& config) {
  RequireSilu(fields);
  config.fused_qkv_in_checkpoint = true;
  config.fused_gate_up_in_checkpoint = true;
  RopeFields read = ReadRope(
      fields, config.head_dim,
      {.max_positions = config.max_positions, .partial = true, .original_positions = 4096, .yarn_is_longrope = true});
  if (read.rope.type != RopeType::kDefault && read.rope.type != RopeType::kLongRope) {
    fields.FailUnsupported(std::string("the RoPE type ") + RopeTypeName(read.rope.type) +
                           " is not supported for this family (known: default, longrope)");
  }
  config.rope = std::move(read.rope);
  config.rope_stated = std::move(read.stated);
  ReadWindowOfAllLayers(fields, config, 0);
}

constexpr std::array kNames = {"Phi3ForCausalLM"};
constexpr std::array kTypes = {"phi3"};

}  // namespace

const ModelFamily kPhi3 = {.name = "phi3",
                           .architectures = kNames,
                           .defaults = {.max_positions = 4096, .norm_eps = 1e-5},
                           .read_fields = ReadPhi3,
                           .model_types = kTypes};

}  // namespace draftmill::families

// Llama 2, 3 and their kin, and Mistral (with Nemo and Devstral): modeling_llama.py, modeling_mistral.py of transformers.
#include <array>

#include "stages/extract/model/families/families.h"

namespace draftmill::families {
namespace {

void ReadLlama(ConfigFields& fields, ModelConfig& config) {
  RequireSilu(fields);
  const bool attention_bias = fields.BoolOr("attention_bias", false);
  config.qkv_bias = attention_bias;
  config.o_bias = attention_bias;
  config.mlp_bias = fields.BoolOr("mlp_bias", false);
  ReadPlainRope(fields, config);
}

/// A window that is longer than any sequence binds nowhere; it is kept as the file says it.
void ReadMistral(ConfigFields& fields, ModelConfig& config) {
  RequireSilu(fields);
  ReadPlainRope(fields, config);
  ReadWindowOfAllLayers(fields, config);
}

constexpr std::array kLlamaNames = {"LlamaForCausalLM"};
constexpr std::array kMistralNames = {"MistralForCausalLM"};

}  // namespace

const ModelFamily kLlama = {.name = "llama", .architectures = kLlamaNames, .defaults = {}, .read_fields = ReadLlama};

const ModelFamily kMistral = {.name = "mistral",
                              .architectures = kMistralNames,
                              .defaults = {.max_positions = 131072, .kv_heads = 8},
                              .read_fields = ReadMistral};

}  // namespace draftmill::families

// Llama 2, 3 and their kin; Mistral (with Nemo and Devstral), alone and inside the multimodal wrapper of Mistral Small 3.1:
// modeling_llama.py, modeling_mistral.py, modeling_mistral3.py of transformers.
#include <array>
#include <cstdint>

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

/// The window of the class, which a file that says nothing means; a file without a window says null.
constexpr std::int64_t kWindowOfClass = 4096;

/// A window that is longer than any sequence binds nowhere; it is kept as the file says it.
void ReadMistral(ConfigFields& fields, ModelConfig& config) {
  RequireSilu(fields);
  ReadPlainRope(fields, config);
  ReadWindowOfAllLayers(fields, config, kWindowOfClass);
}

constexpr std::array kLlamaNames = {"LlamaForCausalLM"};
constexpr std::array kMistralNames = {"MistralForCausalLM"};
constexpr std::array kMistral3Names = {"Mistral3ForConditionalGeneration"};
constexpr std::array kMistral3TextTypes = {"mistral"};
constexpr std::array kVisionPrefixes = {"vision_tower.", "multi_modal_projector.", "model.vision_tower.",
                                        "model.multi_modal_projector."};
constexpr std::array kLlamaTypes = {"llama"};
constexpr std::array kMistralTypes = {"mistral"};
constexpr std::array kMistral3Types = {"mistral3"};

constexpr ClassDefaults kMistralDefaults = {.max_positions = 131072, .kv_heads = 8};

}  // namespace

const ModelFamily kLlama = {.name = "llama",
                            .architectures = kLlamaNames,
                            .defaults = {},
                            .read_fields = ReadLlama,
                            .model_types = kLlamaTypes};

const ModelFamily kMistral = {.name = "mistral",
                              .architectures = kMistralNames,
                              .defaults = kMistralDefaults,
                              .read_fields = ReadMistral,
                              .model_types = kMistralTypes};

const ModelFamily kMistral3 = {.name = "mistral3",
                               .architectures = kMistral3Names,
                               .defaults = kMistralDefaults,
                               .read_fields = ReadMistral,
                               .text_model_types = kMistral3TextTypes,
                               .model_types = kMistral3Types,
                               .ignored_prefixes = kVisionPrefixes};

}  // namespace draftmill::families

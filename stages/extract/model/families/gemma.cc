// Gemma-2, and Gemma-3 alone and inside its multimodal wrapper: modeling_gemma2.py, modeling_gemma3.py of transformers.
#include <array>
#include <cmath>
#include <string>

#include "stages/extract/model/families/families.h"
#include "stages/extract/model/rope_fields.h"

namespace draftmill::families {
namespace {

/// What both have in common: norms with 1 + w, four a layer, a scaled embedding, GELU, a scale of its own for attention.
void ReadGemma(ConfigFields& fields, ModelConfig& config) {
  const std::string field = fields.Find("hidden_activation") != nullptr ? "hidden_activation" : "hidden_act";
  if (const std::string activation = fields.TextOr(field, "gelu_pytorch_tanh"); activation != "gelu_pytorch_tanh") {
    fields.FailUnsupported(field + " " + activation + " is not supported for this family (known: gelu_pytorch_tanh)");
  }
  if (fields.BoolOr("use_bidirectional_attention", false)) {
    fields.FailUnsupported("use_bidirectional_attention is true; draftmill extracts states of causal models only");
  }
  config.activation = Activation::kGeluTanh;
  config.norm_one_plus = true;
  config.norm_multiplies_in_float = true;
  config.sandwich_norms = true;
  config.embedding_scale = std::sqrt(static_cast<double>(config.hidden_size));
  const bool attention_bias = fields.BoolOr("attention_bias", false);
  config.qkv_bias = attention_bias;
  config.o_bias = attention_bias;
  const double scalar = fields.NumberOr("query_pre_attn_scalar", 1e-3, 1e9, 256.0);
  config.softmax_scale = 1.0 / std::sqrt(scalar);
}

/// A cap that is null is off; one that is absent takes the class's default.
double ReadCap(ConfigFields& fields, std::string_view name, double fallback) {
  if (fields.IsNull(name)) return 0;
  return fields.NumberOr(name, 1e-3, 1e6, fallback);
}

void ReadGemma2(ConfigFields& fields, ModelConfig& config) {
  ReadGemma(fields, config);
  config.attention_softcap = ReadCap(fields, "attn_logit_softcapping", 50.0);
  config.final_softcap = ReadCap(fields, "final_logit_softcapping", 30.0);
  ReadPlainRope(fields, config);
  ReadAlternatingWindow(fields, config, 4096, 2);
}

/// Every sixth layer sees everything and rotates with one base; the others have a window and another base.
void ReadGemma3(ConfigFields& fields, ModelConfig& config) {
  ReadGemma(fields, config);
  config.qk_norm = true;
  for (const std::string_view cap : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (fields.Find(cap) != nullptr) fields.FailUnsupported(std::string(cap) + " is not supported for this family");
  }
  std::int64_t period = 6;
  if (fields.Find("layer_types") == nullptr) {
    if (fields.Find("sliding_window_pattern") != nullptr) {
      period = fields.Integer("sliding_window_pattern", 1, 10000);
    } else {
      fields.NoteDefault("layer_types");
    }
  }
  RopeFields full = ReadRope(fields, config.head_dim,
                             {.theta = 1e6, .max_positions = config.max_positions, .layer_type = "full_attention"});
  config.rope = std::move(full.rope);
  config.rope_stated = std::move(full.stated);
  config.local_rope = ReadRope(fields, config.head_dim,
                               {.theta = 1e4,
                                .max_positions = config.max_positions,
                                .theta_field = "rope_local_base_freq",
                                .layer_type = "sliding_attention",
                                .scaled = false})
                          .rope;
  ReadAlternatingWindow(fields, config, 4096, period);
}

constexpr std::array kGemma2Names = {"Gemma2ForCausalLM"};
constexpr std::array kGemma3TextNames = {"Gemma3ForCausalLM"};
constexpr std::array kGemma3Names = {"Gemma3ForConditionalGeneration"};
constexpr std::array kGemma3TextTypes = {"gemma3_text"};
constexpr std::array kVisionPrefixes = {"vision_tower.", "multi_modal_projector.", "model.vision_tower.",
                                        "model.multi_modal_projector."};
constexpr std::array kGemma2Types = {"gemma2"};
constexpr std::array kGemma3Types = {"gemma3"};

constexpr ClassDefaults kGemma3Defaults = {.max_positions = 131072,
                                           .norm_eps = 1e-6,
                                           .tied_embeddings = true,
                                           .vocab_size = 262208,
                                           .heads = 8,
                                           .kv_heads = 4,
                                           .head_dim = 256,
                                           .rope_theta = 1e6};

}  // namespace

const ModelFamily kGemma2 = {.name = "gemma2",
                             .architectures = kGemma2Names,
                             .defaults = {.max_positions = 8192,
                                          .norm_eps = 1e-6,
                                          .tied_embeddings = true,
                                          .vocab_size = 256000,
                                          .heads = 8,
                                          .kv_heads = 4,
                                          .head_dim = 256},
                             .read_fields = ReadGemma2,
                             .model_types = kGemma2Types};

const ModelFamily kGemma3Text = {.name = "gemma3",
                                 .architectures = kGemma3TextNames,
                                 .defaults = kGemma3Defaults,
                                 .read_fields = ReadGemma3,
                                 .model_types = kGemma3TextTypes};

const ModelFamily kGemma3 = {.name = "gemma3",
                             .architectures = kGemma3Names,
                             .defaults = kGemma3Defaults,
                             .read_fields = ReadGemma3,
                             .text_model_types = kGemma3TextTypes,
                             .model_types = kGemma3Types,
                             .ignored_prefixes = kVisionPrefixes};

}  // namespace draftmill::families

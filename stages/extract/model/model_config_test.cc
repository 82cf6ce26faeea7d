#include "stages/extract/model/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/test_data.h"
#include "stages/extract/extractor.h"
#include "stages/extract/model/families/families.h"
#include "stages/extract/model/model_family.h"
#include "stages/extract/model/test_models.h"
#include "state/file_system.h"

namespace draftmill {
namespace {

using ::testing::HasSubstr;

json::Value LlamaJson() {
  return json::Parse(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
    "intermediate_size": 96, "num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5, "vocab_size": 100, "max_position_embeddings": 512, "tie_word_embeddings": true,
    "rope_theta": 10000.0, "torch_dtype": "bfloat16"})")
      .value();
}

Result<ModelConfig> WithField(std::string_view name, json::Value value) {
  json::Value config = LlamaJson();
  config.Set(name, std::move(value));
  return ParseModelConfig(config, "config.json");
}

std::string Refusal(const Result<ModelConfig>& result) { return result.ok() ? "accepted" : result.status().message(); }

TEST(ModelConfig, ReadsALlama) {
  const auto config = ParseModelConfig(LlamaJson(), "config.json");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_STREQ(config->family->name, "llama");
  EXPECT_EQ(config->head_dim, 16);
  EXPECT_EQ(config->qkv_width(), 128);
  EXPECT_DOUBLE_EQ(config->softmax_scale, 0.25);
  EXPECT_EQ(config->compute, ComputeType::kBfloat16);
  EXPECT_EQ(config->taken_from_class_defaults, std::vector<std::string>{"head_dim"});
}

TEST(ModelConfig, RefusesByName) {
  EXPECT_THAT(Refusal(WithField("architectures", json::Array{"MambaForCausalLM"})), HasSubstr("MambaForCausalLM"));
  EXPECT_THAT(Refusal(WithField("hidden_act", "gelu")), HasSubstr("hidden_act gelu"));
  EXPECT_THAT(Refusal(WithField("is_causal", false)), HasSubstr("is_causal"));
  EXPECT_THAT(Refusal(WithField("rope_scaling", json::Object{{"rope_type", "warped"}, {"factor", 2.0}})),
              HasSubstr("warped"));
  EXPECT_THAT(Refusal(WithField("rope_scaling", json::Object{{"rope_type", "linear"}})), HasSubstr("factor"));
  EXPECT_THAT(Refusal(WithField("quantization_config", json::Object{{"quant_method", "gptq"}})), HasSubstr("gptq"));
  EXPECT_THAT(Refusal(WithField("dtype", "float8_e4m3fn")), HasSubstr("float8_e4m3fn"));
}

TEST(ModelConfig, BoundsEveryNumber) {
  EXPECT_THAT(Refusal(WithField("hidden_size", std::int64_t{1} << 40)), HasSubstr("hidden_size"));
  EXPECT_THAT(Refusal(WithField("num_hidden_layers", -1)), HasSubstr("num_hidden_layers"));
  EXPECT_THAT(Refusal(WithField("num_attention_heads", 0)), HasSubstr("num_attention_heads"));
  EXPECT_THAT(Refusal(WithField("num_key_value_heads", 3)), HasSubstr("num_key_value_heads"));
  EXPECT_THAT(Refusal(WithField("vocab_size", "many")), HasSubstr("vocab_size"));
  EXPECT_THAT(Refusal(WithField("head_dim", 15)), HasSubstr("head_dim"));
  EXPECT_THAT(Refusal(WithField("rope_theta", 0.0)), HasSubstr("rope_theta"));
}

TEST(ModelConfig, ReadsBothRopeSpellings) {
  const json::Object llama3{{"rope_type", "llama3"},
                            {"factor", 8.0},
                            {"low_freq_factor", 1.0},
                            {"high_freq_factor", 4.0},
                            {"original_max_position_embeddings", 64}};
  const auto before = WithField("rope_scaling", llama3);
  json::Object parameters = llama3;
  parameters.emplace_back("rope_theta", 10000.0);
  json::Value with_parameters = LlamaJson();
  with_parameters.Set("rope_theta", nullptr);
  with_parameters.Set("rope_parameters", parameters);
  const auto after = ParseModelConfig(with_parameters, "config.json");
  ASSERT_TRUE(before.ok() && after.ok());
  EXPECT_EQ(InverseFrequencies(before->rope), InverseFrequencies(after->rope));
  EXPECT_EQ(after->rope.type, RopeType::kLlama3);
}

TEST(ModelConfig, DefaultLayersNeedSevenLayers) {
  EXPECT_EQ(DefaultEagle3Layers(36).value(), (std::vector<std::int32_t>{2, 18, 33, 36}));
  EXPECT_EQ(DefaultEagle3Layers(30).value(), (std::vector<std::int32_t>{2, 15, 27, 30}));
  EXPECT_FALSE(DefaultEagle3Layers(6).ok());
  EXPECT_FALSE(ResolveLayers({3, 3}, 30).ok());
  EXPECT_FALSE(ResolveLayers({31}, 30).ok());
  EXPECT_TRUE(ResolveLayers({0, 30}, 30).ok());
}

// ---- docs/models.md, "Adding a family", done: a Llama with norms on heads and a window on every second layer ----

void ReadHeron(ConfigFields& fields, ModelConfig& config) {
  families::RequireSilu(fields);
  families::ReadPlainRope(fields, config);
  config.qk_norm = true;
  config.sliding_window = fields.IntegerOr("sliding_window", 1, 1 << 20, 64);
  families::ReadSlidingLayers(
      fields, config, [](std::int64_t layer, std::int64_t every) { return layer % every == 0; }, 2);
}

TEST(ModelFamily, ANewOneIsADescription) {
  static constexpr std::array kNames = {"HeronForCausalLM"};
  const ModelFamily heron = {
      .name = "heron", .architectures = kNames, .defaults = {.head_dim = 32}, .read_fields = ReadHeron};
  json::Value file = LlamaJson();
  file.Set("architectures", json::Array{"HeronForCausalLM"});
  EXPECT_FALSE(ParseModelConfig(file, "config.json").ok());
  const auto config = ParseModelConfigAs(heron, file, "config.json");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->head_dim, 32);
  EXPECT_EQ(config->sliding_layers, (std::vector<std::int32_t>{0, 2, 4, 6}));
  EXPECT_THAT(config->taken_from_class_defaults, ::testing::Contains("sliding_window"));
  std::vector<std::string> names;
  for (const ExpectedTensor& tensor : ExpectedTensors(*config)) names.push_back(tensor.name);
  EXPECT_THAT(names, ::testing::Contains("layers.7.self_attn.q_norm.weight"));
  EXPECT_GE(LayoutOfLayer(*config, 0).q_norm, 0);
  EXPECT_EQ(ModelFacts(*config).Find("family")->as_string(), "heron");
}

// ---- refusals of the families, each by name ----

struct Refused {
  const char* family;
  const char* field;
  const char* value;
  const char* named;
};

TEST(ModelFamily, EachRefusesWhatItDoesNotKnow) {
  const std::vector<Refused> cases = {
      {"llama", "model_type", "\"granite\"", "model_type says granite"},
      {"qwen3", "model_type", "\"qwen2\"", "model_type says qwen2"},
      {"llama", "partial_rotary_factor", "0.5", "partial_rotary_factor"},
      {"llama", "rope_scaling", R"({"rope_type": "dynamic", "factor": 2.0})", "dynamic"},
      {"phi3", "rope_scaling", R"({"rope_type": "yarn", "factor": 2.0})", "yarn"},
      {"llama", "rope_parameters", R"({"rope_type": "default", "rope_theta": 1e6})",
       "rope_parameters and rope_scaling"},
      {"llama", "layer_types", R"(["full_attention", "sliding_attention", "full_attention"])",
       "layer_types says sliding_attention of layer 1"},
      {"mistral", "layer_types", R"(["full_attention", "sliding_attention"])",
       "layer_types says full_attention of layer 0"},
      {"qwen3", "layer_types", R"(["full_attention", "sliding_attention"])", "layer 1"},
      {"qwen3_moe", "layer_types", R"(["sliding_attention", "full_attention", "full_attention"])", "layer 0"},
      {"gemma2", "sliding_window", "null", "sliding_window is null, but layer 0"},
      {"gemma3", "sliding_window", "null", "sliding_window is null, but layer 0"},
      {"gpt_oss", "sliding_window", "null", "sliding_window is null, but layer 0"},
      {"phi3", "partial_rotary_factor", "0.5", "short_factor"},
      {"qwen2", "layer_types", R"(["full_attention", "chunked_attention", "full_attention"])", "chunked_attention"},
      {"gemma2", "hidden_activation", "\"gelu\"", "hidden_activation gelu"},
      {"gemma3", "attn_logit_softcapping", "30.0", "attn_logit_softcapping"},
      {"gemma3", "use_bidirectional_attention", "true", "use_bidirectional_attention"},
      {"gpt_oss", "swiglu_alpha", "1.0", "swiglu_alpha"},
      {"deepseek_v3", "scoring_func", "\"softmax\"", "scoring_func softmax"},
      {"deepseek_v3", "topk_method", "\"greedy\"", "topk_method greedy"},
      {"deepseek_v3", "num_experts_per_tok", "5", "num_experts_per_tok"},
      {"deepseek_v3", "attention_bias", "true", "attention_bias"},
      {"qwen3_moe", "num_experts_per_tok", "9", "num_experts_per_tok"},
      {"qwen3_moe", "num_experts", "65536", "3 layers of 65536"},
      {"qwen3_moe", "num_experts", "65537", "num_experts"},
      {"qwen3", "quantization_config", R"({"quant_method": "awq", "bits": 4})", "awq"},
      {"qwen3", "quantization_config", R"({"quant_method": "fp8"})", "weight_block_size"},
      {"qwen3", "quantization_config", kTestMxfp4, "mxfp4"},
      {"qwen3", "quantization_config",
       R"({"quant_method": "compressed-tensors", "format": "pack-quantized",
       "config_groups": {"g": {"targets": ["Linear"], "input_activations": {"num_bits": 8},
       "weights": {"num_bits": 4, "group_size": 32}}}})",
       "input_activations"},
      {"qwen3", "quantization_config",
       R"({"quant_method": "compressed-tensors", "format": "pack-quantized",
       "sparsity_config": {"format": "sparse-24-bitmask"}, "config_groups": {"g": {"targets": ["Linear"],
       "weights": {"num_bits": 4, "group_size": 32}}}})",
       "sparse-24-bitmask"},
      {"qwen3", "quantization_config",
       R"({"quant_method": "compressed-tensors", "format": "pack-quantized",
       "config_groups": {"g": {"targets": ["Linear"], "weights": {"num_bits": 4, "group_size": 32,
       "actorder": "group"}}}})",
       "actorder"},
      {"gpt_oss", "quantization_config", kTestFp8, "fp8"},
      {"qwen3", "quantization_config", R"({"quant_method": "compressed-tensors", "format": "float-quantized"})",
       "float-quantized"},
      {"llama", "quantization_config", R"({"quant_method": "fp8", "weight_block_size": [8, 8],
        "modules_to_not_convert": ["(a+)+$"]})",
       ""},
      {"llama", "quantization_config", R"({"quant_method": "fp8", "weight_block_size": [8, 8],
        "modules_to_not_convert": ["("]})",
       "\"(\""},
  };
  for (const Refused& refused : cases) {
    json::Value config = TestModelConfig(refused.family);
    config.Set(refused.field, json::Parse(refused.value).value());
    const auto parsed = ParseModelConfig(config, "config.json");
    if (refused.named[0] == '\0') continue;  // only that it ends
    EXPECT_THAT(Refusal(parsed), HasSubstr(refused.named)) << refused.family << " " << refused.field;
  }
}

TEST(ModelFamily, EverySmallModelIsRead) {
  for (const TestModel& model : kTestModels) {
    const auto config = ParseModelConfig(TestModelConfig(model.name), "config.json");
    ASSERT_TRUE(config.ok()) << model.name << ": " << config.status().ToString();
    EXPECT_STREQ(config->family->name, model.name);
  }
}

/// A small model with fields changed; a value of "" takes the field away.
Result<ModelConfig> Changed(std::string_view family,
                            const std::vector<std::pair<std::string_view, std::string>>& changes) {
  json::Object object = TestModelConfig(family).as_object();
  for (const auto& [name, value] : changes) {
    std::erase_if(object, [&name](const json::Member& member) { return member.first == name; });
    if (!value.empty()) object.emplace_back(std::string(name), json::Parse(value).value());
  }
  return ParseModelConfig(object, "config.json");
}

TEST(ModelConfig, AWindowThatIsNotStatedIsTheClassesOwn) {
  EXPECT_EQ(Changed("mistral", {{"sliding_window", ""}})->sliding_window, 4096);
  EXPECT_EQ(Changed("mistral", {{"sliding_window", ""}})->sliding_layers.size(), 2U);
  EXPECT_TRUE(Changed("mistral", {{"sliding_window", "null"}})->sliding_layers.empty());
  EXPECT_EQ(Changed("qwen2", {{"sliding_window", ""}})->sliding_window, 4096);
  EXPECT_TRUE(Changed("qwen2", {{"sliding_window", "null"}})->sliding_layers.empty());
  EXPECT_EQ(Changed("qwen3_moe", {{"use_sliding_window", "true"}})->sliding_layers.size(), 3U);
  EXPECT_TRUE(Changed("phi3", {{"sliding_window", ""}})->sliding_layers.empty());
  EXPECT_THAT(Changed("mistral", {{"sliding_window", ""}})->taken_from_class_defaults,
              ::testing::Contains("sliding_window"));
}

TEST(ModelConfig, ANullWindowIsOneOnlyWhereNoLayerNeedsIt) {
  const auto full = Changed("gemma2", {{"sliding_window", "null"},
                                       {"layer_types", R"(["full_attention", "full_attention", "full_attention"])"}});
  ASSERT_TRUE(full.ok()) << full.status().ToString();
  EXPECT_TRUE(full->sliding_layers.empty());
}

TEST(ModelConfig, BothSpellingsOfRopeMayStandThereAlike) {
  const std::string scaling = R"({"type": "linear", "factor": 4})";
  const std::string parameters = R"({"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0})";
  const auto alike = Changed("llama", {{"rope_scaling", scaling}, {"rope_parameters", parameters}});
  ASSERT_TRUE(alike.ok()) << alike.status().ToString();
  EXPECT_DOUBLE_EQ(alike->rope.theta, 500.0);
  EXPECT_DOUBLE_EQ(alike->rope.factor, 4.0);
}

TEST(ModelConfig, RopeParametersOfTwoRotationsAreByLayerType) {
  const auto flat = Changed("gemma3", {{"rope_scaling", ""}, {"rope_parameters", R"({"rope_theta": 5e5})"}});
  EXPECT_THAT(Refusal(flat), HasSubstr("by layer type"));
}

TEST(ModelConfig, YarnByLayerTypeIsReadFromItsSectionAlone) {
  const auto read = [](const std::string& last) {
    return Changed("gemma3", {{"rope_scaling", ""},
                              {"original_max_position_embeddings", "32"},
                              {"rope_parameters", R"({"full_attention": {"rope_type": "yarn", "factor": 4.0,
        "rope_theta": 1e6, )" + last + "}}"}});
  };
  const auto stated = read(R"("original_max_position_embeddings": 64)");
  ASSERT_TRUE(stated.ok()) << stated.status().ToString();
  EXPECT_EQ(stated->rope.original_max_positions, 64);
  EXPECT_EQ(read(R"("beta_fast": 32)")->rope.original_max_positions, 512);
  EXPECT_THAT(Refusal(read(R"("truncate": false)")), HasSubstr("truncate"));
}

TEST(ModelConfig, FirstPhi3FilesCallLongRopeYarn) {
  const std::string yarn = R"({"type": "yarn", "short_factor": [1, 1, 1, 1, 1, 1], "long_factor": [2, 2, 2, 2, 2, 2]})";
  const auto config = Changed("phi3", {{"rope_scaling", yarn}});
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->rope.type, RopeType::kLongRope);
  EXPECT_EQ(config->rope.original_max_positions, 64);
  // The class's own training length counts, not the one inside.
  const auto unstated = Changed("phi3", {{"original_max_position_embeddings", ""}});
  EXPECT_EQ(unstated->rope.original_max_positions, 4096);
}

TEST(ModelConfig, BoundsOfYarnThatAreZeroAreTheDefaults) {
  const auto config = Changed("llama", {{"rope_scaling", R"({"rope_type": "yarn", "factor": 2.0, "beta_fast": 0,
    "beta_slow": 0, "original_max_position_embeddings": 64})"}});
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_DOUBLE_EQ(config->rope.beta_fast, 32.0);
  EXPECT_DOUBLE_EQ(config->rope.beta_slow, 1.0);
}

TEST(ModelConfig, LatentAttentionIsSharpenedUnderAnyScaling) {
  const auto plain = Changed("deepseek_v3", {{"rope_scaling", R"({"rope_type": "linear", "factor": 4.0})"}});
  const auto sharp =
      Changed("deepseek_v3", {{"rope_scaling", R"({"rope_type": "linear", "factor": 4.0, "mscale_all_dim": 1.0})"}});
  ASSERT_TRUE(plain.ok() && sharp.ok());
  const double mscale = 0.1 * std::log(4.0) + 1.0;
  EXPECT_DOUBLE_EQ(sharp->softmax_scale, plain->softmax_scale * mscale * mscale);
}

TEST(ModelConfig, GroupsOfExpertsThatAreNullAreNone) {
  const auto config = Changed("deepseek_v3", {{"n_group", "null"}, {"topk_group", "null"}});
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->experts->groups, 1);
  EXPECT_EQ(config->experts->groups_kept, 1);
}

TEST(ModelConfig, GemmaNamesTheActivationFieldThatItRefuses) {
  const auto config = Changed("gemma2", {{"hidden_activation", ""}, {"hidden_act", "\"gelu\""}});
  EXPECT_THAT(Refusal(config), HasSubstr("hidden_act gelu"));
  EXPECT_TRUE(Changed("llama", {{"hidden_act", "\"swish\""}}).ok());
}

TEST(ModelConfig, MistralInsideItsMultimodalWrapper) {
  json::Object text = TestModelConfig("mistral").as_object();
  const auto read = [&text] {
    json::Object file{{"architectures", json::Array{"Mistral3ForConditionalGeneration"}}, {"text_config", text}};
    return ParseModelConfig(file, "config.json");
  };
  const auto config = read();
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->sliding_window, 16);
  EXPECT_TRUE(IsIgnoredTensor(*config, "language_model.model.", "vision_tower.patch_conv.weight"));
  for (json::Member& member : text) {
    if (member.first == "model_type") member.second = "ministral3";
  }
  EXPECT_THAT(Refusal(read()), HasSubstr("ministral3"));
  std::erase_if(text, [](const json::Member& member) { return member.first == "model_type"; });
  EXPECT_TRUE(read().ok());
}

TEST(ModelConfig, RotaryBuffersAndTheClassesOwnMtpLayerAreNoSurplus) {
  const auto config = Changed("deepseek_v3", {});
  for (const char* name : {"inv_freq", "cos_cached", "sin_cached"}) {
    EXPECT_TRUE(IsIgnoredTensor(*config, "model.", "model.layers.0.self_attn.rotary_emb." + std::string(name)));
  }
  EXPECT_TRUE(IsIgnoredTensor(*config, "model.", "model.layers.0.self_attn.kv_scale"));
  EXPECT_TRUE(IsIgnoredTensor(*config, "model.", "model.layers.3.eh_proj.weight"));
  EXPECT_FALSE(IsIgnoredTensor(*config, "model.", "model.layers.4.eh_proj.weight"));
  const auto none = Changed("deepseek_v3", {{"num_nextn_predict_layers", "0"}});
  EXPECT_FALSE(IsIgnoredTensor(*none, "model.", "model.layers.3.eh_proj.weight"));
}

TEST(ModelConfig, OrderOfRoundingIsNoOrderOfGroups) {
  for (const char* order : {"null", "false", "\"weight\"", "\"static\""}) {
    const std::string quantization = R"({"quant_method": "compressed-tensors", "format": "pack-quantized",
      "config_groups": {"g": {"targets": ["Linear"], "weights": {"num_bits": 4, "group_size": 32, "actorder": )" +
                                     std::string(order) + "}}}}";
    EXPECT_TRUE(ParseModelConfig(QuantisedTestModel("qwen3", quantization), "config.json").ok()) << order;
  }
}

TEST(ModelConfig, RopeByLayerTypeInTheNewSpelling) {
  json::Value config = TestModelConfig("gemma3");
  const json::Value before = ModelFacts(ParseModelConfig(config, "config.json").value());
  for (const std::string_view name : {"rope_theta", "rope_local_base_freq", "rope_scaling"}) config.Set(name, nullptr);
  config.Set("rope_parameters",
             json::Parse(R"({"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}})")
                 .value());
  const auto after = ParseModelConfig(config, "config.json");
  ASSERT_TRUE(after.ok()) << after.status().ToString();
  EXPECT_EQ(json::Write(*ModelFacts(*after).Find("rope")), json::Write(*before.Find("rope")));
}

TEST(ModelConfig, ExpertsUnderEitherName) {
  for (const auto& [family, name, other] : {std::array{"qwen3_moe", "num_experts", "num_local_experts"},
                                            std::array{"gpt_oss", "num_local_experts", "num_experts"},
                                            std::array{"deepseek_v3", "n_routed_experts", "num_local_experts"}}) {
    json::Value config = TestModelConfig(family);
    const std::int64_t experts = config.Find(name)->as_integer();
    config.Set(other, experts);
    config.Set(name, nullptr);
    EXPECT_EQ(ParseModelConfig(config, "config.json")->experts->experts, experts) << family;
  }
}

TEST(ModelConfig, UnquantisedModulesByPattern) {
  const auto config = ParseModelConfig(QuantisedTestModel("deepseek_v3", kTestInt4), "config.json");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_TRUE(config->quantization.kept.contains("layers.0.self_attn.kv_b_proj"));
  EXPECT_TRUE(config->quantization.kept.contains("layers.2.mlp.shared_experts.down_proj"));
  EXPECT_FALSE(config->quantization.kept.contains("layers.0.mlp.down_proj"));
  EXPECT_FALSE(config->quantization.kept.contains("layers.2.mlp.experts.0.down_proj"));
}

/// Parts of expected.json that do not follow from the configuration.
bool IsAboutTheCollection(const std::string& name) {
  for (const std::string_view other :
       {"verdict", "model", "model_licence", "files", "source", "tensors", "transformers_5.24", "head_dim_note"}) {
    if (name == other) return true;
  }
  return false;
}

/// Every number of `expected` must stand in `facts`.
void ExpectAgreement(const json::Value& expected, const json::Value& facts, const std::string& where) {
  if (expected.is_object() && facts.is_object()) {
    for (const auto& [name, value] : expected.as_object()) {
      if (IsAboutTheCollection(name)) continue;
      const json::Value* fact = facts.Find(name);
      EXPECT_NE(fact, nullptr) << where << "." << name;
      if (fact != nullptr) ExpectAgreement(value, *fact, where + "." + name);
    }
  } else if (expected.is_number() && facts.is_number()) {
    EXPECT_NEAR(facts.as_double(), expected.as_double(), 1e-12 * std::abs(expected.as_double())) << where;
  } else {
    EXPECT_EQ(json::Write(facts, json::Style::kCanonical), json::Write(expected, json::Style::kCanonical)) << where;
  }
}

TEST(ModelConfig, AgreesWithPublishedConfigurations) {
  DRAFTMILL_TEST_DATA_OR_SKIP(folder, "model_configs");
  const json::Value all = json::Parse(RealFileSystem().ReadAll(folder + "/expected.json").value()).value();
  int accepted = 0;
  for (const auto& [name, expected] : all.as_object()) {
    const auto config = ReadModelConfig(folder + "/" + name);
    const bool must_refuse = expected.Find("verdict")->as_string() == "refuse";
    if (!config.ok()) {
      EXPECT_TRUE(must_refuse) << name << ": " << config.status().ToString();
      if (!must_refuse) continue;
      if (config.status().message().find("at byte") != std::string::npos) continue;  // no JSON at all
      for (const json::Value& needle : expected.Find("reason")->Find("message_names")->as_array()) {
        EXPECT_THAT(config.status().message(), HasSubstr(needle.as_string())) << name;
      }
      continue;
    }
    EXPECT_FALSE(must_refuse) << name;
    ++accepted;
    ExpectAgreement(expected, ModelFacts(*config), name);
  }
  EXPECT_GE(accepted, 24);
}

}  // namespace
}  // namespace draftmill

#include "stages/extract/model_config.h"

#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/test_data.h"
#include "stages/extract/extractor.h"
#include "stages/extract/model_family.h"
#include "state/file_system.h"

namespace draftmill {
namespace {

using ::testing::HasSubstr;

json::Value LlamaJson() {
  return json::Parse(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
    "intermediate_size": 96, "num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5, "vocab_size": 100, "max_position_embeddings": 512, "tie_word_embeddings": true,
    "rope_theta": 10000.0, "torch_dtype": "bfloat16"})").value();
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
  EXPECT_THAT(Refusal(WithField("rope_scaling", json::Object{{"rope_type", "warped"}, {"factor", 2.0}})), HasSubstr("warped"));
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
  const json::Object llama3{{"rope_type", "llama3"}, {"factor", 8.0}, {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0},
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

/// Every number that `expected` and `facts` both name must agree.
void ExpectAgreement(const json::Value& expected, const json::Value& facts, const std::string& where) {
  if (expected.is_object() && facts.is_object()) {
    for (const auto& [name, value] : expected.as_object()) {
      if (const json::Value* fact = facts.Find(name)) ExpectAgreement(value, *fact, where + "." + name);
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
      if (!must_refuse) continue;  // a family that is not described yet is refused; never misread
      if (config.status().message().find("at byte") != std::string::npos) continue;  // no JSON at all
      for (const json::Value& needle : expected.Find("reason")->Find("message_names")->as_array()) {
        EXPECT_THAT(config.status().message(), HasSubstr(needle.as_string())) << name;
      }
      continue;
    }
    EXPECT_FALSE(must_refuse) << name;
    ++accepted;
    json::Value facts = ModelFacts(*config);
    if (expected.Find("sliding_window")->is_null()) facts.Set("sliding_window", nullptr);
    ExpectAgreement(expected, facts, name);
  }
  EXPECT_GE(accepted, 14);
}

}  // namespace
}  // namespace draftmill

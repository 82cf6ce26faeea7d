#include "pipeline/bench/model_flops.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace draftmill {
namespace {

ModelConfig Parse(const char* text) { return ParseModelConfig(json::Parse(text).value(), "config.json").value(); }

TEST(ModelFlopsTest, DenseLayersAndCausalPairs) {
  const ModelConfig config =
      Parse(R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
      "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100})");
  const double weights = 64 * (64 + 32 + 32) + 64 * 64 + 3 * 64 * 128;
  EXPECT_DOUBLE_EQ(ModelFlops(config, 2).Of(10), 2 * (2 * weights * 10 + 4 * 64 * 55));
}

TEST(ModelFlopsTest, OfExpertsThoseThatATokenGoesThrough) {
  const ModelConfig config =
      Parse(R"({"architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
      "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 100, "num_experts": 16,
      "num_experts_per_tok": 2, "moe_intermediate_size": 64})");
  const double weights = 64 * (64 + 32 + 32) + 64 * 64 + 16 * 64 + 2 * 3 * 64 * 64;
  EXPECT_DOUBLE_EQ(ModelFlops(config, 1).Of(1), 2 * weights + 4 * 64);
}

TEST(ModelFlopsTest, AWindowCutsPairsOff) {
  const ModelConfig config =
      Parse(R"({"architectures": ["MistralForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
      "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "sliding_window": 3})");
  const ModelFlops flops(config, 1);
  EXPECT_DOUBLE_EQ(flops.Of(5) - 5 * (flops.Of(1) - 4 * 64), 4 * 64 * (1 + 2 + 3 + 3 + 3));
}

}  // namespace
}  // namespace draftmill

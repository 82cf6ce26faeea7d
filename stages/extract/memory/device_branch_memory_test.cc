#include "stages/extract/memory/device_branch_memory.h"

#include <gtest/gtest.h>

#include <string>

#include "base/json.h"

namespace draftmill {
namespace {

ModelConfig Kimi(const char* more) {
  const std::string text =
      std::string(R"({"architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 7168, "intermediate_size": 18432,
      "num_hidden_layers": 4, "num_attention_heads": 64, "num_key_value_heads": 64, "vocab_size": 1000, "q_lora_rank": 1536,
      "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 384,
      "num_experts_per_tok": 8, "n_shared_experts": 1, "moe_intermediate_size": 2048, "first_k_dense_replace": 1, "n_group": 1,
      "topk_group": 1)") +
      more + "}";
  return ParseModelConfig(json::Parse(text).value(), "config.json").value();
}

TEST(DeviceBranchMemoryTest, DenseModelsTakeNothingForABlock) {
  const ModelConfig llama = ParseModelConfig(json::Parse(R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 4096,
      "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 1000})")
                                                 .value(),
                                             "config.json")
                                .value();
  EXPECT_EQ(BlockRowBytes(llama), 0);
  EXPECT_EQ(FixedBranchBytes(llama), 0);
  EXPECT_EQ(BatchRowBytes(llama), 2 * (6144 + 4096 + 3 * 14336));
}

/// A block of 262,144 tokens of Kimi-K2.5 holds 30 GB of experts' rows and 1.2 GB of logits: what decides its size.
TEST(DeviceBranchMemoryTest, ExpertsTakeARowForEachChoice) {
  const ModelConfig kimi = Kimi("");
  EXPECT_NEAR(static_cast<double>(BlockRowBytes(kimi)) * 262144, 31.3e9, 0.3e9);
  EXPECT_EQ(WidestMlp(kimi), 18432);  // the dense first layer
  // Latents, q, k, kv and the result of attention.
  EXPECT_EQ(BatchRowBytes(kimi), 2 * (1536 + 576 + 1536 + 2 * 12288 + 16384 + 8192));
  // A piece of the widest MLP, or of experts taken together; the router in three parts.
  EXPECT_EQ(FixedBranchBytes(kimi), std::int64_t{2} * 32768 * (3 * 18432 + 2 * 2048 + 7168) + 2 * 3 * 384 * 7168);
}

TEST(DeviceBranchMemoryTest, PackedExpertsAreExpandedAFewAtATime) {
  const ModelConfig packed =
      Kimi(R"(, "quantization_config": {"quant_method": "compressed-tensors", "format": "pack-quantized",
      "ignore": ["lm_head"], "config_groups": {"g": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int",
      "symmetric": true, "strategy": "group", "group_size": 32}}}})");
  EXPECT_EQ(FixedBranchBytes(packed) - FixedBranchBytes(Kimi("")), 2 * kExpandedExperts * 3 * 2048 * 7168);
}

}  // namespace
}  // namespace draftmill

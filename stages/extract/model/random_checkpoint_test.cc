#include "stages/extract/model/random_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "base/hash.h"
#include "stages/extract/extractor.h"
#include "state/file_system.h"
#include "state/temporary_folder.h"

namespace draftmill {
namespace {

using ::testing::HasSubstr;

constexpr const char* kConfig = R"({"architectures": ["Qwen3ForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
  "num_hidden_layers": 7, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 100,
  "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "tie_word_embeddings": false, "torch_dtype": "bfloat16"})";

class RandomCheckpointTest : public ::testing::Test {
 protected:
  RandomCheckpointTest() { EXPECT_TRUE(files_.WriteAtomically(Path("config.json"), kConfig).ok()); }
  std::string Path(const std::string& name) const { return JoinPath(folder_.path(), name); }

  FileSystem& files_ = RealFileSystem();
  TemporaryFolder folder_;
};

TEST_F(RandomCheckpointTest, IsACheckpointOfItsConfig) {
  ASSERT_TRUE(WriteRandomCheckpoint(Path("config.json"), Path("model"), 7).ok());
  const Result<ModelDescription> model = DescribeModel(Path("model"), {});
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_EQ(model->family, "qwen3");
  EXPECT_EQ(model->vocab_rows, 100);
}

TEST_F(RandomCheckpointTest, TheSeedDecidesTheBytes) {
  const auto digest = [&](const std::string& name, std::uint64_t seed) {
    EXPECT_TRUE(WriteRandomCheckpoint(Path("config.json"), Path(name), seed).ok());
    return ToHex(HashBytes128(files_.ReadAll(JoinPath(Path(name), "model.safetensors")).value()));
  };
  const std::string first = digest("a", 7);
  EXPECT_EQ(digest("b", 7), first);
  EXPECT_NE(digest("c", 8), first);
}

/// Every format, with experts and without: what is written is what the reader of checkpoints expects, tensor by tensor.
TEST_F(RandomCheckpointTest, QuantisedConfigurationsGetTheirFormat) {
  const std::string base =
      R"("hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 7, "num_attention_heads": 4,
      "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 100, "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
      "tie_word_embeddings": false, "torch_dtype": "bfloat16")";
  const std::string int4 =
      R"("quantization_config": {"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head",
      "re:.*self_attn.*"], "config_groups": {"g": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "symmetric": true,
      "strategy": "group", "group_size": 32}}}})";
  const std::string fp8 =
      R"("quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
      "weight_block_size": [24, 20]})";
  const std::vector<std::string> configs = {
      R"({"architectures": ["Qwen3ForCausalLM"], )" + base + ", " + fp8 + "}",
      R"({"architectures": ["Qwen3MoeForCausalLM"], "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, )" +
          base + ", " + int4 + "}",
      R"({"architectures": ["GptOssForCausalLM"], "num_local_experts": 4, "num_experts_per_tok": 2, "quantization_config":
          {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}, )" +
          base + "}"};
  for (std::size_t i = 0; i < configs.size(); ++i) {
    const std::string name = "quantised-" + std::to_string(i);
    ASSERT_TRUE(files_.WriteAtomically(Path("config.json"), configs[i]).ok());
    const Result<std::int64_t> written = WriteRandomCheckpoint(Path("config.json"), Path(name), 7);
    ASSERT_TRUE(written.ok()) << written.status().ToString();
    const Result<ModelDescription> model = DescribeModel(Path(name), {});
    EXPECT_TRUE(model.ok()) << model.status().ToString();
  }
}

TEST_F(RandomCheckpointTest, AFolderWithAModelIsLeftAlone) {
  ASSERT_TRUE(WriteRandomCheckpoint(Path("config.json"), Path("model"), 7).ok());
  const Status status = WriteRandomCheckpoint(Path("config.json"), Path("model"), 8).status();
  EXPECT_EQ(status.code(), StatusCode::kConflict);
  EXPECT_THAT(status.message(), HasSubstr("already holds a model"));
}

TEST_F(RandomCheckpointTest, WeightsWithoutAConfigurationAreLeftAloneToo) {
  ASSERT_TRUE(files_.MakeFolder(Path("model")).ok());
  ASSERT_TRUE(files_.WriteAtomically(JoinPath(Path("model"), "model.safetensors"), "somebody's").ok());
  EXPECT_EQ(WriteRandomCheckpoint(Path("config.json"), Path("model"), 7).status().code(), StatusCode::kConflict);
  EXPECT_EQ(files_.ReadAll(JoinPath(Path("model"), "model.safetensors")).value(), "somebody's");
  EXPECT_FALSE(files_.Exists(JoinPath(Path("model"), "config.json")));
}

}  // namespace
}  // namespace draftmill

#include "stages/extract/device_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "stages/extract/device_support.h"

namespace draftmill {
namespace {

using ::testing::HasSubstr;

ModelConfig Llama() {
  return ParseModelConfig(json::Parse(R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
      "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256})").value(), "config.json").value();
}

ModelDescription Describe(const ModelConfig& config) {
  ModelDescription model;
  model.layers = {2, 16, 29, 32};
  model.hidden_size = 4096;
  model.device_memory = DeviceMemoryOf(config, model.layers);
  return model;
}

TEST(DeviceMemoryTest, WeightsAreCountedAsTheyAreKept) {
  const EngineMemory memory = DeviceMemoryOf(Llama(), {2, 16, 29, 32});
  // 7.5 G parameters below the head, two bytes each; vectors take six.
  EXPECT_NEAR(static_cast<double>(memory.resident_bytes), 15.0e9, 0.05e9);
  // Layers above the last captured one are not loaded.
  EXPECT_LT(DeviceMemoryOf(Llama(), {2, 16}).resident_bytes, memory.resident_bytes * 6 / 10);
}

TEST(DeviceMemoryTest, BatchesShrinkToWhatIsFree) {
  const ModelDescription model = Describe(Llama());
  ExtractOptions options;
  options.device_bytes = std::int64_t{140} << 30;
  EXPECT_EQ(ResolveDeviceSizes(model, options)->batch_tokens, 32768);
  options.device_bytes = std::int64_t{22} << 30;
  const ExtractSizes small = ResolveDeviceSizes(model, options).value();
  EXPECT_LT(small.batch_tokens, 32768);
  EXPECT_EQ(small.block_tokens, small.batch_tokens);
  options.device_bytes = std::int64_t{140} << 30;
  options.memory_bytes = std::int64_t{2} << 30;  // three batches of 32 KiB a token must fit on the host
  EXPECT_EQ(ResolveDeviceSizes(model, options)->batch_tokens, 16384);
}

TEST(DeviceMemoryTest, AModelThatDoesNotFitIsRefusedWithBothNumbers) {
  ExtractOptions options;
  options.device_bytes = std::int64_t{16} << 30;
  const Status status = ResolveDeviceSizes(Describe(Llama()), options).status();
  EXPECT_EQ(status.code(), StatusCode::kOutOfMemory);
  EXPECT_THAT(status.message(), HasSubstr(std::to_string(options.device_bytes)));
}

TEST(DeviceSupportTest, WhatIsNotRunIsNamed) {
  EXPECT_TRUE(CheckDeviceSupports(Llama()).ok());
  ModelConfig config = Llama();
  config.attention_softcap = 50;
  EXPECT_THAT(CheckDeviceSupports(config).message(), HasSubstr("soft cap"));
  config = Llama();
  config.experts.emplace();
  EXPECT_THAT(CheckDeviceSupports(config).message(), HasSubstr("routed experts"));
  config = Llama();
  config.quantization.method = QuantizationMethod::kPackedInt4;
  EXPECT_THAT(CheckDeviceSupports(config).message(), HasSubstr("quantised weights"));
  config = Llama();
  config.head_dim = 20;
  EXPECT_EQ(CheckDeviceSupports(config).code(), StatusCode::kUnsupported);
}

}  // namespace
}  // namespace draftmill

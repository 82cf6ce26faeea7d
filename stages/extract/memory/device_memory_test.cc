#include "stages/extract/memory/device_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "stages/extract/model/device_support.h"

namespace draftmill {
namespace {

using ::testing::HasSubstr;

ModelConfig Llama() {
  return ParseModelConfig(
             json::Parse(R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
      "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256})")
                 .value(),
             "config.json")
      .value();
}

TEST(DeviceMemoryTest, WeightsAreCountedAsTheyAreKept) {
  const EngineMemory memory = DeviceMemoryOf(Llama(), {2, 16, 29, 32});
  // 7.5 G parameters below the head, two bytes each; vectors take six.
  EXPECT_NEAR(static_cast<double>(memory.resident_bytes), 15.0e9, 0.05e9);
  EXPECT_EQ(memory.resident_bytes, memory.shared_bytes + 32 * memory.layer_bytes);
  // Layers above the last captured one are not loaded.
  EXPECT_LT(DeviceMemoryOf(Llama(), {2, 16}).resident_bytes, memory.resident_bytes * 6 / 10);
}

TEST(DeviceSupportTest, WhatIsNotRunIsNamed) {
  EXPECT_TRUE(CheckDeviceSupports(Llama()).ok());
  ModelConfig config = Llama();
  config.head_dim = 512;
  EXPECT_THAT(CheckDeviceSupports(config).message(), HasSubstr("more than 256"));
  config = Llama();
  config.experts.emplace().experts = 4096;
  EXPECT_THAT(CheckDeviceSupports(config).message(), HasSubstr("2,048 experts"));
  config = Llama();
  config.hidden_size = 32768;
  EXPECT_EQ(CheckDeviceSupports(config).code(), StatusCode::kUnsupported);
}

}  // namespace
}  // namespace draftmill

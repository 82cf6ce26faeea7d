// The decoder's product paths against each other: machines take one of them, tests run all.
#include "stages/extract/block_decoder.h"

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "stages/extract/cpu_memory.h"
#include "stages/extract/model_folder.h"
#include "stages/extract/test_checkpoint.h"

namespace draftmill {
namespace {

constexpr std::int64_t kHidden = 48;

/// A Qwen3 shape with biases: norms of heads and biases of products at once.
json::Value SmallModel() {
  return json::Parse(R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 48,
    "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16,
    "rms_norm_eps": 1e-6, "vocab_size": 100, "max_position_embeddings": 4096, "tie_word_embeddings": true,
    "attention_bias": true, "rope_theta": 10000.0, "torch_dtype": "bfloat16"})").value();
}

/// Three sequences, the longest of more than one attention task and tile.
PackedBlock Block(std::vector<float>& states) {
  PackedBlock block;
  for (const std::int64_t length : {1, 1100, 40}) {
    block.sequences.push_back({block.tokens, length});
    for (std::int64_t t = 0; t < length; ++t) {
      block.input_ids.push_back(static_cast<std::int32_t>((t * 13 + length) % 100));
    }
    block.tokens += length;
  }
  states.resize(static_cast<std::size_t>(block.tokens * kHidden));
  for (std::int64_t first = 0; first < block.tokens; first += kTileRows) {
    PackedTile tile{first, std::min(kTileRows, block.tokens - first)};
    tile.capture_float = states.data() + first * kHidden;
    block.tiles.push_back(tile);
  }
  return block;
}

template <typename T, typename W>
std::vector<float> FinalStates(ModelFolder model, ComputeType compute) {
  model.config.compute = compute;
  auto store = WeightStore<W>::Open(model, {WeightPolicy::kResident});
  EXPECT_TRUE(store.ok()) << store.status().ToString();
  DecoderOptions options;
  options.threads = 2;
  options.layers = {2};
  const auto decoder = MakeBlockDecoder<T, W>(model.config, std::move(store).value(), options);
  std::vector<float> states;
  const PackedBlock block = Block(states);
  EXPECT_TRUE(decoder->Run(block, {}).ok());
  return states;
}

/// Relative L2 error of each token, the mean over all.
double MeanError(const std::vector<float>& states, const std::vector<float>& exact) {
  double total = 0;
  const std::size_t tokens = exact.size() / kHidden;
  for (std::size_t t = 0; t < tokens; ++t) {
    double difference = 0;
    double norm = 0;
    for (std::size_t i = t * kHidden; i < (t + 1) * kHidden; ++i) {
      difference += std::pow(static_cast<double>(states[i]) - static_cast<double>(exact[i]), 2);
      norm += std::pow(static_cast<double>(exact[i]), 2);
    }
    total += std::sqrt(difference / norm);
  }
  return total / static_cast<double>(tokens);
}

TEST(BlockDecoder, BothBfloat16PathsAreEquallyNearToFloat32) {
  const TestCheckpoint checkpoint(SmallModel());
  auto model = OpenModelFolder(checkpoint.folder(), {2});
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  const std::vector<float> exact = FinalStates<float, float>(*model, ComputeType::kFloat32);
  const double widened = MeanError(FinalStates<float, Bf16>(*model, ComputeType::kBfloat16), exact);
  const double narrow = MeanError(FinalStates<Bf16, Bf16>(*model, ComputeType::kBfloat16), exact);
  EXPECT_GT(widened, 1e-4);
  EXPECT_LT(widened, 1e-2);
  EXPECT_GT(narrow, 1e-4);
  EXPECT_NEAR(narrow, widened, widened * 0.1);
}

}  // namespace
}  // namespace draftmill

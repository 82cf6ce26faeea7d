// The decoder's product paths against each other: machines take one of them, tests run all.
#include "stages/extract/cpu/block_decoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "stages/extract/memory/cpu_memory.h"
#include "stages/extract/model/model_folder.h"
#include "stages/extract/model/test_checkpoint.h"
#include "stages/extract/model/test_models.h"

namespace draftmill {
namespace {

/// A Qwen3 shape with biases: norms of heads and biases of products at once.
json::Value SmallModel() {
  return json::Parse(R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 48,
    "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16,
    "rms_norm_eps": 1e-6, "vocab_size": 100, "max_position_embeddings": 4096, "tie_word_embeddings": true,
    "attention_bias": true, "rope_theta": 10000.0, "torch_dtype": "bfloat16"})")
      .value();
}

/// Three sequences, the middle one the longest. One layer is captured.
PackedBlock Block(std::int64_t longest, std::int64_t hidden, std::vector<float>& states) {
  PackedBlock block;
  for (const std::int64_t length : {std::int64_t{1}, longest, std::int64_t{40}}) {
    block.sequences.push_back({block.tokens, length});
    for (std::int64_t t = 0; t < length; ++t)
      block.input_ids.push_back(static_cast<std::int32_t>((t * 13 + length) % 100));
    block.tokens += length;
  }
  states.resize(static_cast<std::size_t>(block.tokens * hidden));
  for (std::int64_t first = 0; first < block.tokens; first += kTileRows) {
    PackedTile tile{first, std::min(kTileRows, block.tokens - first)};
    tile.capture_float = states.data() + first * hidden;
    block.tiles.push_back(tile);
  }
  return block;
}

template <typename T, typename W>
std::vector<float> FinalStates(ModelFolder model, ComputeType compute, std::int64_t longest) {
  model.config.compute = compute;
  auto store = WeightStore<W>::Open(model, {WeightPolicy::kResident});
  EXPECT_TRUE(store.ok()) << store.status().ToString();
  DecoderOptions options;
  options.threads = 2;
  options.layers = {static_cast<std::int32_t>(model.config.num_layers)};
  const auto decoder = MakeBlockDecoder<T, W>(model.config, std::move(store).value(), options);
  std::vector<float> states;
  const PackedBlock block = Block(longest, model.config.hidden_size, states);
  EXPECT_TRUE(decoder->Run(block, {}).ok());
  return states;
}

/// Relative L2 errors of the tokens.
std::vector<double> Errors(const std::vector<float>& states, const std::vector<float>& exact, std::int64_t hidden) {
  std::vector<double> errors;
  const std::int64_t tokens = static_cast<std::int64_t>(exact.size()) / hidden;
  for (std::int64_t t = 0; t < tokens; ++t) {
    double difference = 0;
    double norm = 0;
    for (std::int64_t i = t * hidden; i < (t + 1) * hidden; ++i) {
      const auto at = static_cast<std::size_t>(i);
      difference += std::pow(static_cast<double>(states[at]) - static_cast<double>(exact[at]), 2);
      norm += std::pow(static_cast<double>(exact[at]), 2);
    }
    errors.push_back(std::sqrt(difference / norm));
  }
  return errors;
}

double Mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// The two ways to compute a bfloat16 model lie equally far from its float32 form. The median tells how far rounding alone takes
/// a token: a mean also counts those for which a router's near tie falls the other way.
void ExpectEqualPaths(const json::Value& config, std::int64_t longest, double tolerance) {
  const TestCheckpoint checkpoint(config);
  auto model = OpenModelFolder(checkpoint.folder(), {0});
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  const std::int64_t hidden = model->config.hidden_size;
  const std::vector<float> exact = FinalStates<float, float>(*model, ComputeType::kFloat32, longest);
  const auto widened = Errors(FinalStates<float, Bf16>(*model, ComputeType::kBfloat16, longest), exact, hidden);
  const auto narrow = Errors(FinalStates<Bf16, Bf16>(*model, ComputeType::kBfloat16, longest), exact, hidden);
  EXPECT_GT(Median(widened), 1e-4);
  EXPECT_LT(Median(widened), 2e-2);
  EXPECT_NEAR(Median(narrow), Median(widened), Median(widened) * tolerance);
  EXPECT_NEAR(Mean(narrow), Mean(widened), Mean(widened) * tolerance);
}

/// More than one attention task and tile.
TEST(BlockDecoder, BothBfloat16PathsAreEquallyNearToFloat32) { ExpectEqualPaths(SmallModel(), 1100, 0.1); }

class BlockDecoderOfFamily : public ::testing::TestWithParam<TestModel> {};

INSTANTIATE_TEST_SUITE_P(Families, BlockDecoderOfFamily, ::testing::ValuesIn(kTestModels),
                         [](const auto& model_info) { return std::string(model_info.param.name); });

/// Routers flip at near ties, so that models with experts differ a little more.
TEST_P(BlockDecoderOfFamily, BothBfloat16PathsAreEquallyNearToFloat32) {
  ExpectEqualPaths(json::Parse(GetParam().config).value(), 150, 0.25);
}

}  // namespace
}  // namespace draftmill

#include "stages/extract/extractor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "stages/extract/model/test_checkpoint.h"

namespace draftmill {
namespace {

using ::testing::HasSubstr;

json::Value SmallLlama() {
  return json::Parse(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 48,
    "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5, "vocab_size": 100, "max_position_embeddings": 4096, "tie_word_embeddings": true,
    "rope_theta": 10000.0, "torch_dtype": "bfloat16"})")
      .value();
}

/// A chunk of samples with the given lengths; ids follow from the place.
TokenizedChunk Chunk(const std::vector<std::int64_t>& lengths) {
  TokenizedChunk chunk;
  chunk.chunk = 3;
  chunk.cu_seqlens.push_back(0);
  for (const std::int64_t length : lengths) {
    for (std::int64_t t = 0; t < length; ++t) {
      chunk.input_ids.push_back(static_cast<std::int32_t>((t * 7 + chunk.samples() * 31) % 97));
      chunk.loss_mask.push_back(1);
    }
    chunk.sample_id.push_back(100 + chunk.samples());
    chunk.variant.push_back(0);
    chunk.cu_seqlens.push_back(chunk.tokens());
  }
  return chunk;
}

/// DeepSeek's layers: latent attention; a dense layer, then routed and shared experts.
json::Value SmallDeepseek() {
  return json::Parse(R"({"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_size": 48,
    "intermediate_size": 80, "moe_intermediate_size": 24, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 6, "q_lora_rank": 32, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8,
    "v_head_dim": 12, "n_routed_experts": 12, "num_experts_per_tok": 3, "n_shared_experts": 1, "first_k_dense_replace": 1,
    "n_group": 3, "topk_group": 2, "norm_topk_prob": true, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid",
    "topk_method": "noaux_tc", "rms_norm_eps": 1e-5, "vocab_size": 100, "max_position_embeddings": 4096,
    "tie_word_embeddings": false, "rope_theta": 10000.0, "torch_dtype": "bfloat16"})")
      .value();
}

class ExtractorTest : public ::testing::Test {
 protected:
  explicit ExtractorTest(json::Value model = SmallLlama())
      : checkpoint_(std::move(model)), chunk_(Chunk({5, 1, 300, 1200, 64, 2, 700, 33, 1, 90})) {
    options_.model_folder = checkpoint_.folder();
    options_.layers = {0, 2, 3};
    options_.device = "cpu";  // also on a machine with a GPU
    plan_ = PlanChunk(chunk_.cu_seqlens, {1300, 2000, std::int64_t{1} << 40, 3 * 48 * 2}).value();
  }

  /// States of every batch of the plan, block by block.
  std::map<std::int32_t, BatchStates> Extract(const ExtractOptions& options) const {
    auto extractor = Extractor::Create(options);
    EXPECT_TRUE(extractor.ok()) << extractor.status().ToString();
    std::map<std::int32_t, BatchStates> all;
    for (std::size_t block = 0; block < plan_.blocks.size(); ++block) {
      const Status status = (*extractor)
                                ->ExtractBlock(Request(static_cast<std::int64_t>(block)),
                                               [&](BatchStates states) {
                                                 const std::int32_t batch = states.batch;
                                                 all.emplace(batch, std::move(states));
                                                 return OkStatus();
                                               },
                                               {});
      EXPECT_TRUE(status.ok()) << status.ToString();
    }
    return all;
  }

  void ExpectTheSameOfAnyThreads() {
    const auto one = Extract(options_);
    for (const int threads : {2, 4}) {
      options_.threads = threads;
      const auto other = Extract(options_);
      for (const auto& [batch, states] : one)
        EXPECT_EQ(other.at(batch).hidden_states, states.hidden_states) << threads << " threads, batch " << batch;
    }
  }

  /// Each batch asked for alone comes out, and nothing else, with the bits that it has in its whole block.
  void ExpectTheSameOfEachBatchAlone() {
    const auto whole = Extract(options_);
    const auto extractor = Extractor::Create(options_).value();
    for (std::size_t block = 0; block < plan_.blocks.size(); ++block) {
      BlockRequest request = Request(static_cast<std::int64_t>(block));
      for (const std::int64_t batch : std::exchange(request.batches, {})) {
        request.batches = {batch};
        std::vector<BatchStates> emitted;
        const auto take = [&emitted](BatchStates states) {
          emitted.push_back(std::move(states));
          return OkStatus();
        };
        ASSERT_TRUE(extractor->ExtractBlock(request, take, {}).ok());
        ASSERT_EQ(emitted.size(), 1U);
        EXPECT_EQ(emitted[0].batch, batch);
        EXPECT_EQ(emitted[0].hidden_states, whole.at(emitted[0].batch).hidden_states);
      }
    }
  }

  BlockRequest Request(std::int64_t block) const {
    BlockRequest request{&chunk_, &plan_, block, {}};
    const PlanRange range = plan_.blocks[static_cast<std::size_t>(block)];
    for (std::int64_t i = 0; i < range.count; ++i) request.batches.push_back(range.first + i);
    return request;
  }

  TestCheckpoint checkpoint_;
  TokenizedChunk chunk_;
  ExtractOptions options_;
  ChunkPlan plan_;
};

TEST_F(ExtractorTest, IdentityTravelsWithTheStates) {
  const auto all = Extract(options_);
  ASSERT_EQ(all.size(), plan_.batches.size());
  ASSERT_GT(plan_.blocks.size(), 1U);
  for (const auto& [batch, states] : all) {
    const PlanRange range = plan_.batches[static_cast<std::size_t>(batch)];
    ASSERT_EQ(static_cast<std::int64_t>(states.keys.size()), range.count);
    for (std::size_t i = 0; i < states.keys.size(); ++i) {
      const auto sample = static_cast<std::size_t>(plan_.order[static_cast<std::size_t>(range.first) + i]);
      EXPECT_EQ(states.keys[i].sample_id, chunk_.sample_id[sample]);
      const std::int64_t begin = chunk_.cu_seqlens[sample];
      EXPECT_EQ(states.token_hashes[i], TokenHash(chunk_.input_ids.data() + begin, chunk_.loss_mask.data() + begin,
                                                  chunk_.cu_seqlens[sample + 1] - begin));
    }
    EXPECT_EQ(states.hidden_states.size(),
              static_cast<std::size_t>(plan_.batch_tokens[static_cast<std::size_t>(batch)] * 3 * 48));
    EXPECT_EQ(states.chunk, 3);
  }
}

TEST_F(ExtractorTest, AnyNumberOfThreadsGivesTheSameBits) { ExpectTheSameOfAnyThreads(); }

TEST_F(ExtractorTest, APartOfABlockGivesTheSameBits) { ExpectTheSameOfEachBatchAlone(); }

class ExpertExtractorTest : public ExtractorTest {
 protected:
  ExpertExtractorTest() : ExtractorTest(SmallDeepseek()) {}
};

TEST_F(ExpertExtractorTest, AnyNumberOfThreadsGivesTheSameBits) { ExpectTheSameOfAnyThreads(); }

/// Experts take rows of the whole block, so the batches that nobody asked for are computed all the same.
TEST_F(ExpertExtractorTest, APartOfABlockGivesTheSameBits) { ExpectTheSameOfEachBatchAlone(); }

TEST_F(ExtractorTest, EveryBatchCarriesItsOwnCheck) {
  const auto all = Extract(options_);
  std::int64_t positions = 0;
  for (const auto& [batch, states] : all) {
    ASSERT_EQ(states.check.mean_norms.size(), 3U);
    double sum = 0;
    std::int64_t tokens = 0;
    for (std::size_t row = 0; row < states.hidden_states.size(); row += 3 * 48, ++tokens) {
      double squares = 0;
      for (std::size_t i = row + 2 * 48; i < row + 3 * 48; ++i)
        squares += std::pow(static_cast<double>(ToFloat(Bf16{states.hidden_states[i]})), 2);
      sum += std::sqrt(squares);
    }
    EXPECT_NEAR(states.check.mean_norms[2], sum / static_cast<double>(tokens),
                sum / static_cast<double>(tokens) * 1e-5);
    positions += states.check.agreement.positions;
    EXPECT_LE(states.check.agreement.positions, kCheckedPositions);
  }
  EXPECT_GT(positions, 0);
  options_.layers = {0, 2};
  for (const auto& [batch, states] : Extract(options_))
    EXPECT_EQ(states.check.agreement.positions, 0) << "without x_n there is nothing to read";
}

TEST_F(ExtractorTest, SamplesDoNotSeeEachOther) {
  const auto before = Extract(options_);
  const std::int64_t first = chunk_.cu_seqlens[3];
  chunk_.input_ids[static_cast<std::size_t>(first)] += 1;
  const auto after = Extract(options_);
  int changed = 0;
  for (const auto& [batch, states] : before) {
    std::int64_t offset = 0;
    for (const SampleKey& key : states.keys) {
      const auto sample = static_cast<std::size_t>(key.sample_id - 100);
      const std::int64_t count = (chunk_.cu_seqlens[sample + 1] - chunk_.cu_seqlens[sample]) * 3 * 48;
      const bool same = std::equal(states.hidden_states.begin() + offset, states.hidden_states.begin() + offset + count,
                                   after.at(batch).hidden_states.begin() + offset);
      EXPECT_EQ(same, sample != 3) << sample;
      changed += same ? 0 : 1;
      offset += count;
    }
  }
  EXPECT_EQ(changed, 1);
}

TEST_F(ExtractorTest, SamplesWithBadStatesAreQuarantined) {
  checkpoint_.WriteWeights([](const std::string& name, std::vector<Bf16>& values) {
    if (name == "model.embed_tokens.weight") values[96 * 48 + 5].bits = 0x7fc0;  // token 96 occurs in long samples only
  });
  const auto all = Extract(options_);
  int bad = 0;
  for (const auto& [batch, states] : all) {
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < states.keys.size(); ++i) {
      const auto sample = static_cast<std::size_t>(states.keys[i].sample_id - 100);
      const std::int64_t begin = chunk_.cu_seqlens[sample];
      const std::int64_t end = chunk_.cu_seqlens[sample + 1];
      const bool has_token = std::find(chunk_.input_ids.begin() + begin, chunk_.input_ids.begin() + end, 96) !=
                             chunk_.input_ids.begin() + end;
      EXPECT_EQ(states.sample_state[i], has_token ? 1 : 0) << sample;
      const auto first = states.hidden_states.begin() + offset;
      const bool zero =
          std::all_of(first, first + (end - begin) * 3 * 48, [](std::uint16_t bits) { return bits == 0; });
      EXPECT_EQ(zero, has_token);
      bad += has_token ? 1 : 0;
      offset += (end - begin) * 3 * 48;
    }
  }
  EXPECT_GT(bad, 0);
  EXPECT_LT(bad, 10);
}

TEST_F(ExtractorTest, ATokenBeyondTheEmbeddingIsRefusedByName) {
  chunk_.input_ids[0] = 100;
  auto extractor = Extractor::Create(options_).value();
  std::string message;
  for (std::size_t block = 0; block < plan_.blocks.size(); ++block) {
    message +=
        extractor->ExtractBlock(Request(static_cast<std::int64_t>(block)), [](BatchStates) { return OkStatus(); }, {})
            .message();
  }
  EXPECT_THAT(message, HasSubstr("sample 100/0"));
  EXPECT_THAT(message, HasSubstr("token id 100"));
}

TEST_F(ExtractorTest, StopsBetweenLayers) {
  auto extractor = Extractor::Create(options_).value();
  int asked = 0;
  const Status status = extractor->ExtractBlock(
      Request(0), [](BatchStates) { return Internal("nothing may be emitted"); }, [&] { return ++asked == 2; });
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
}

TEST_F(ExtractorTest, AFailureOfEmitEndsTheCall) {
  auto extractor = Extractor::Create(options_).value();
  int emitted = 0;
  const Status status = extractor->ExtractBlock(Request(0),
                                                [&](BatchStates) {
                                                  ++emitted;
                                                  return DiskFull("full");
                                                },
                                                {});
  EXPECT_EQ(status.code(), StatusCode::kDiskFull);
  EXPECT_EQ(emitted, 1);
}

TEST_F(ExtractorTest, MemoryLimitsAreKept) {
  options_.memory_bytes = 1000;
  const auto refused = Extractor::Create(options_);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kOutOfMemory);
  EXPECT_THAT(refused.status().message(), HasSubstr("limits.memory"));
}

TEST_F(ExtractorTest, StreamedWeightsGiveTheSameBits) {
  const auto resident = Extract(options_);
  options_.weights = "streamed";
  const auto streamed = Extract(options_);
  ASSERT_EQ(streamed.size(), resident.size());
  for (const auto& [batch, states] : resident)
    EXPECT_EQ(streamed.at(batch).hidden_states, states.hidden_states) << batch;
}

TEST_F(ExtractorTest, DigestFollowsTheWeights) {
  const std::string digest = Extractor::Create(options_).value()->weights_digest();
  EXPECT_EQ(Extractor::Create(options_).value()->weights_digest(), digest);
  checkpoint_.WriteWeights([](const std::string& name, std::vector<Bf16>& values) {
    if (name == "model.layers.2.mlp.down_proj.weight") values[9].bits ^= 1;
  });
  EXPECT_NE(Extractor::Create(options_).value()->weights_digest(), digest);
}

TEST_F(ExtractorTest, FusedNumericsDifferAndSayso) {
  const auto hf = Extract(options_);
  options_.numerics = "fused";
  EXPECT_NE(Extract(options_).at(0).hidden_states, hf.at(0).hidden_states);
  EXPECT_THAT(Extractor::Create(options_).value()->numerics_environment(), HasSubstr("numerics fused"));
}

TEST_F(ExtractorTest, WithoutAGpuCudaIsRefusedWithTheReason) {
  options_.device = "cuda";
  const auto extractor = Extractor::Create(options_);
  if (extractor.ok()) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_EQ(extractor.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(extractor.status().message(), HasSubstr("extract.device is cuda: "));
  EXPECT_THAT(extractor.status().message(), HasSubstr("Nothing was started"));
}

TEST_F(ExtractorTest, TheGpuEngineRefusesFloat32) {
  options_.device = "cuda";
  options_.dtype = "float32";
  EXPECT_THAT(Extractor::Create(options_).status().message(), HasSubstr("float32"));
}

TEST_F(ExtractorTest, RefusesUnknownWords) {
  options_.device = "elsewhere";
  EXPECT_EQ(Extractor::Create(options_).status().code(), StatusCode::kInvalidConfig);
  options_.device = "cpu";
  options_.weights = "elsewhere";
  EXPECT_EQ(Extractor::Create(options_).status().code(), StatusCode::kInvalidConfig);
}

}  // namespace
}  // namespace draftmill

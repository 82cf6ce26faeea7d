#include "stages/extract/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/test_data.h"

namespace draftmill {
namespace {

std::vector<std::int64_t> Boundaries(const std::vector<std::int64_t>& lengths) {
  std::vector<std::int64_t> cu_seqlens{0};
  for (const std::int64_t length : lengths) cu_seqlens.push_back(cu_seqlens.back() + length);
  return cu_seqlens;
}

/// Lengths as conversations have them: log-normal, mean about 330, a long tail cut at `longest`.
std::vector<std::int64_t> RealisticLengths(std::size_t count, std::int64_t longest, unsigned seed) {
  std::mt19937 random(seed);
  std::lognormal_distribution<double> length(5.5, 0.8);
  std::vector<std::int64_t> lengths(count);
  for (auto& value : lengths) value = std::clamp<std::int64_t>(static_cast<std::int64_t>(length(random)), 1, longest);
  return lengths;
}

/// Everything that holds for every plan.
void CheckPlan(const std::vector<std::int64_t>& lengths, const PlanParameters& parameters, const ChunkPlan& plan) {
  std::vector<std::int64_t> sorted = plan.order;
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::int64_t> all(lengths.size());
  std::iota(all.begin(), all.end(), 0);
  ASSERT_EQ(sorted, all) << "every sample exactly once";

  std::int64_t next_sample = 0;
  std::int64_t last_first = -1;
  ASSERT_EQ(plan.batches.size(), plan.batch_tokens.size());
  for (std::size_t b = 0; b < plan.batches.size(); ++b) {
    const PlanRange batch = plan.batches[b];
    ASSERT_EQ(batch.first, next_sample);
    ASSERT_GT(batch.count, 0);
    next_sample += batch.count;
    std::int64_t tokens = 0;
    for (std::int64_t i = batch.first; i < next_sample; ++i)
      tokens += lengths[static_cast<std::size_t>(plan.order[static_cast<std::size_t>(i)])];
    EXPECT_EQ(tokens, plan.batch_tokens[b]);
    if (batch.count > 1) {
      EXPECT_LE(tokens, parameters.batch_tokens) << "only a sample alone may pass the budget";
    }
    const std::int64_t first = plan.order[static_cast<std::size_t>(batch.first)];
    EXPECT_GT(first, last_first) << "batches stand by their first sample";
    last_first = first;
  }
  ASSERT_EQ(next_sample, static_cast<std::int64_t>(lengths.size()));

  const auto tokens_of = [&](PlanRange range) {
    return std::accumulate(plan.batch_tokens.begin() + range.first,
                           plan.batch_tokens.begin() + range.first + range.count, std::int64_t{0});
  };
  std::int64_t next_batch = 0;
  for (const PlanRange& shard : plan.shards) {
    ASSERT_EQ(shard.first, next_batch);
    next_batch += shard.count;
    if (shard.count > 1) {
      EXPECT_LE(tokens_of(shard) * parameters.bytes_per_token, parameters.shard_bytes);
    }
  }
  ASSERT_EQ(next_batch, static_cast<std::int64_t>(plan.batches.size()));
  next_batch = 0;
  for (const PlanRange& block : plan.blocks) {
    ASSERT_EQ(block.first, next_batch);
    next_batch += block.count;
    if (block.count > 1) {
      EXPECT_LE(tokens_of(block), parameters.block_tokens);
    }
  }
  ASSERT_EQ(next_batch, static_cast<std::int64_t>(plan.batches.size()));
}

TEST(Plan, HoldsItsPromisesForRandomLengths) {
  std::mt19937 random(11);
  for (unsigned trial = 0; trial < 200; ++trial) {
    const std::size_t count = random() % 300;
    const auto lengths = RealisticLengths(count, 1 + static_cast<std::int64_t>(random() % 5000), trial);
    const PlanParameters parameters{1 + static_cast<std::int64_t>(random() % 4000),
                                    1 + static_cast<std::int64_t>(random() % 20000),
                                    1 + static_cast<std::int64_t>(random() % 40'000'000), 4608};
    const auto plan = PlanChunk(Boundaries(lengths), parameters);
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    CheckPlan(lengths, parameters, *plan);
  }
}

/// The share of the batches' budgets that samples take.
double Fill(const std::vector<std::int64_t>& lengths, std::int64_t budget) {
  const auto plan = PlanChunk(Boundaries(lengths), {budget, budget * 4, std::int64_t{1} << 30, 4608});
  EXPECT_TRUE(plan.ok());
  if (!plan.ok()) return 0;
  const double tokens = static_cast<double>(std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}));
  return tokens / (static_cast<double>(budget) * static_cast<double>(plan->batches.size()));
}

TEST(Plan, FillsBatchesOnRealisticLengths) {
  for (const std::int64_t budget : {4096, 8192, 32768})
    EXPECT_GE(Fill(RealisticLengths(4096, budget, 5), budget), 0.98) << budget;
}

/// Four bytes of a published row for a token. A chunk holds up to 4,096 rows, so the same ones come several times.
TEST(Plan, FillsBatchesOnRealLengthMixes) {
  DRAFTMILL_TEST_DATA_OR_SKIP(folder, "conversations");
  std::vector<std::int64_t> lengths;
  for (const char* const name :
       {"eagle_bench/mt_bench.jsonl", "llamafactory/v1_sft_demo.jsonl", "llamafactory/reason_tool_use_demo_50.jsonl"}) {
    std::ifstream file(folder + "/" + name);
    for (std::string line; std::getline(file, line);) lengths.push_back(static_cast<std::int64_t>(line.size() / 4 + 1));
  }
  ASSERT_GT(lengths.size(), 300U);
  const std::size_t rows = lengths.size();
  while (lengths.size() + rows <= 4096)
    lengths.insert(lengths.end(), lengths.begin(), lengths.begin() + static_cast<std::ptrdiff_t>(rows));
  std::shuffle(lengths.begin(), lengths.end(), std::mt19937(3));
  for (const std::int64_t budget : {4096, 8192, 32768}) EXPECT_GE(Fill(lengths, budget), 0.98) << budget;
}

TEST(Plan, ALongSampleGoesAlone) {
  const std::vector<std::int64_t> lengths{10, 5000, 20, 30};
  const auto plan = PlanChunk(Boundaries(lengths), {100, 200, 1 << 20, 8});
  ASSERT_TRUE(plan.ok());
  ASSERT_EQ(plan->batches.size(), 2U);
  EXPECT_EQ(plan->order, (std::vector<std::int64_t>{0, 2, 3, 1}));
  EXPECT_EQ(plan->batch_tokens, (std::vector<std::int64_t>{60, 5000}));
}

/// Four states of a model with 7,168 dims fill a gibibyte with 18,724 tokens, and its experts want blocks of 262,144.
TEST(Plan, BlocksAreAsLargeAsAskedHoweverSmallTheShards) {
  const auto lengths = RealisticLengths(4096, 4096, 3);
  const PlanParameters large{32768, 262144, std::int64_t{1} << 40, 57344};
  PlanParameters small = large;
  small.shard_bytes = std::int64_t{1} << 30;
  const auto one_shard = PlanChunk(Boundaries(lengths), large);
  const auto many_shards = PlanChunk(Boundaries(lengths), small);
  ASSERT_TRUE(one_shard.ok() && many_shards.ok());
  EXPECT_EQ(one_shard->shards.size(), 1U);
  EXPECT_EQ(many_shards->shards.size(), many_shards->batches.size());
  EXPECT_GE(many_shards->blocks.front().count, 8);
  EXPECT_EQ(many_shards->blocks, one_shard->blocks) << "how files are cut does not change what is computed";
}

TEST(Plan, SeveralWindowsKeepTheirSamplesApart) {
  const auto lengths = RealisticLengths(9000, 2000, 3);
  const PlanParameters parameters{8192, 32768, std::int64_t{64} << 20, 4608};
  const auto plan = PlanChunk(Boundaries(lengths), parameters);
  ASSERT_TRUE(plan.ok());
  CheckPlan(lengths, parameters, *plan);
}

TEST(Plan, AnEmptyChunkHasAnEmptyPlan) {
  const auto plan = PlanChunk(Boundaries({}), {100, 200, 1 << 20, 8});
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(plan->batches.empty());
  EXPECT_TRUE(plan->blocks.empty());
  EXPECT_TRUE(plan->shards.empty());
}

TEST(Plan, HashTellsLengthsAndParametersApart) {
  const auto lengths = RealisticLengths(100, 2000, 3);
  const PlanParameters parameters{4096, 16384, 1 << 26, 4608};
  const Hash128 hash = PlanChunk(Boundaries(lengths), parameters)->plan_hash;
  EXPECT_EQ(PlanChunk(Boundaries(lengths), parameters)->plan_hash, hash);
  auto other_lengths = lengths;
  other_lengths[50] += 1;
  EXPECT_NE(PlanChunk(Boundaries(other_lengths), parameters)->plan_hash, hash);
  for (int i = 0; i < 4; ++i) {
    PlanParameters other = parameters;
    std::int64_t* fields[] = {&other.batch_tokens, &other.block_tokens, &other.shard_bytes, &other.bytes_per_token};
    *fields[i] += 1;
    EXPECT_NE(PlanChunk(Boundaries(lengths), other)->plan_hash, hash) << "parameter " << i;
  }
}

TEST(Plan, RefusesImpossibleInput) {
  EXPECT_FALSE(PlanChunk(Boundaries({3}), {0, 1, 1, 1}).ok());
  EXPECT_FALSE(PlanChunk(Boundaries({3}), {1, 1, 1, 0}).ok());
  EXPECT_FALSE(PlanChunk(std::vector<std::int64_t>{}, {1, 1, 1, 1}).ok());
  EXPECT_FALSE(PlanChunk(std::vector<std::int64_t>{0, 3, 3}, {1, 1, 1, 1}).ok());
}

}  // namespace
}  // namespace draftmill

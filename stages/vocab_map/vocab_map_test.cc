#include "stages/vocab_map/vocab_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "formats/tokenized_chunk_example.h"

namespace draftmill {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// One sample per source with these supervised ids, each after an unsupervised id 0.
TokenizedChunk ChunkOf(const std::vector<std::vector<std::int32_t>>& supervised_by_source) {
  TokenizedChunk chunk = ExampleChunk(0, {});
  for (std::size_t source = 0; source < supervised_by_source.size(); ++source) {
    chunk.input_ids.push_back(0);
    chunk.loss_mask.push_back(0);
    for (const std::int32_t id : supervised_by_source[source]) {
      chunk.input_ids.push_back(id);
      chunk.loss_mask.push_back(1);
    }
    chunk.cu_seqlens.push_back(chunk.tokens());
    chunk.sample_id.push_back(static_cast<std::int64_t>(source));
    chunk.variant.push_back(0);
    chunk.source.push_back(static_cast<std::int32_t>(source));
  }
  return chunk;
}

VocabCounter Counted(std::int64_t rows, const std::vector<std::vector<std::int32_t>>& supervised_by_source) {
  VocabCounter counter(rows, static_cast<std::int32_t>(supervised_by_source.size()));
  EXPECT_TRUE(counter.Count(ChunkOf(supervised_by_source)).ok());
  return counter;
}

std::vector<std::int64_t> TargetIds(const VocabMap& map) {
  std::vector<std::int64_t> ids;
  for (std::size_t i = 0; i < map.d2t.size(); ++i) ids.push_back(static_cast<std::int64_t>(i) + map.d2t[i]);
  return ids;
}

TEST(VocabMap, CountsOnlySupervisedTokensBySource) {
  const VocabCounter counter = Counted(6, {{1, 1, 2}, {2, 5}});
  EXPECT_THAT(counter.Frequencies(0), ElementsAre(0, 2, 1, 0, 0, 0));
  EXPECT_THAT(counter.Frequencies(1), ElementsAre(0, 0, 1, 0, 0, 1));
  EXPECT_THAT(counter.TotalFrequencies(), ElementsAre(0, 2, 2, 0, 0, 1));
}

TEST(VocabMap, ForcedIdsFirstThenCountsTiesToTheLowerIdRestToTheLowestUnused) {
  const VocabCounter counter = Counted(12, {{9, 9, 9, 7, 7, 3, 3, 5}});
  VocabMapRequest request{.size = 4, .stop_tokens = {11}, .added_tokens = {5, 6}, .source_names = {"a"}};
  const Result<VocabMap> map = BuildVocabMap(counter, request);
  ASSERT_TRUE(map.ok()) << map.status().ToString();
  // 11 stops, 5 is an added token that was supervised, 6 was not; then 9 (3 times) and 3 (twice, as 7, but lower).
  EXPECT_THAT(TargetIds(*map), ElementsAre(3, 5, 9, 11));
  EXPECT_THAT(map->d2t, ElementsAre(3, 4, 7, 8));
  EXPECT_THAT(map->t2d, ElementsAre(0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 1));
  EXPECT_THAT(map->token_freq, ElementsAre(0, 0, 0, 2, 0, 1, 0, 2, 0, 3, 0, 0));

  request.size = 8;
  request.forced_tokens = {10};
  const Result<VocabMap> larger = BuildVocabMap(counter, request);
  ASSERT_TRUE(larger.ok());
  EXPECT_THAT(TargetIds(*larger), ElementsAre(0, 1, 3, 5, 7, 9, 10, 11));
  EXPECT_EQ(larger->report.Find("filled_with_unused_ids")->as_integer(), 2);
}

TEST(VocabMap, AnImportedMapIsTakenAsItIs) {
  const VocabCounter counter = Counted(10, {{1, 1, 1, 2, 8}});
  VocabMapRequest request{.size = 2, .stop_tokens = {9}, .source_names = {"a"}, .imported_d2t = {{2, 7}}};
  const Result<VocabMap> map = BuildVocabMap(counter, request);
  ASSERT_TRUE(map.ok()) << map.status().ToString();
  EXPECT_THAT(TargetIds(*map), ElementsAre(2, 8));
  EXPECT_EQ(map->report.Find("all")->Find("covered_tokens")->as_integer(), 2);
  EXPECT_TRUE(map->report.Find("imported")->as_bool());
  EXPECT_EQ(json::Write(*map->report.Find("forced")->Find("left_out")), "[9]");
  request.forced_tokens = {3};
  EXPECT_THAT(BuildVocabMap(counter, request).status().message(), HasSubstr("the imported map leaves out"));
}

TEST(VocabMap, TheReportGivesCoverageBySourceAndOverAll) {
  const VocabCounter counter = Counted(10, {{1, 1, 1, 2}, {3, 1}, {}});
  const Result<VocabMap> map =
      BuildVocabMap(counter, {.size = 1, .source_names = {"a.jsonl", "b.jsonl", "c.jsonl"}, .corpus_digest = "cafe"});
  ASSERT_TRUE(map.ok());
  const std::string report = json::Write(map->report);
  EXPECT_THAT(report, HasSubstr(R"("all":{"supervised_tokens":6,"covered_tokens":4,"coverage":0.6666666666666666})"));
  EXPECT_THAT(report, HasSubstr(R"({"source":"a.jsonl","supervised_tokens":4,"covered_tokens":3,"coverage":0.75})"));
  EXPECT_THAT(report, HasSubstr(R"({"source":"c.jsonl","supervised_tokens":0,"covered_tokens":0,"coverage":null})"));
  EXPECT_THAT(report, HasSubstr(R"("curve":[{"size":1,"covered_tokens":4,"coverage":0.6666666666666666,)"
                                R"("by_source":[0.75,0.5,null]}])"));
  EXPECT_THAT(report, HasSubstr(R"("corpus_digest":"cafe")"));
}

TEST(VocabMap, ThousandsOfSourcesShareTheLastColumn) {
  std::vector<std::vector<std::int32_t>> supervised(2000, {1});
  const VocabCounter counter = Counted(4, supervised);
  EXPECT_EQ(counter.columns(), kMaxSeparateSources);
  EXPECT_EQ(counter.Frequencies(kMaxSeparateSources - 1)[1], 2000 - kMaxSeparateSources + 1);
  EXPECT_EQ(counter.TotalFrequencies()[1], 2000);
  const Result<VocabMap> map =
      BuildVocabMap(counter, {.size = 1, .source_names = std::vector<std::string>(2000, "file")});
  ASSERT_TRUE(map.ok());
  EXPECT_EQ(map->report.Find("by_source")->as_array().back().Find("source")->as_string(), "1937 other sources");
}

TEST(VocabMap, ASizeThatReachesTheVocabularyMeansNoMap) {
  const Result<VocabMap> map = BuildVocabMap(Counted(10, {{1}}), {.size = 10, .source_names = {"a"}});
  ASSERT_TRUE(map.ok());
  EXPECT_FALSE(map->exists);
  EXPECT_TRUE(map->d2t.empty());
  EXPECT_TRUE(map->t2d.empty());
  EXPECT_EQ(map->token_freq.size(), 10U);
  EXPECT_EQ(map->report.Find("size")->as_integer(), 10);
}

TEST(VocabMap, RefusesWhatCannotBe) {
  const VocabCounter counter = Counted(10, {{1, 2}});
  const auto refusal = [&](VocabMapRequest request, StatusCode code) {
    request.source_names = {"a"};
    const Status status = BuildVocabMap(counter, request).status();
    EXPECT_EQ(status.code(), code);
    return status.message();
  };
  EXPECT_THAT(refusal({.size = 2, .stop_tokens = {3, 4, 4, 5}}, StatusCode::kInvalidConfig),
              HasSubstr("no room for the 3 forced tokens"));
  EXPECT_THAT(refusal({.size = 2, .stop_tokens = {10}}, StatusCode::kInvalidInput), HasSubstr("stop token 10"));
  EXPECT_THAT(refusal({.size = 2, .forced_tokens = {-1}}, StatusCode::kInvalidConfig), HasSubstr("forced_tokens"));
  EXPECT_EQ(BuildVocabMap(Counted(10, {{}}), {.size = 2, .source_names = {"a"}}).status().code(),
            StatusCode::kInvalidInput);
  VocabCounter small(2, 1);
  const Status beyond = small.Count(ChunkOf({{1, 2}}));
  EXPECT_EQ(beyond.code(), StatusCode::kInvalidInput);
  EXPECT_THAT(beyond.message(), HasSubstr("sample 0/0 has token id 2"));
  EXPECT_THAT(small.TotalFrequencies(), ElementsAre(0, 0));
}

// Random corpora, counted in two parts, against the rule spelled out one place at a time.
TEST(VocabMap, AgreesWithTheRuleAppliedPlaceByPlace) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    const int rows = 20 + round;
    std::vector<std::vector<std::int32_t>> first(2), second(2);
    for (int i = 0; i < 200; ++i) {
      const auto id = static_cast<std::int32_t>(random() % static_cast<unsigned>(rows) * (random() % 2));
      (i % 3 == 0 ? first : second)[i % 2].push_back(id);
    }
    VocabCounter counter = Counted(rows, first);
    counter.Merge(Counted(rows, second));
    const VocabMapRequest request{.size = 12, .stop_tokens = {19, 3}, .source_names = {"a", "b"}};
    const Result<VocabMap> map = BuildVocabMap(counter, request);
    ASSERT_TRUE(map.ok());

    const std::vector<std::int64_t> counts = counter.TotalFrequencies();
    std::vector<std::uint8_t> chosen(counts.size());
    chosen[3] = chosen[19] = 1;
    for (int place = 2; place < 12; ++place) {
      std::size_t best = 0;
      while (chosen[best] != 0) ++best;
      for (std::size_t id = best; id < counts.size(); ++id) {
        if (chosen[id] == 0 && counts[id] > counts[best]) best = id;
      }
      chosen[best] = 1;
    }
    EXPECT_EQ(map->t2d, chosen);
    for (const std::int64_t id : TargetIds(*map)) EXPECT_EQ(chosen[static_cast<std::size_t>(id)], 1);
    EXPECT_TRUE(std::is_sorted(map->d2t.begin(), map->d2t.end()));
  }
}

}  // namespace
}  // namespace draftmill

// Runs that delete each shard once it is published (write.discard_after_publish): what they record is what a normal run
// records, nothing is computed twice, and nothing that is left can be taken for a data set.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "formats/manifest.h"
#include "pipeline/reports/inspect_report.h"
#include "pipeline/reports/status_report.h"
#include "pipeline/reports/why_report.h"
#include "pipeline/run/forecast.h"
#include "pipeline/run/rebuild.h"
#include "pipeline/run/run.h"
#include "pipeline/testing/example_run.h"
#include "pipeline/testing/state_facts.h"
#include "pipeline/verify/verify.h"
#include "state/state_reader.h"

namespace draftmill {
namespace {

namespace fs = std::filesystem;

using testing::HasSubstr;

constexpr const char* kSwitch = "write.discard_after_publish";
constexpr std::size_t kToTheEnd = std::numeric_limits<std::size_t>::max();

using Batches = std::vector<std::pair<std::int32_t, std::int32_t>>;
using BatchSet = std::set<std::pair<std::int32_t, std::int32_t>>;

class DiscardedShardsTest : public testing::Test {
 protected:
  DiscardedShardsTest() {
    example_.WriteRows(80);
    example_.WritePipeline("extract: {batch_tokens: 256, block_tokens: 512}\nvocab_map: {size: 200}\n");
  }

  void Discard() const {
    example_.EditPipeline("{shard_bytes: 64KiB}", "{shard_bytes: 64KiB, discard_after_publish: true}");
  }
  void Keep() const { example_.EditPipeline(", discard_after_publish: true", ""); }

  RunReport Run(const RunRequest& request = {}) const {
    return example_.Run(request, {.make_extractor = &MakeExampleExtractor});
  }
  /// Computes at most so many batches; which they are is added to `computed`.
  RunReport RunCounting(Batches& computed, std::size_t most, const RunRequest& request = {}) const {
    const auto make = [&computed, most](const ExtractOptions& options) -> Result<std::unique_ptr<Extractor>> {
      DRAFTMILL_ASSIGN_OR_RETURN(std::unique_ptr<Extractor> of, MakeExampleExtractor(options));
      return std::unique_ptr<Extractor>(std::make_unique<CountingExtractor>(std::move(of), computed, most));
    };
    return example_.Run(request, {.make_extractor = make});
  }

  std::string work() const { return example_.work().string(); }
  Manifest ReadTheManifest() const { return ReadManifest(RealFileSystem(), work()).value(); }

  std::vector<std::string> ShardFiles() const {
    std::vector<std::string> shards;
    for (const auto& [name, content] : example_.Published()) {
      if (name.starts_with("shards/")) shards.push_back(name);
    }
    return shards;
  }

  /// The written batches of shards in that state.
  BatchSet BatchesOf(ShardState wanted) const {
    BatchSet found;
    StateReader state = StateReader::Open(work()).value();
    const std::vector<ChunkRecord> chunks = state.Chunks().value();
    for (const ChunkRecord& chunk : chunks) {
      const std::vector<ShardRecord> shards = state.Shards(chunk.chunk).value();
      const std::vector<BatchRecord> batches = state.Batches(chunk.chunk).value();
      for (const BatchRecord& batch : batches) {
        if (!batch.written || shards.at(static_cast<std::size_t>(batch.shard)).state != wanted) continue;
        found.emplace(static_cast<std::int32_t>(chunk.chunk), static_cast<std::int32_t>(batch.batch));
      }
    }
    return found;
  }

  /// All rows of state.db but the fingerprint of `write`, and shards as if they had been kept.
  std::string RowsAsIfKept() const {
    std::string rows = StateFacts(work());
    const std::string discarded = "state=discarded";
    for (std::size_t at = rows.find(discarded); at != std::string::npos; at = rows.find(discarded))
      rows.replace(at, discarded.size(), "state=published");
    std::string kept;
    std::istringstream lines(rows);
    for (std::string line; std::getline(lines, line);) {
      const bool is_of_switch = line.find("=write") != std::string::npos || line.find("digest.") != std::string::npos;
      if (!is_of_switch) kept += line + "\n";
    }
    return kept;
  }

  const ExampleRun example_;
};

TEST_F(DiscardedShardsTest, TheIndexIsThatOfANormalRunAndTheFilesAreGone) {
  ASSERT_EQ(Run().exit_status, 3);
  const Manifest normal = ReadTheManifest();
  const auto files = example_.Published();
  const std::string rows = RowsAsIfKept();
  ASSERT_GT(normal.shards.size(), 4U);

  fs::remove_all(work());
  Discard();
  const RunReport report = Run();
  ASSERT_EQ(report.exit_status, 3) << report.summary;
  EXPECT_THAT(report.summary, HasSubstr(kSwitch));
  EXPECT_EQ(report.facts.Find("discarded_shards")->as_integer(), static_cast<std::int64_t>(normal.shards.size()));
  EXPECT_TRUE(ShardFiles().empty());
  const Manifest manifest = ReadTheManifest();
  EXPECT_TRUE(manifest.shards.empty());
  EXPECT_EQ(manifest.discarded_shards, normal.shards);
  EXPECT_EQ(FirstDifference(rows, RowsAsIfKept()), "");
  for (const auto& [name, content] : example_.Published()) {
    EXPECT_TRUE(name == "manifest.json" || files.at(name) == content) << name;
  }
}

TEST_F(DiscardedShardsTest, ASecondRunHasNothingToDo) {
  Discard();
  ASSERT_EQ(Run().exit_status, 3);
  const auto files = example_.Published();
  const RunReport second = example_.Run({}, {.make_extractor = &MakeIdleExtractor});
  EXPECT_EQ(second.exit_status, 3) << second.summary;
  EXPECT_TRUE(second.facts.Find("up_to_date")->as_bool());
  EXPECT_TRUE(example_.Published() == files);
}

TEST_F(DiscardedShardsTest, AnInterruptedRunComputesNoPublishedShardAgain) {
  Discard();
  Batches first;
  ASSERT_EQ(RunCounting(first, 15).exit_status, 75);
  const BatchSet discarded = BatchesOf(ShardState::kDiscarded);
  ASSERT_FALSE(discarded.empty());
  EXPECT_THAT(ReadRunStatus(RealFileSystem(), work(), RealClock()).value().facts.Find("discarded_shards")->as_integer(),
              testing::Gt(0));
  Batches second;
  ASSERT_EQ(RunCounting(second, kToTheEnd).exit_status, 3);
  for (const auto& batch : second) EXPECT_FALSE(discarded.contains(batch)) << batch.first << "/" << batch.second;
  EXPECT_TRUE(ShardFiles().empty());
}

TEST_F(DiscardedShardsTest, AFileThatWasRecordedAsDiscardedIsDeletedByTheNextRun) {
  Discard();
  ASSERT_EQ(Run().exit_status, 3);
  const std::string file = ReadTheManifest().discarded_shards.front().file.path;
  fs::create_directories(fs::path(work()) / fs::path(file).parent_path());
  ExampleRun::Write(fs::path(work()) / file, "left by a run that was killed between row and deletion");
  {
    Result<StateReader> state = StateReader::Open(work());
    ASSERT_TRUE(state.ok());
    const Result<VerifyReport> report = VerifyWork(RealFileSystem(), *state, work(), {.deep = true});
    ASSERT_TRUE(report.ok());
    EXPECT_TRUE(report->ok());
    ASSERT_EQ(report->notes.size(), 1U);
    EXPECT_THAT(report->notes.front(), HasSubstr("the next run deletes it"));
  }
  EXPECT_EQ(example_.Run({}, {.make_extractor = &MakeIdleExtractor}).exit_status, 3);
  EXPECT_TRUE(ShardFiles().empty());
}

TEST_F(DiscardedShardsTest, SwitchedOffTheStatesAreComputedAgain) {
  ASSERT_EQ(Run().exit_status, 3);
  const auto files = example_.Published();
  const std::string rows = StateFacts(work());
  fs::remove_all(work());
  Discard();
  ASSERT_EQ(Run().exit_status, 3);

  Keep();
  const RunReport refused = Run();
  EXPECT_EQ(refused.exit_status, 2);
  EXPECT_THAT(refused.summary, HasSubstr("write.discard_after_publish: removed, was true"));
  EXPECT_THAT(refused.summary, HasSubstr("states that were deleted are computed again"));
  EXPECT_EQ(PlanRun(example_.Load()).value().Find("forecast")->Find("states_bytes_left")->as_integer(),
            PlanRun(example_.Load()).value().Find("forecast")->Find("states_bytes")->as_integer());
  const RunReport accepted = Run({.accept_changes = true});
  ASSERT_EQ(accepted.exit_status, 3) << accepted.summary;
  EXPECT_TRUE(example_.Published() == files);
  EXPECT_EQ(FirstDifference(rows, StateFacts(work())), "");
}

TEST_F(DiscardedShardsTest, SwitchedOnPublishedShardsStayAndLaterOnesGo) {
  Batches computed;
  ASSERT_EQ(RunCounting(computed, 15).exit_status, 75);
  std::vector<std::string> kept;
  for (const std::string& name : ShardFiles()) {
    if (!name.ends_with(".partial")) kept.push_back(name);
  }
  ASSERT_FALSE(kept.empty());
  const BatchSet published = BatchesOf(ShardState::kPublished);
  const BatchSet written = BatchesOf(ShardState::kPlanned);
  Discard();
  EXPECT_EQ(Run().exit_status, 2);
  Batches second;
  const RunReport report = RunCounting(second, kToTheEnd, {.accept_changes = true});
  ASSERT_EQ(report.exit_status, 3) << report.summary;
  EXPECT_EQ(ShardFiles(), kept);
  // What was written of the shard that was open stays, too, but for the batch that publishes it.
  const auto again =
      std::count_if(second.begin(), second.end(), [&](const auto& batch) { return written.contains(batch); });
  EXPECT_LE(again, 1);
  for (const auto& batch : second) EXPECT_FALSE(published.contains(batch)) << batch.first << "/" << batch.second;
}

TEST_F(DiscardedShardsTest, ARerunComputesAndDeletesThemOnceMore) {
  Discard();
  Batches first;
  ASSERT_EQ(RunCounting(first, kToTheEnd).exit_status, 3);
  const auto files = example_.Published();
  Batches second;
  ASSERT_EQ(RunCounting(second, kToTheEnd, {.rerun_stage = "extract"}).exit_status, 3);
  EXPECT_EQ(std::set(first.begin(), first.end()), std::set(second.begin(), second.end()));
  EXPECT_TRUE(example_.Published() == files);
}

TEST_F(DiscardedShardsTest, VerifyFindsNoDamageAndSaysWhatItCouldNotCheck) {
  Discard();
  ASSERT_EQ(Run().exit_status, 3);
  Result<StateReader> state = StateReader::Open(work());
  ASSERT_TRUE(state.ok());
  const Result<VerifyReport> report = VerifyWork(RealFileSystem(), *state, work(), {.deep = true});
  ASSERT_TRUE(report.ok());
  EXPECT_TRUE(report->ok()) << report->faults.front().message;
  EXPECT_EQ(report->unfinished_shards, 0);
  EXPECT_EQ(report->discarded_shards, static_cast<std::int64_t>(ReadTheManifest().discarded_shards.size()));
  EXPECT_EQ(BytesToVerify(RealFileSystem(), *state, work()).value(), report->bytes);
  EXPECT_THAT(VerifyReportJson(*report).Find("not_checked")->as_string(), HasSubstr(kSwitch));

  // What the manifest says of them is compared all the same.
  Manifest edited = ReadTheManifest();
  edited.discarded_shards.pop_back();
  ASSERT_TRUE(WriteManifest(RealFileSystem(), work(), edited).ok());
  const Result<VerifyReport> found = VerifyWork(RealFileSystem(), *state, work(), {});
  ASSERT_TRUE(found.ok());
  ASSERT_EQ(found->faults.size(), 1U);
  EXPECT_EQ(found->faults.front().target, VerifyTarget::kManifest);
}

TEST_F(DiscardedShardsTest, EveryReportSaysSoByName) {
  Discard();
  ASSERT_EQ(Run().exit_status, 3);
  const RunStatus status = ReadRunStatus(RealFileSystem(), work(), RealClock()).value();
  EXPECT_EQ(status.exit_status, 3);
  EXPECT_THAT(StatusAsText(status), HasSubstr(kSwitch));
  EXPECT_THAT(StatusAsText(status), HasSubstr("no data set"));
  const json::Value plan = PlanRun(example_.Load()).value();
  EXPECT_TRUE(plan.Find("plan")->Find("discard_after_publish")->as_bool());
  EXPECT_THAT(plan.Find("discarded_shards")->as_string(), HasSubstr(kSwitch));
  EXPECT_EQ(plan.Find("stages")->as_array().back().Find("action")->as_string(), "reuse");
  const json::Value folder = InspectWorkFolder(RealFileSystem(), work()).value();
  EXPECT_THAT(folder.Find("discarded_shards")->as_string(), HasSubstr(kSwitch));
  EXPECT_THAT(InspectShard(RealFileSystem(), work(), {.chunk = 0, .shard = 0}).status().message(), HasSubstr(kSwitch));
  const auto samples = InspectSample(RealFileSystem(), work(), {.sample_id = 3, .variant = 0}, {});
  ASSERT_TRUE(samples.ok()) << samples.status().ToString();
  EXPECT_EQ(samples->front().facts.Find("stage")->as_string(), "discarded");
  EXPECT_THAT(samples->front().facts.Find("states_missing")->as_string(), HasSubstr(kSwitch));
  const Result<json::Value> why = WhySample(RealFileSystem(), work(), {.sample_id = 3, .variant = 0}, {});
  ASSERT_TRUE(why.ok()) << why.status().ToString();
  EXPECT_THAT(json::Write(*why), HasSubstr(kSwitch));
  Result<StateReader> state = StateReader::Open(work());
  ASSERT_TRUE(state.ok());
  const Result<std::vector<EventRecord>> events = state->Events(0, 100);
  ASSERT_TRUE(events.ok());
  EXPECT_TRUE(std::any_of(events->begin(), events->end(), [](const EventRecord& event) {
    return event.level == EventLevel::kWarning && event.text.find(kSwitch) != std::string::npos;
  }));
}

TEST_F(DiscardedShardsTest, TheForecastCountsWhatLiesOnTheDiskAtOnce) {
  const json::Value normal = PlanRun(example_.Load()).value();
  EXPECT_EQ(normal.Find("forecast")->Find("disk_bytes")->as_integer(),
            normal.Find("forecast")->Find("states_bytes_left")->as_integer());
  Discard();
  const json::Value plan = PlanRun(example_.Load()).value();
  EXPECT_EQ(plan.Find("forecast")->Find("states_bytes_left")->as_integer(),
            normal.Find("forecast")->Find("states_bytes_left")->as_integer());
  EXPECT_EQ(plan.Find("forecast")->Find("disk_bytes")->as_integer(), 64 << 10);
  const PlanParameters wide{.batch_tokens = 100, .block_tokens = 100, .shard_bytes = 1000, .bytes_per_token = 50};
  EXPECT_EQ(BytesAtOnce(400, wide, true), 400);
  EXPECT_EQ(BytesAtOnce(10'000, wide, true), 5000) << "one batch is the least that a shard holds";
  EXPECT_EQ(BytesAtOnce(10'000, wide, false), 10'000);
}

TEST_F(DiscardedShardsTest, ADatabaseThatIsMadeAgainKnowsNothingOfThem) {
  Discard();
  ASSERT_EQ(Run().exit_status, 3);
  const auto files = example_.Published();
  fs::remove(fs::path(work()) / "state.db");
  const Result<json::Value> rebuilt = RebuildState(RealFileSystem(), RealClock(), work(), "test");
  ASSERT_TRUE(rebuilt.ok()) << rebuilt.status().ToString();
  EXPECT_THAT(rebuilt->Find("next")->as_string(), HasSubstr(kSwitch));
  ASSERT_EQ(Run().exit_status, 3);
  EXPECT_TRUE(example_.Published() == files);
}

}  // namespace
}  // namespace draftmill

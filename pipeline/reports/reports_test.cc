// status, inspect and quarantine on a work folder that is filled as a run would fill it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "formats/corpus_chunk.h"
#include "pipeline/reports/inspect_report.h"
#include "pipeline/reports/quarantine_report.h"
#include "pipeline/reports/sample_name.h"
#include "pipeline/reports/status_report.h"
#include "pipeline/reports/why_report.h"
#include "stages/ingest/ingested_rows.h"
#include "stages/ingest/rejected_rows.h"
#include "state/example_state.h"
#include "state/run_lock.h"
#include "state/store.h"
#include "state/temporary_folder.h"

namespace draftmill {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ReportsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_FALSE(folder_.path().empty());
    auto state = StateWriter::Open(work(), {.create = true});
    ASSERT_TRUE(state.ok()) << state.status().message();
    ASSERT_TRUE(FillExample(**state, shape_).ok());
    ASSERT_TRUE((*state)->Close().ok());
  }

  void FinishRun(int exit_status) {
    auto state = StateWriter::Open(work(), {});
    ASSERT_TRUE(state.ok());
    ASSERT_TRUE((*state)->BeginRun({}).ok());
    (*state)->FinishRun(exit_status, R"({"tokens": 12})");
    ASSERT_TRUE((*state)->Close().ok());
  }

  /// Conversations of chunk 0, and a corpus file in which sample 1 is "Hi\x1b!" with its last two tokens supervised.
  void WriteChunkFiles() {
    ASSERT_TRUE(RealFileSystem().MakeFolder(IngestedFolder(work())).ok());
    IngestedChunkText rows(0, 0, 0);
    for (std::int64_t row = 0; row < shape_.rows_per_chunk; ++row) {
      rows.Add(Hash128{}, {.source = 0, .row = row, .line = row + 1, .byte_offset = 10 * row},
               R"({"messages":[{"role":"user","content":"question )" + std::to_string(row) + "\"}]}");
    }
    ASSERT_TRUE(rows.WriteFile(RealFileSystem(), work()).ok());
    TokenizedChunk chunk;
    chunk.input_ids = {7, 72, 105, 27, 33};
    chunk.loss_mask = {0, 0, 0, 1, 1};
    chunk.cu_seqlens = {0, 1, 5};
    chunk.sample_id = {0, 1};
    chunk.variant = {0, 0};
    chunk.content_hash = {Hash128{}, Hash128{}};
    chunk.token_hash = {TokenHash(chunk.input_ids.data(), chunk.loss_mask.data(), 1),
                        TokenHash(chunk.input_ids.data() + 1, chunk.loss_mask.data() + 1, 4)};
    ASSERT_TRUE(WriteCorpusChunk(RealFileSystem(), work(), chunk, "fingerprint").ok());
  }

  static std::int64_t StagesThatAre(std::string_view state, const RunStatus& status) {
    const json::Array& stages = status.facts.Find("stages")->as_array();
    return std::count_if(stages.begin(), stages.end(),
                         [&](const json::Value& stage) { return stage.Find("state")->as_string() == state; });
  }

  const std::string& work() const { return folder_.path(); }

  TemporaryFolder folder_;
  ExampleShape shape_;
};

TEST_F(ReportsTest, ARunWithoutAnEndAndALockWasInterrupted) {
  const auto status = ReadRunStatus(RealFileSystem(), work(), RealClock());
  ASSERT_TRUE(status.ok()) << status.status().message();
  EXPECT_EQ(status->exit_status, 75);
  EXPECT_FALSE(status->is_running);
  EXPECT_EQ(status->facts.Find("run")->Find("state")->as_string(), "interrupted");
  const std::string text = StatusAsText(*status);
  const json::Value& mask = *status->facts.Find("mask");
  EXPECT_EQ(mask.Find("rows")->as_integer(), (shape_.written_chunks + 2) * shape_.rows_per_chunk);
  EXPECT_EQ(mask.Find("boundary_tokens")->as_integer(), (shape_.written_chunks + 2) * 2);
  EXPECT_THAT(text, HasSubstr("boundary tokens: " + std::to_string((shape_.written_chunks + 2) * 2)));
  EXPECT_THAT(text, HasSubstr("run tidy-heron interrupted"));
  for (const char* part : {"ingest", "tokenize", "vocab_map", "extract", "write", "broken_json", "published"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST_F(ReportsTest, AHeldLockMeansThatItRuns) {
  const auto lock = RunLock::Acquire(work(), RealClock());
  ASSERT_TRUE(lock.ok());
  const auto status = ReadRunStatus(RealFileSystem(), work(), RealClock());
  ASSERT_TRUE(status.ok());
  EXPECT_TRUE(status->is_running);
  EXPECT_EQ(status->exit_status, 75);
  EXPECT_EQ(StagesThatAre("running", *status), 4);
}

TEST_F(ReportsTest, AnEndedRunGivesItsExitStatus) {
  FinishRun(1);
  const auto status = ReadRunStatus(RealFileSystem(), work(), RealClock());
  ASSERT_TRUE(status.ok());
  EXPECT_EQ(status->exit_status, 1);
  EXPECT_EQ(status->facts.Find("run")->Find("report")->Find("tokens")->as_integer(), 12);
  EXPECT_THAT(StatusAsText(*status), HasSubstr("ended with status 1"));
}

TEST_F(ReportsTest, ARunThatEndedWellButLeftWorkIsUnfinished) {
  FinishRun(3);
  const auto status = ReadRunStatus(RealFileSystem(), work(), RealClock());
  ASSERT_TRUE(status.ok());
  EXPECT_EQ(status->exit_status, 75);
  EXPECT_EQ(StagesThatAre("running", *status), 0);
  EXPECT_EQ(StagesThatAre("unfinished", *status), 4);
}

TEST(StatusTest, AFolderWithoutARunIsNamed) {
  const TemporaryFolder empty;
  const auto status = ReadRunStatus(RealFileSystem(), empty.path(), RealClock());
  EXPECT_EQ(status.status().code(), StatusCode::kInvalidConfig);
  EXPECT_THAT(status.status().message(), HasSubstr("no run was started"));
}

TEST(StatusTest, WritesTimesInUtc) { EXPECT_EQ(UtcTime(1'769'860'800'999), "2026-01-31 12:00:00 UTC"); }

TEST_F(ReportsTest, ListsFailuresByPages) {
  const auto all = ListQuarantine(RealFileSystem(), work(), {});
  ASSERT_TRUE(all.ok()) << all.status().message();
  const std::size_t count = all->Find("failures")->as_array().size();
  ASSERT_GE(count, 3U);
  EXPECT_FALSE(all->Find("more")->as_bool());
  const json::Value& first = all->Find("failures")->as_array()[0];
  EXPECT_EQ(first.Find("file")->as_string(), "data/chat.jsonl");
  EXPECT_TRUE(first.Find("sample_id")->is_null());

  std::size_t seen = 0;
  QuarantineQuery query{.limit = 2};
  for (bool more = true; more;) {
    const auto page = ListQuarantine(RealFileSystem(), work(), query);
    ASSERT_TRUE(page.ok());
    const json::Array& failures = page->Find("failures")->as_array();
    ASSERT_FALSE(failures.empty());
    seen += failures.size();
    query.after = failures.back().Find("failure")->as_integer();
    more = page->Find("more")->as_bool();
  }
  EXPECT_EQ(seen, count);

  const auto ingest_only = ListQuarantine(RealFileSystem(), work(), {.stage = "ingest"});
  EXPECT_EQ(ingest_only->Find("failures")->as_array().size(), 2U);
}

TEST_F(ReportsTest, ShowsAndExportsTheRows) {
  WriteChunkFiles();
  auto rejected = RejectedRowsWriter::Create(RealFileSystem(), work());
  ASSERT_TRUE(rejected.ok());
  const Failure failure{.stage = "ingest",
                        .reason = "broken_json",
                        .message = "at byte 3",
                        .place = {.source = 0, .row = -1},
                        .key = {-1, 0}};
  ASSERT_TRUE(rejected->Add(failure, "data/chat.jsonl", "{\"a").ok());
  ASSERT_TRUE(rejected->Finish().ok());

  const auto shown = ShowFailure(RealFileSystem(), work(), 1);
  ASSERT_TRUE(shown.ok()) << shown.status().message();
  EXPECT_EQ(shown->Find("raw")->as_string(), "{\"a");
  EXPECT_EQ(ShowFailure(RealFileSystem(), work(), 99'999).status().code(), StatusCode::kNotFound);

  std::vector<json::Value> exported;
  ASSERT_TRUE(ExportQuarantine(RealFileSystem(), work(), {}, [&](const json::Value& row) {
                exported.push_back(row);
                return OkStatus();
              }).ok());
  ASSERT_FALSE(exported.empty());
  EXPECT_EQ(exported[0].Find("raw")->as_string(), "{\"a");
  bool has_conversation = false;
  for (const json::Value& row : exported) {
    has_conversation = has_conversation || row.Find("conversation") != nullptr;
    EXPECT_NE(row.Find("stage"), nullptr);
  }
  EXPECT_TRUE(has_conversation);
}

TEST_F(ReportsTest, ShowsASampleWithItsSupervisedTokensMarked) {
  WriteChunkFiles();
  const auto token_bytes = [](std::int32_t id) { return std::string(1, static_cast<char>(id)); };
  const auto samples = InspectSample(RealFileSystem(), work(), {.sample_id = 1, .variant = {}}, token_bytes);
  ASSERT_TRUE(samples.ok()) << samples.status().message();
  ASSERT_EQ(samples->size(), 1U);
  const InspectedSample& sample = samples->front();
  EXPECT_THAT(json::Write(sample.conversation), HasSubstr("question 1"));
  EXPECT_THAT(SampleAsText(sample, {}), HasSubstr("Hi\u27E6\\x1b!\u27E7\n"));
  EXPECT_THAT(SampleAsText(sample, {.colours = true}), HasSubstr("Hi\x1b[32m\\x1b!\x1b[0m"));
  EXPECT_THAT(SampleAsText(sample, {.ids = true}), HasSubstr("     2       27  supervised  \\x1b\n"));
  const json::Value facts = SampleAsJson(sample);
  EXPECT_EQ(json::Write(*facts.Find("input_ids")), "[72,105,27,33]");
  EXPECT_EQ(json::Write(*facts.Find("loss_mask")), "[0,0,1,1]");
  EXPECT_EQ(facts.Find("text")->as_array()[1].Find("supervised")->as_bool(), true);

  EXPECT_THAT(InspectSample(RealFileSystem(), work(), {.sample_id = 1, .variant = 5}, token_bytes).status().message(),
              HasSubstr("has no variant 5"));
  EXPECT_EQ(
      InspectSample(RealFileSystem(), work(), {.sample_id = 1'000'000, .variant = {}}, token_bytes).status().code(),
      StatusCode::kNotFound);
}

TEST_F(ReportsTest, NamesTheChangedParameterWithOldAndNewValue) {
  Fingerprint changed;
  changed.Add("code version", "1");
  changed.Add("tokenize.max_length", "4096");
  const FingerprintsByStage current = {{"tokenize", changed}, {"write", Fingerprint()}};
  const auto facts = WhyStage(RealFileSystem(), work(), "tokenize", current);
  ASSERT_TRUE(facts.ok()) << facts.status().message();
  EXPECT_EQ(json::Write(*facts->Find("changes")), R"([{"part":"tokenize.max_length","old":"2048","new":"4096"}])");
  EXPECT_THAT(facts->Find("why")->as_string(), HasSubstr("has changed"));

  Fingerprint same;
  same.Add("code version", "1");
  same.Add("tokenize.max_length", "2048");
  const auto unchanged = WhyStage(RealFileSystem(), work(), "tokenize", {{"tokenize", same}});
  EXPECT_THAT(unchanged->Find("why")->as_string(), HasSubstr("a run continues it"));
  EXPECT_THAT(WhyStage(RealFileSystem(), work(), "write", current)->Find("why")->as_string(), HasSubstr("first time"));
  EXPECT_THAT(WhyStage(RealFileSystem(), work(), "tokenise", current).status().message(),
              HasSubstr("neither a stage (tokenize, write)"));
  const TemporaryFolder empty;
  EXPECT_THAT(WhyStage(RealFileSystem(), empty.path(), "tokenize", current)->Find("why")->as_string(),
              HasSubstr("first time"));
}

TEST_F(ReportsTest, SaysWhyASampleStandsWhereItStands) {
  const auto written = WhySample(RealFileSystem(), work(), {.sample_id = 1, .variant = {}}, {});
  ASSERT_TRUE(written.ok()) << written.status().message();
  EXPECT_THAT(json::Write(*written), HasSubstr("it is complete: its states lie in shards/"));
  const std::int64_t last = shape_.chunks * shape_.rows_per_chunk - 1;
  const auto waiting = WhySample(RealFileSystem(), work(), {.sample_id = last, .variant = {}}, {});
  ASSERT_TRUE(waiting.ok());
  EXPECT_THAT(json::Write(*waiting), HasSubstr("not tokenized yet"));
}

TEST_F(ReportsTest, ShowsTheWorkFolder) {
  const auto facts = InspectWorkFolder(RealFileSystem(), work());
  ASSERT_TRUE(facts.ok());
  EXPECT_EQ(facts->Find("chunks")->as_array().size(), static_cast<std::size_t>(shape_.chunks));
  EXPECT_EQ(InspectShard(RealFileSystem(), work(), {.chunk = 0, .shard = 0}).status().code(), StatusCode::kNotFound);
}

TEST(SampleNameTest, ReadsSamplesAndShards) {
  EXPECT_EQ(ParseSampleName("4711")->sample_id, 4711);
  EXPECT_FALSE(ParseSampleName("4711")->variant.has_value());
  EXPECT_EQ(*ParseSampleName("4711/2")->variant, 2);
  for (const char* text : {"", "x", "-1", "1/", "1/x", "1/-1", "1/2/3", "99999999999999999999", " 1"}) {
    EXPECT_FALSE(ParseSampleName(text).has_value()) << text;
  }
  for (const char* text :
       {"c000012-s003", "c000012-s003.safetensors", "shards/000012/c000012-s003.safetensors", "c12-s3"}) {
    ASSERT_TRUE(ParseShardName(text).has_value()) << text;
    EXPECT_EQ(ParseShardName(text)->chunk, 12);
    EXPECT_EQ(ParseShardName(text)->shard, 3);
  }
  for (const char* text : {"", "c12", "12-s3", "c-s3", "c12-s", "cx-s3", "c12-s3.npy"}) {
    EXPECT_FALSE(ParseShardName(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace draftmill

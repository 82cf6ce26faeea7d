// The run as a whole, on a tiny model: what is made, kept, refused and made again. With the engine also the states.
#include "pipeline/run/run.h"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "formats/manifest.h"
#include "pipeline/config/config.h"
#include "pipeline/progress/progress.h"
#include "pipeline/progress/stop_signal.h"
#include "pipeline/reports/status_report.h"
#include "pipeline/run/rebuild.h"
#include "pipeline/run/run_inputs.h"
#include "pipeline/testing/example_run.h"
#include "pipeline/testing/state_facts.h"
#include "stages/extract/extractor.h"
#include "state/faulty_file_system.h"
#include "state/sqlite.h"
#include "state/state_reader.h"
#include "state/store.h"

namespace draftmill {
namespace {

namespace fs = std::filesystem;

class RunTest : public testing::Test {
 protected:
  static void Write(const fs::path& path, const std::string& text) { ExampleRun::Write(path, text); }
  static std::string ReadFile(const fs::path& path) { return ExampleRun::Read(path); }
  void WriteRows(int count, const std::string& last_answer = "yes") const { example_.WriteRows(count, last_answer); }
  void WritePipeline(const std::string& more) const { example_.WritePipeline(more); }

  RunReport Run(RunRequest request = {}) const {
    if (!ExtractorIsBuilt()) request.until_stage = "vocab_map";
    return example_.Run(request, {});
  }
  /// With the engine that stands in for the real one: all stages, in every build.
  RunReport RunAll(const RunRequest& request = {}) const {
    return example_.Run(request, {.make_extractor = &MakeExampleExtractor});
  }

  std::map<std::string, std::string> Published() const { return example_.Published(); }
  fs::path work() const { return example_.work(); }

  const ExampleRun example_;
  const fs::path folder_ = example_.folder();
};

TEST_F(RunTest, MakesEverythingAndThenIsUpToDate) {
  const RunReport first = Run();
  ASSERT_EQ(first.exit_status, 0) << first.summary;
  const auto made = Published();
  EXPECT_TRUE(made.contains("corpus/chunk-000003.safetensors"));
  EXPECT_TRUE(made.contains("vocab/token_freq.npy"));
  EXPECT_EQ(made.contains("manifest.json"), ExtractorIsBuilt());
  EXPECT_EQ(made.contains("shards/000000/c000000-s000.safetensors"), ExtractorIsBuilt());
  const RunReport second = Run();
  EXPECT_EQ(second.exit_status, 0) << second.summary;
  EXPECT_TRUE(second.facts.Find("up_to_date")->as_bool());
  EXPECT_TRUE(Published() == made);
  // The mask report covers the corpus, whichever start tokenized it.
  const json::Value& mask = *second.facts.Find("mask");
  EXPECT_EQ(mask, *first.facts.Find("mask"));
  EXPECT_EQ(mask.Find("tokens")->as_integer(), second.facts.Find("tokens")->as_integer());
  EXPECT_EQ(mask.Find("supervised_tokens")->as_integer(), second.facts.Find("supervised_tokens")->as_integer());
}

/// A block's batches come out together at its end; the span that their rate is taken over must begin with the block.
TEST_F(RunTest, ThroughputOfExtractCoversItsComputing) {
  if (!ExtractorIsBuilt()) GTEST_SKIP() << "this build has no engine";
  ASSERT_EQ(Run().exit_status, 0);
  Result<StateReader> state = StateReader::Open(work().string(), RealFileSystem());
  ASSERT_TRUE(state.ok()) << state.status().ToString();
  double computing_ms = 0;
  for (int chunk = 0; chunk < 4; ++chunk) {
    const Result<std::vector<BatchRecord>> batches = state->Batches(chunk);
    ASSERT_TRUE(batches.ok());
    for (const BatchRecord& batch : *batches) computing_ms += 1000 * batch.seconds;
  }
  const Result<std::int64_t> span_ms =
      state->connection().QueryInteger("SELECT sum(span_ms) FROM throughput WHERE stage = 'extract'");
  ASSERT_TRUE(span_ms.ok()) << span_ms.status().ToString();
  EXPECT_GT(computing_ms, 0);
  EXPECT_GE(static_cast<double>(*span_ms) + 2, computing_ms);
}

/// What docs/commands.md says that `run` shows of each stage.
TEST_F(RunTest, ShowsHowFullTheBufferBeforeWriteIs) {
  struct LastProgress final : ProgressSink {
    void Update(const StageProgress& progress) override {
      const std::lock_guard<std::mutex> lock(mutex);
      if (progress.buffer_fill >= 0) told[progress.stage] = progress.buffer_fill;
    }
    void Line(std::string_view) override {}
    std::mutex mutex;
    std::map<std::string, double> told;
  } progress;
  const Config config = example_.Load();
  ASSERT_EQ(RunPipeline(config, {}, progress, {.make_extractor = &MakeExampleExtractor}).exit_status, 3);
  EXPECT_EQ(progress.told, (std::map<std::string, double>{{"write", 0.0}}));
}

/// What is wrong with state.db itself is said in one form, with the way out, once.
TEST_F(RunTest, DamageOfStateDbNamesTheWayOut) {
  ASSERT_EQ(RunAll().exit_status, 3);
  const auto change = [this](const std::string& sql) {
    Result<std::unique_ptr<StateWriter>> state = StateWriter::Open(work().string(), {});
    ASSERT_TRUE(state.ok()) << state.status().ToString();
    const auto ticket = (*state)->Submit([&](sqlite::Connection& db) { return db.Run(sql); });
    ASSERT_TRUE((*state)->Wait(ticket).ok());
    ASSERT_TRUE((*state)->Close().ok());
  };
  const auto count = [](const std::string& text, std::string_view wanted) {
    int found = 0;
    for (std::size_t at = text.find(wanted); at != std::string::npos; at = text.find(wanted, at + 1)) ++found;
    return found;
  };
  // A sample that the corpus has: no counter of a chunk tells that its row is gone.
  change("DELETE FROM samples WHERE sample_id = 0");
  const RunReport lost = RunAll({.rerun_stage = "vocab_map"});
  EXPECT_EQ(lost.exit_status, 1) << lost.summary;
  EXPECT_EQ(count(lost.summary, "verify --repair"), 1) << lost.summary;
  change("UPDATE facts SET value = 'many' WHERE name = 'extract.batch_tokens'");
  const RunReport damaged = RunAll();
  EXPECT_EQ(damaged.exit_status, 2) << damaged.summary;
  EXPECT_EQ(count(damaged.summary, "`draftmill state TARGET rebuild`"), 1) << damaged.summary;
}

TEST_F(RunTest, AChangedSourceIsRefusedByName) {
  ASSERT_EQ(Run().exit_status, 0);
  const auto before = Published();
  WriteRows(40, "no");
  const RunReport refused = Run();
  EXPECT_EQ(refused.exit_status, 2);
  EXPECT_NE(refused.summary.find("rows.jsonl"), std::string::npos) << refused.summary;
  EXPECT_TRUE(Published() == before);
  const RunReport accepted = Run({.accept_changes = true});
  ASSERT_EQ(accepted.exit_status, 0) << accepted.summary;
  // Another answer has another place in the shuffled order, so files change from there on; what comes before it stays.
  EXPECT_FALSE(Published() == before);
}

TEST_F(RunTest, AcceptedChangesGiveTheBytesOfAFreshRun) {
  ASSERT_EQ(Run().exit_status, 0);
  WriteRows(38, "other");
  WritePipeline("tokenize: {supervise_stop_token: false}\nvocab_map: {size: 50}\n");
  const RunReport refused = Run();
  EXPECT_EQ(refused.exit_status, 2);
  EXPECT_NE(refused.summary.find("vocab_map.size: 32000 -> 50"), std::string::npos) << refused.summary;
  EXPECT_NE(refused.summary.find("tokenize.supervise_stop_token: true -> false"), std::string::npos) << refused.summary;
  ASSERT_EQ(Run({.accept_changes = true}).exit_status, 0);
  const auto accepted = Published();
  fs::remove_all(work());
  ASSERT_EQ(Run().exit_status, 0);
  EXPECT_TRUE(accepted == Published());
}

TEST_F(RunTest, RerunOfTheVocabularyTouchesNothingElse) {
  ASSERT_EQ(Run().exit_status, 0);
  const auto before = Published();
  std::map<std::string, fs::file_time_type> times;
  for (const auto& [name, content] : before) times[name] = fs::last_write_time(work() / name);
  const RunReport rerun = Run({.rerun_stage = "vocab_map"});
  ASSERT_EQ(rerun.exit_status, 0) << rerun.summary;
  EXPECT_TRUE(Published() == before);
  for (const auto& [name, time] : times) {
    const bool is_rewritten = name.starts_with("vocab/") || name == "manifest.json";
    EXPECT_EQ(fs::last_write_time(work() / name) != time, is_rewritten) << name;
  }
}

TEST_F(RunTest, ALostDatabaseIsMadeAgainAndGoodShardsAreKept) {
  ASSERT_EQ(Run().exit_status, 0);
  const auto before = Published();
  std::map<std::string, fs::file_time_type> shard_times;
  for (const auto& [name, content] : before) {
    if (name.starts_with("shards/")) shard_times[name] = fs::last_write_time(work() / name);
  }
  fs::remove(work() / "state.db");
  const RunReport report = Run();
  ASSERT_EQ(report.exit_status, 0) << report.summary;
  EXPECT_TRUE(Published() == before);
  for (const auto& [name, time] : shard_times) EXPECT_EQ(fs::last_write_time(work() / name), time) << name;
}

TEST_F(RunTest, BadRowsAreQuarantinedAndTooManyFail) {
  std::string rows = ReadFile(folder_ / "rows.jsonl");
  Write(folder_ / "rows.jsonl", rows + "{broken\n{\"messages\": []}\n");
  const RunReport report = Run();
  EXPECT_EQ(report.exit_status, 3) << report.summary;
  EXPECT_NE(report.summary.find("broken_json"), std::string::npos) << report.summary;
  Result<StateReader> state = StateReader::Open(work().string());
  ASSERT_TRUE(state.ok());
  const Result<std::vector<FailureRecord>> failures = state->Failures({});
  ASSERT_TRUE(failures.ok());
  ASSERT_EQ(failures->size(), 2U);
  EXPECT_EQ((*failures)[0].line, 41);
  const Result<RunStatus> status = ReadRunStatus(RealFileSystem(), work().string(), RealClock());
  ASSERT_TRUE(status.ok());
  EXPECT_EQ(status->exit_status, ExtractorIsBuilt() ? 3 : 75);
  fs::remove_all(work());
  for (int i = 0; i < 10; ++i) rows += "{broken\n";
  Write(folder_ / "rows.jsonl", rows);
  EXPECT_EQ(Run().exit_status, 1);
}

TEST_F(RunTest, ARowThatAllSourcesLackIsNoSample) {
  Write(folder_ / "rows.jsonl", "{broken\n{\n");
  WritePipeline("");
  std::string text = ReadFile(folder_ / "pipeline.yaml");
  Write(folder_ / "pipeline.yaml",
        text.replace(text.find("min_free_disk: 0"), 16, "min_free_disk: 0, max_bad_fraction: 1"));
  const RunReport report = Run();
  EXPECT_EQ(report.exit_status, 1);
  EXPECT_NE(report.summary.find("no row came out of the sources"), std::string::npos) << report.summary;
}

TEST_F(RunTest, DoesNotDependOnTheCurrentFolder) {
  ASSERT_EQ(Run().exit_status, 0);
  const auto before = Published();
  const std::string run_file = ReadFile(work() / "run.json");
  const fs::path old_folder = fs::current_path();
  fs::current_path(folder_);
  const Result<Config> config = LoadConfig(RealFileSystem(), "pipeline.yaml", {});
  ASSERT_TRUE(config.ok());
  const std::unique_ptr<ProgressSink> progress = MakeSilentProgress();
  RunRequest request{.rerun_stage = "ingest"};
  if (!ExtractorIsBuilt()) request.until_stage = "vocab_map";
  const RunReport report = RunPipeline(*config, request, *progress);
  fs::current_path(old_folder);
  EXPECT_EQ(report.exit_status, 0) << report.summary;
  EXPECT_TRUE(Published() == before);
  EXPECT_EQ(ReadFile(work() / "run.json"), run_file);
}

TEST_F(RunTest, AMissingFileIsNamedBeforeAnythingIsStarted) {
  ASSERT_EQ(Run().exit_status, 0);
  fs::remove(work() / "corpus" / "chunk-000001.safetensors");
  const RunReport report = Run();
  EXPECT_EQ(report.exit_status, 2);
  EXPECT_NE(report.summary.find("corpus/chunk-000001.safetensors"), std::string::npos) << report.summary;
  EXPECT_NE(report.summary.find("verify --repair"), std::string::npos) << report.summary;
}

TEST_F(RunTest, FewerChunksLeaveNoOldFiles) {
  ASSERT_EQ(Run().exit_status, 0);
  WriteRows(11);
  ASSERT_EQ(Run({.accept_changes = true}).exit_status, 0);
  const auto after = Published();
  EXPECT_TRUE(after.contains("corpus/chunk-000001.safetensors"));
  for (const auto& [name, content] : after) {
    EXPECT_EQ(name.find("000002"), std::string::npos) << name;
    EXPECT_EQ(name.find("000003"), std::string::npos) << name;
  }
}

TEST_F(RunTest, RefusesABadModelBeforeAnythingIsStarted) {
  fs::remove(example_.model() / "model.safetensors");
  const RunReport report = Run();
  EXPECT_EQ(report.exit_status, 2);
  EXPECT_FALSE(fs::exists(work()));
}

TEST_F(RunTest, AModelWithoutATemplateIsFoundBeforeAnythingIsStarted) {
  Write(example_.model() / "tokenizer_config.json", json::Write(json::Object{{"eos_token", "<|im_end|>"}}));
  const RunReport report = Run();
  EXPECT_EQ(report.exit_status, 2);
  EXPECT_NE(report.summary.find("has no chat template"), std::string::npos) << report.summary;
  EXPECT_NE(report.summary.find("rows.jsonl"), std::string::npos) << report.summary;
  EXPECT_FALSE(fs::exists(work()));
  // Rows that come with their own ids need none.
  Write(folder_ / "rows.jsonl", "{\"input_ids\": [5, 6, 7], \"loss_mask\": [0, 1, 1]}\n");
  EXPECT_EQ(Run().exit_status, 0);
}

TEST_F(RunTest, PlanSaysWhatWouldRun) {
  const Result<Config> config = LoadConfig(RealFileSystem(), (folder_ / "pipeline.yaml").string(), {});
  ASSERT_TRUE(config.ok());
  const Result<json::Value> plan = PlanRun(*config);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->Find("stages")->as_array().size(), 5U);
  EXPECT_EQ(plan->Find("forecast")->Find("rows")->as_integer(), 40);
  EXPECT_TRUE(plan->Find("disk")->Find("holds_the_states")->as_bool());
  EXPECT_FALSE(fs::exists(work()));
}

TEST_F(RunTest, PlanTakesALimitOfRowsForAllFilesOfAnEntry) {
  const std::string rows = ReadFile(folder_ / "rows.jsonl");
  for (const char* name : {"part-1.jsonl", "part-2.jsonl"}) Write(folder_ / name, rows);
  std::string text = ReadFile(folder_ / "pipeline.yaml");
  const std::string source = "{path: rows.jsonl}";
  Write(folder_ / "pipeline.yaml",
        text.replace(text.find(source), source.size(), "{path: part-*.jsonl, take: 50}, {path: rows.jsonl, take: 3}"));
  const Result<json::Value> plan = PlanRun(example_.Load());
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->Find("forecast")->Find("rows")->as_integer(), 53);
}

TEST_F(RunTest, PlanNamesSourcesOfWhichNoRowCanBeUsed) {
  const Result<json::Value> good = PlanRun(example_.Load());
  ASSERT_TRUE(good.ok()) << good.status().ToString();
  EXPECT_EQ(good->Find("sources_without_samples"), nullptr);
  Write(folder_ / "rows.jsonl", "{\"nothing\": 1}\n\n{\"messages\": []}\n");
  const Result<json::Value> plan = PlanRun(example_.Load());
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  const json::Value* sources = plan->Find("sources_without_samples");
  ASSERT_NE(sources, nullptr);
  ASSERT_EQ(sources->as_array().size(), 1U);
  EXPECT_NE(sources->as_array()[0].Find("path")->as_string().find("rows.jsonl"), std::string::npos);
  EXPECT_EQ(sources->as_array()[0].Find("rows_looked_at")->as_integer(), 2);
  EXPECT_NE(sources->as_array()[0].Find("why")->as_string(), "");
}

TEST_F(RunTest, PlanSaysThatTheDiskIsTooSmallWhereTheRunWouldRefuse) {
  std::string text = ReadFile(folder_ / "pipeline.yaml");
  Write(folder_ / "pipeline.yaml", text.replace(text.find("min_free_disk: 0"), 16, "min_free_disk: 100TiB"));
  const Result<json::Value> plan = PlanRun(example_.Load());
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_FALSE(plan->Find("disk")->Find("holds_the_states")->as_bool());
}

TEST_F(RunTest, AFinishedRunNeedsItsSourcesNoMore) {
  ASSERT_EQ(RunAll().exit_status, 3);
  const auto before = Published();
  fs::remove(folder_ / "rows.jsonl");
  EXPECT_EQ(RunAll().exit_status, 3);
  // What comes after ingest is made from ingested/.
  for (const char* stage : {"tokenize", "vocab_map", "extract"}) {
    const RunReport rerun = RunAll({.rerun_stage = stage});
    EXPECT_EQ(rerun.exit_status, 3) << rerun.summary;
  }
  EXPECT_TRUE(Published() == before);
  EXPECT_TRUE(PlanRun(example_.Load()).ok());
  EXPECT_TRUE(CurrentFingerprints(example_.Load()).ok());
  const RunReport ingest = RunAll({.rerun_stage = "ingest"});
  EXPECT_EQ(ingest.exit_status, 2);
  EXPECT_NE(ingest.summary.find("rows.jsonl"), std::string::npos) << ingest.summary;
  EXPECT_TRUE(Published() == before);
}

TEST_F(RunTest, AWorkFolderMayBeMovedAlone) {
  ASSERT_EQ(RunAll().exit_status, 3);
  const fs::path elsewhere = folder_ / "a" / "b" / "moved";
  fs::create_directories(elsewhere.parent_path());
  fs::rename(work(), elsewhere);
  const Result<Config> config = LoadTarget(RealFileSystem(), elsewhere.string(), {});
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  const std::unique_ptr<ProgressSink> progress = MakeSilentProgress();
  const RunReport report = RunPipeline(*config, {}, *progress, {.make_extractor = &MakeExampleExtractor});
  EXPECT_EQ(report.exit_status, 3) << report.summary;
  EXPECT_TRUE(report.facts.Find("up_to_date")->as_bool());
}

TEST_F(RunTest, AnIngestThatFailsLeavesWhatWasIngested) {
  ASSERT_EQ(RunAll().exit_status, 3);
  const auto before = Published();
  const std::string rows = ReadFile(folder_ / "rows.jsonl");
  // The second file says that it is packed, begins so, and is cut: found only when it is read.
  Write(folder_ / "more.jsonl.gz", std::string("\x1f\x8b\x08\0\0\0\0\0\0\x03", 10) + "\x01");
  const std::string pipeline = ReadFile(folder_ / "pipeline.yaml");
  std::string changed = pipeline;
  Write(folder_ / "pipeline.yaml",
        changed.replace(changed.find("{path: rows.jsonl}"), 18, "{path: rows.jsonl}, {path: more.jsonl.gz}"));
  EXPECT_EQ(RunAll({.accept_changes = true}).exit_status, 1);
  for (const auto& [name, content] : before) {
    if (!name.starts_with("ingested/")) continue;
    EXPECT_TRUE(ReadFile(work() / name) == content) << name;
  }
  Write(folder_ / "pipeline.yaml", pipeline);
  const RunReport report = RunAll({.accept_changes = true});
  EXPECT_EQ(report.exit_status, 3) << report.summary;
  EXPECT_TRUE(Published() == before);
}

TEST_F(RunTest, ASlowDiskGivesTheSameBytes) {
  ASSERT_EQ(RunAll().exit_status, 3);
  const auto before = Published();
  fs::remove_all(work());
  FaultyFileSystem files(RealFileSystem(), work().string());
  files.SetHook([](std::string_view point) {
    if (point.starts_with("sync") || point.starts_with("write:shards/")) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return OkStatus();
  });
  const RunReport report = example_.Run({}, {.files = &files, .make_extractor = &MakeExampleExtractor});
  EXPECT_EQ(report.exit_status, 3) << report.summary;
  EXPECT_TRUE(Published() == before);
}

TEST_F(RunTest, AnIngestStopsBeforeTheDiskIsFull) {
  ASSERT_EQ(RunAll().exit_status, 3);
  const auto before = Published();
  fs::remove_all(work());
  std::string text = ReadFile(folder_ / "pipeline.yaml");
  Write(folder_ / "pipeline.yaml", text.replace(text.find("min_free_disk: 0"), 16, "min_free_disk: 1MiB"));
  FaultyFileSystem files(RealFileSystem(), work().string());
  files.SetHook([&files](std::string_view point) {
    if (point.starts_with("make_folder:ingested.partial")) files.SetFreeBytes(1 << 20);
    return OkStatus();
  });
  const RunReport full = example_.Run({}, {.files = &files, .make_extractor = &MakeExampleExtractor});
  EXPECT_EQ(full.exit_status, 75) << full.summary;
  EXPECT_NE(full.summary.find("limits.min_free_disk keeps"), std::string::npos) << full.summary;
  EXPECT_FALSE(fs::exists(work() / "ingested"));
  const RunReport report = RunAll();
  EXPECT_EQ(report.exit_status, 3) << report.summary;
  EXPECT_TRUE(Published() == before);
}

TEST_F(RunTest, AFileThatIsAddedFollowsAsAnEpoch) {
  fs::create_directory(folder_ / "data");
  Write(folder_ / "data" / "b.jsonl", ReadFile(folder_ / "rows.jsonl"));
  std::string pipeline = ReadFile(folder_ / "pipeline.yaml");
  Write(folder_ / "pipeline.yaml", pipeline.replace(pipeline.find("rows.jsonl"), 10, "data"));
  ASSERT_EQ(RunAll().exit_status, 3);
  const auto before = Published();
  std::map<std::string, fs::file_time_type> shard_times;
  for (const auto& [name, content] : before) {
    if (name.starts_with("shards/")) shard_times[name] = fs::last_write_time(work() / name);
  }
  // Its name sorts before the other's, and one of its rows is known already.
  WriteRows(55);
  Write(folder_ / "data" / "a.jsonl", ReadFile(folder_ / "rows.jsonl"));
  const Result<json::Value> plan = PlanRun(example_.Load());
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->Find("stages")->as_array()[0].Find("action")->as_string(), "run");
  const RunReport grown = RunAll();
  ASSERT_EQ(grown.exit_status, 3) << grown.summary;
  const auto after = Published();
  for (const auto& [name, content] : before) {
    const bool is_chunk =
        name.starts_with("ingested/chunk") || name.starts_with("corpus/") || name.starts_with("shards/");
    EXPECT_TRUE(!is_chunk || after.at(name) == content) << name;
  }
  for (const auto& [name, time] : shard_times) EXPECT_EQ(fs::last_write_time(work() / name), time) << name;
  EXPECT_TRUE(after.contains("shards/000005/c000005-s000.safetensors"));

  // It is so ever after: ingested again, found by the same files, rebuilt from them, or begun without a database.
  ASSERT_EQ(RunAll({.rerun_stage = "ingest"}).exit_status, 3);
  EXPECT_TRUE(Published() == after);
  const std::string facts = StateFacts(work().string());
  fs::remove(work() / "state.db");
  ASSERT_TRUE(RebuildState(RealFileSystem(), RealClock(), work().string(), "test").ok());
  ASSERT_EQ(RunAll().exit_status, 3);
  EXPECT_EQ(FirstDifference(facts, StateFacts(work().string())), "");
  fs::remove(work() / "state.db");
  ASSERT_EQ(RunAll().exit_status, 3);
  EXPECT_TRUE(Published() == after);
  EXPECT_EQ(FirstDifference(facts, StateFacts(work().string())), "");

  // Taken away again it is a change like any other, and what remains is what was there before.
  fs::remove(folder_ / "data" / "a.jsonl");
  EXPECT_EQ(RunAll().exit_status, 2);
  ASSERT_EQ(RunAll({.accept_changes = true}).exit_status, 3);
  EXPECT_TRUE(Published() == before);
}

TEST_F(RunTest, PlanDoesNotPromiseToReuseWhatMayChange) {
  ASSERT_EQ(RunAll().exit_status, 3);
  WriteRows(40, "no");
  const Result<json::Value> plan = PlanRun(example_.Load());
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  std::vector<std::string> actions;
  for (const json::Value& stage : plan->Find("stages")->as_array())
    actions.push_back(stage.Find("action")->as_string());
  EXPECT_EQ(actions, (std::vector<std::string>{"refuse", "compare", "compare", "compare", "compare"}));
}

TEST_F(RunTest, AStopBeforeTheStartIsNoFailure) {
  const StopSignal signals;
  std::raise(SIGTERM);
  const RunReport report = RunAll();
  EXPECT_EQ(report.exit_status, 75) << report.summary;
  EXPECT_FALSE(fs::exists(work()));
}

TEST_F(RunTest, ADatabaseRebuiltFromFilesIsTheLostOne) {
  Write(folder_ / "rows.jsonl", ReadFile(folder_ / "rows.jsonl") + "{broken\n{\"messages\": []}\n");
  ASSERT_EQ(RunAll().exit_status, 3);
  const std::string before = StateFacts(work().string());
  const auto files = Published();
  for (const bool is_damaged : {false, true}) {
    if (is_damaged) Write(work() / "state.db", std::string(8192, 'x'));
    if (!is_damaged) fs::remove(work() / "state.db");
    fs::remove(folder_ / "rows.jsonl");
    const Result<json::Value> rebuilt = RebuildState(RealFileSystem(), RealClock(), work().string(), "test");
    ASSERT_TRUE(rebuilt.ok()) << rebuilt.status().ToString();
    EXPECT_EQ(rebuilt->Find("rejected")->as_integer(), 2);
    const RunReport report = example_.Run({}, {.make_extractor = &MakeIdleExtractor});
    EXPECT_EQ(report.exit_status, 3) << report.summary;
    EXPECT_EQ(FirstDifference(before, StateFacts(work().string())), "");
    EXPECT_TRUE(Published() == files);
  }
  EXPECT_EQ(RebuildState(RealFileSystem(), RealClock(), work().string(), "test").status().code(),
            StatusCode::kConflict);
}

}  // namespace
}  // namespace draftmill

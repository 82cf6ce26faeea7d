// The run as a whole, on a tiny model: what is made, kept, refused and made again. With the engine also the states.
#include "pipeline/run.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "formats/manifest.h"
#include "pipeline/config.h"
#include "pipeline/progress.h"
#include "pipeline/status_report.h"
#include "stages/extract/extractor.h"
#include "stages/extract/test_checkpoint.h"
#include "stages/tokenize/tokenizer/byte_alphabet.h"
#include "state/state_reader.h"

namespace draftmill {
namespace {

namespace fs = std::filesystem;

json::Value TinyConfig() {
  return json::Parse(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 16,
    "intermediate_size": 24, "num_hidden_layers": 7, "num_attention_heads": 2, "num_key_value_heads": 1,
    "rms_norm_eps": 1e-5, "vocab_size": 300, "max_position_embeddings": 256, "tie_word_embeddings": true,
    "rope_theta": 10000.0, "torch_dtype": "bfloat16", "eos_token_id": 257})").value();
}

/// One token a byte, and two control tokens: enough for any text.
json::Value ByteTokenizer() {
  json::Object vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    const char content = static_cast<char>(byte);
    vocabulary.emplace_back(ByteLevelOfBytes({&content, 1}), std::int64_t{byte});
  }
  json::Array added;
  std::int64_t id = 256;
  for (const char* content : {"<|im_start|>", "<|im_end|>"}) {
    added.push_back(json::Object{{"id", id++}, {"content", content}, {"single_word", false}, {"lstrip", false},
                                 {"rstrip", false}, {"normalized", false}, {"special", true}});
  }
  json::Object byte_level{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  return json::Object{{"version", "1.0"},
                      {"added_tokens", std::move(added)},
                      {"normalizer", nullptr},
                      {"pre_tokenizer", byte_level},
                      {"post_processor", nullptr},
                      {"decoder", std::move(byte_level)},
                      {"model", json::Object{{"type", "BPE"}, {"vocab", std::move(vocabulary)}, {"merges", json::Array{}}}}};
}

constexpr const char* kChatMl =
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

class RunTest : public testing::Test {
 protected:
  RunTest() : model_(TinyConfig()) {
    std::string pattern = (fs::temp_directory_path() / "draftmill-run-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    Write(fs::path(model_.folder()) / "tokenizer.json", json::Write(ByteTokenizer()));
    Write(fs::path(model_.folder()) / "tokenizer_config.json",
          json::Write(json::Object{{"chat_template", kChatMl}, {"eos_token", "<|im_end|>"}}));
    WriteRows(40);
    WritePipeline("");
  }
  ~RunTest() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  static void Write(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

  void WriteRows(int count, const std::string& last_answer = "yes") const {
    std::string rows;
    for (int i = 0; i < count; ++i) {
      const std::string answer = i + 1 == count ? last_answer : "the answer to number " + std::to_string(i * i);
      rows += json::Write(json::Object{
                  {"messages", json::Array{json::Object{{"role", "user"}, {"content", "question " + std::to_string(i)}},
                                           json::Object{{"role", "assistant"}, {"content", answer}}}}}) +
              "\n";
    }
    Write(folder_ / "rows.jsonl", rows);
  }

  void WritePipeline(const std::string& more) const {
    Write(folder_ / "pipeline.yaml", "work: work\nmodel: {path: " + model_.folder() +
                                         "}\ningest: {sources: [{path: rows.jsonl}], chunk_rows: 10, shuffle: {seed: 3}}\n"
                                         "write: {shard_bytes: 64KiB}\n"
                                         "limits: {memory: 256MiB, threads: 2, min_free_disk: 0}\n" +
                                         more);
  }

  RunReport Run(RunRequest request = {}) const {
    const Result<Config> config = LoadConfig(RealFileSystem(), (folder_ / "pipeline.yaml").string(), {});
    EXPECT_TRUE(config.ok()) << config.status().ToString();
    if (!ExtractorIsBuilt()) request.until_stage = "vocab_map";
    const std::unique_ptr<ProgressSink> progress = MakeSilentProgress();
    return RunPipeline(*config, request, *progress);
  }

  /// Every published file with its bytes.
  std::map<std::string, std::string> Published() const {
    std::map<std::string, std::string> files;
    for (const char* part : {"ingested", "corpus", "vocab", "shards"}) {
      if (!fs::exists(work() / part)) continue;
      for (const fs::directory_entry& entry : fs::recursive_directory_iterator(work() / part)) {
        if (entry.is_regular_file()) files[fs::relative(entry.path(), work()).string()] = ReadFile(entry.path());
      }
    }
    if (fs::exists(work() / "manifest.json")) files["manifest.json"] = ReadFile(work() / "manifest.json");
    return files;
  }

  fs::path work() const { return folder_ / "work"; }

  TestCheckpoint model_;
  fs::path folder_;
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
  std::int64_t span_ms = 0;
  const Result<std::vector<ThroughputRecord>> points = state->Throughput("extract", 1000);
  ASSERT_TRUE(points.ok());
  for (const ThroughputRecord& point : *points) span_ms += point.span_ms;
  EXPECT_GT(computing_ms, 0);
  EXPECT_GE(static_cast<double>(span_ms) + 2, computing_ms);
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
  Write(folder_ / "pipeline.yaml", text.replace(text.find("min_free_disk: 0"), 16, "min_free_disk: 0, max_bad_fraction: 1"));
  const RunReport report = Run();
  EXPECT_EQ(report.exit_status, 1);
  EXPECT_NE(report.summary.find("no row gave a sample"), std::string::npos) << report.summary;
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
  fs::remove(fs::path(model_.folder()) / "model.safetensors");
  const RunReport report = Run();
  EXPECT_EQ(report.exit_status, 2);
  EXPECT_FALSE(fs::exists(work()));
}

TEST_F(RunTest, PlanSaysWhatWouldRun) {
  const Result<Config> config = LoadConfig(RealFileSystem(), (folder_ / "pipeline.yaml").string(), {});
  ASSERT_TRUE(config.ok());
  const Result<json::Value> plan = PlanRun(*config);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->Find("stages")->as_array().size(), 5U);
  EXPECT_EQ(plan->Find("forecast")->Find("rows")->as_integer(), 40);
  EXPECT_FALSE(fs::exists(work()));
}

}  // namespace
}  // namespace draftmill

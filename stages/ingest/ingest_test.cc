// Which rows ingest takes, from files of every kind. What goes wrong: ingest_faults_test.cc; their order: ingest_order_test.cc.
#include "stages/ingest/ingest.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/test_data.h"
#include "stages/ingest/ingest_fixture.h"
#include "stages/ingest/rejected_rows.h"

namespace draftmill {
namespace {

TEST_F(IngestTest, ReadsSourcesInTheirOrder) {
  WriteFile(Data("b/2.jsonl"), Row("q", "3") + "\n" + Row("q", "4") + "\n");
  WriteFile(Data("b/10.jsonl"), Row("q", "2") + "\n");
  WriteFile(Data("b/deep/x.json"), "[" + Row("q", "5") + ",\n " + Row("q", "6") + "]");
  WriteFile(Data("b/notes.txt"), "not data");
  WriteFile(Data("b/.hidden.jsonl"), "not data");
  WriteFile(Data("a.jsonl"), Row("q", "7"));
  WriteFile(Data("c1.jsonl"), Row("q", "0"));
  WriteFile(Data("c2.jsonl"), Row("q", "1"));
  IngestOptions options = Options({"c?.jsonl", "b", "a.jsonl"});
  const IngestSummary summary = RunWell(options);
  EXPECT_EQ(Answers(), (std::vector<std::string>{"0", "1", "2", "3", "4", "5", "6", "7"}));
  EXPECT_EQ(summary.sources.size(), 6U);
  EXPECT_EQ(summary.sources[0].format, "prompt_completion");
  options.deduplicate = false;
  RunWell(options);
  EXPECT_EQ(Answers().size(), 8U);
}

TEST_F(IngestTest, ReadsPackedFilesOfSeveralMembers) {
  const std::string text = Row("q", "0") + "\n" + Row("q", "1") + "\n" + Row("q", "2") + "\n";
  const std::string first = text.substr(0, 50);
  const std::string second = text.substr(50);
  WriteFile(Data("a.jsonl.gz"), Gzip(first) + Gzip("") + Gzip(second) + std::string(512, '\0'));
  WriteFile(Data("b.jsonl.zst"),
            Zstd(first) + Zstd("") + std::string("\x50\x2A\x4D\x18\x03\0\0\0abc", 11) + Zstd(second));
  for (const char* name : {"a.jsonl.gz", "b.jsonl.zst"}) {
    RunWell(Options({name}));
    EXPECT_EQ(Answers(), (std::vector<std::string>{"0", "1", "2"})) << name;
    EXPECT_EQ(sink_.conversations[2].place.line, 3);
    EXPECT_EQ(sink_.conversations[2].place.byte_offset, static_cast<std::int64_t>(2 * (Row("q", "0").size() + 1)));
  }
}

TEST_F(IngestTest, QuarantinesBadRowsWithReasonAndPlace) {
  const std::vector<std::pair<std::string, std::string>> rows = {
      {Row("q", "good"), ""},
      {"{\"prompt\": \"x", "broken_json"},
      {"{\"prompt\": \"\xFF\"}", "broken_utf8"},
      {R"({"prompt": "\ud83d", "completion": "x"})", "lone_surrogate"},
      {R"({"prompt": "a", "prompt": "b", "completion": "x"})", "duplicate_key"},
      {Row("q", std::string(3000, 'x')), "row_too_long"},
      {R"({"messages":[{"role":"visitor","content":"x"}]})", "unknown_role"},
      {R"({"messages":[]})", "empty_conversation"},
      {R"({"messages":[{"role":"user","content":"x"}]})", "no_assistant_turn"},
      {R"({"prompt": 3, "completion": "x"})", "wrong_type"},
      {R"({"messages":[{"role":"assistant","content":"x","loss_weight":0.25}]})", "unsupported_weight"},
      {R"({"question":"x"})", "unknown_form"},
      {std::string(500, '['), "too_deep"},
      {R"({"messages":[{"role":"user","content":[{"type":"image"}]}]})", "unsupported_part"}};
  std::string text;
  std::vector<std::int64_t> offsets;
  for (const auto& [row, reason] : rows) {
    offsets.push_back(static_cast<std::int64_t>(text.size()));
    text += row + "\n";
  }
  WriteFile(Data("a.jsonl"), text);
  IngestOptions options = Options({"a.jsonl"});
  options.max_row_bytes = 2048;
  const IngestSummary summary = RunWell(options);
  EXPECT_EQ(summary.kept(), 1);
  ASSERT_EQ(sink_.failures.size(), rows.size() - 1);
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const Failure& failure = sink_.failures[i - 1];
    EXPECT_EQ(failure.reason, rows[i].second) << failure.message;
    EXPECT_EQ(failure.stage, "ingest");
    EXPECT_EQ(failure.place.row, static_cast<std::int64_t>(i));
    EXPECT_EQ(failure.place.line, static_cast<std::int64_t>(i) + 1);
    EXPECT_EQ(failure.place.byte_offset, offsets[i]);
    EXPECT_FALSE(failure.message.empty());
  }
  std::size_t i = 1;
  const Status read = ForEachRejectedRow(RealFileSystem(), work(), [&](const json::Value& row) {
    EXPECT_EQ(row.Find("reason")->as_string(), rows[i].second);
    EXPECT_EQ(row.Find("file")->as_string(), Data("a.jsonl"));
    EXPECT_EQ(row.Find("line")->as_integer(), static_cast<std::int64_t>(i) + 1);
    const bool is_shown = rows[i].second != "broken_utf8" && rows[i].second != "row_too_long";
    EXPECT_EQ(row.Find("raw") != nullptr, is_shown);
    if (is_shown) {
      EXPECT_EQ(row.Find("raw")->as_string(), rows[i].first);
    }
    ++i;
    return OkStatus();
  });
  EXPECT_TRUE(read.ok()) << read.ToString();
  EXPECT_EQ(i, rows.size());
}

TEST_F(IngestTest, RefusesBadSourcesByName) {
  const std::string good = Row("q", "a") + "\n";
  WriteFile(Data("empty.jsonl"), "");
  WriteFile(Data("blank.jsonl"), "\n  \n");
  WriteFile(Data("x.parquet"), "PAR1....");
  WriteFile(Data("disguised.jsonl"), "PAR1....");
  WriteFile(Data("wide.jsonl"), std::string_view("\xFF\xFE{\0}\0", 6));
  WriteFile(Data("wide2.jsonl"), std::string_view("{\0\"\0", 4));
  WriteFile(Data("x.csv"), "a,b");
  WriteFile(Data("fake.jsonl.gz"), good);
  WriteFile(Data("fake.jsonl.zst"), good);
  WriteFile(Data("folder/readme.md"), "x");
  WriteFile(Data("mixed/a.jsonl"), good);
  WriteFile(Data("mixed/b.parquet"), "PAR1");
  const std::string zstd = Zstd(good);
  const std::string gzip = Gzip(good);
  WriteFile(Data("cut.jsonl.zst"), zstd.substr(0, zstd.size() - 5));
  WriteFile(Data("cut.jsonl.gz"), gzip.substr(0, gzip.size() - 5));
  std::string damaged = gzip;
  damaged[damaged.size() - 6] = static_cast<char>(damaged[damaged.size() - 6] ^ 1);
  WriteFile(Data("damaged.jsonl.gz"), damaged);
  WriteFile(Data("tail.jsonl.zst"), zstd + "garbage");

  ExpectRefusal(Options({"missing.jsonl"}), StatusCode::kNotFound, {"missing.jsonl", "ingest.sources[0]"});
  ExpectRefusal(Options({"missing*.jsonl"}), StatusCode::kNotFound, {"missing*.jsonl"});
  ExpectRefusal(Options({"folder"}), StatusCode::kNotFound, {"folder", ".jsonl"});
  ExpectRefusal(Options({"empty.jsonl"}), StatusCode::kInvalidInput, {"empty.jsonl", "empty"});
  ExpectRefusal(Options({"blank.jsonl"}), StatusCode::kInvalidInput, {"blank.jsonl", "no rows"});
  ExpectRefusal(Options({"x.parquet"}), StatusCode::kUnsupported, {"x.parquet", "tools/parquet_to_jsonl.py"});
  ExpectRefusal(Options({"mixed"}), StatusCode::kUnsupported, {"b.parquet", "tools/parquet_to_jsonl.py"});
  ExpectRefusal(Options({"disguised.jsonl"}), StatusCode::kUnsupported,
                {"disguised.jsonl", "tools/parquet_to_jsonl.py"});
  ExpectRefusal(Options({"wide.jsonl"}), StatusCode::kUnsupported, {"wide.jsonl", "UTF-16", "iconv"});
  ExpectRefusal(Options({"wide2.jsonl"}), StatusCode::kUnsupported, {"wide2.jsonl", "UTF-16"});
  ExpectRefusal(Options({"x.csv"}), StatusCode::kUnsupported, {"x.csv", ".jsonl"});
  ExpectRefusal(Options({"fake.jsonl.gz"}), StatusCode::kInvalidInput, {"fake.jsonl.gz", "gzip"});
  ExpectRefusal(Options({"fake.jsonl.zst"}), StatusCode::kInvalidInput, {"fake.jsonl.zst", "zstd"});
  ExpectRefusal(Options({"cut.jsonl.zst"}), StatusCode::kInvalidInput,
                {"cut.jsonl.zst", "at byte " + std::to_string(zstd.size() - 5), "cut"});
  ExpectRefusal(Options({"cut.jsonl.gz"}), StatusCode::kInvalidInput,
                {"cut.jsonl.gz", "at byte " + std::to_string(gzip.size() - 5), "cut"});
  ExpectRefusal(Options({"damaged.jsonl.gz"}), StatusCode::kInvalidInput, {"damaged.jsonl.gz", "damaged"});
  ExpectRefusal(Options({"tail.jsonl.zst"}), StatusCode::kInvalidInput, {"tail.jsonl.zst", "damaged"});
}

// Files of a later epoch change no byte of what is there, whatever the order and wherever duplicates stand.
TEST_F(IngestTest, ALaterEpochFollowsInChunksOfItsOwn) {
  std::string first;
  std::string second;
  for (int i = 0; i < 25; ++i) first += Row("q", std::to_string(i)) + "\n";
  for (int i = 20; i < 40; ++i) second += Row("q", std::to_string(i)) + "\n";
  WriteFile(Data("b.jsonl"), first);
  WriteFile(Data("a.jsonl"), second);
  for (const bool is_shuffled : {true, false}) {
    for (const bool deduplicates : {true, false}) {
      IngestOptions options = Options({"b.jsonl"});
      options.chunk_rows = 10;
      options.deduplicate = deduplicates;
      if (is_shuffled) options.shuffle_seed = 7;
      RunWell(options);
      const auto before = PublishedFiles();
      const std::vector<std::string> order = Answers();

      options.sources.push_back({Data("a.jsonl"), RowForm::kAuto, {}, {}});
      const Result<std::vector<SourceFile>> files = FindSourceFiles(options.sources, RealFileSystem());
      ASSERT_TRUE(files.ok());
      options.files = *files;
      options.files.back().epoch = 1;
      const IngestSummary summary = RunWell(options);
      const auto after = PublishedFiles();
      for (const auto& [name, content] : before) {
        const bool is_chunk = name.find("/chunk-") != std::string::npos;
        EXPECT_TRUE(!is_chunk || after.at(name) == content) << name;
      }
      ASSERT_EQ(summary.chunks.size(), 5U);
      EXPECT_EQ(summary.chunks[2].rows, 5);
      for (const IngestedChunkFacts& chunk : summary.chunks) EXPECT_EQ(chunk.epoch, chunk.chunk < 3 ? 0 : 1);
      EXPECT_EQ(summary.sources[1].epoch, 1);
      EXPECT_EQ(summary.sources[1].duplicates, deduplicates ? 5 : 0);
      std::vector<std::string> grown = Answers();
      EXPECT_EQ(grown.size(), deduplicates ? 40U : 45U);
      EXPECT_EQ(std::is_sorted(grown.begin() + 25, grown.end()), !is_shuffled);
      grown.resize(25);
      EXPECT_EQ(grown, order);
    }
  }
}

// A run whose work folder lies among its sources would feed on what it made, more with every start.
TEST_F(IngestTest, PassesOverWorkFoldersBelowASource) {
  WriteFile(Data("a.jsonl"), Row("q", "a") + "\n");
  WriteFile(Data("more/b.jsonl"), Row("r", "b") + "\n");
  for (const char* mark : {"state.db", "run.json", "run.lock"}) {
    WriteFile(Data(std::string("work-") + mark + "/" + mark), "");
    WriteFile(Data(std::string("work-") + mark + "/ingested/chunk-000000.jsonl"), Row("q", mark) + "\n");
  }
  EXPECT_EQ(RunWell(Options({""})).kept(), 2);
  EXPECT_EQ(RunWell(Options({"*"})).kept(), 2);
  // One that is named itself gives what lies beside the run's own files: data, pipeline file and run in one folder.
  for (const char* own : {"run.json", "manifest.json", "exports/jsonl/train.jsonl", "logs/log.jsonl"}) {
    WriteFile(Data("work-run.json/" + std::string(own)), Row("s", own) + "\n");
  }
  WriteFile(Data("work-run.json/mine.jsonl"), Row("t", "mine") + "\n");
  for (const char* named : {"work-run.json", "work-run.json/*", "work-run.json/*.json*"}) {
    EXPECT_EQ(RunWell(Options({named})).kept(), 1) << named;
    EXPECT_EQ(Answers().back(), "mine") << named;
  }
  // A folder of it that is named by itself is a source like any other.
  EXPECT_EQ(RunWell(Options({"work-run.lock/ingested"})).kept(), 1);
}

TEST_F(IngestTest, TakesTheFirstRowsOrAShare) {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += Row("q", std::to_string(i)) + "\n";
  WriteFile(Data("1.jsonl"), "broken\n" + text);
  WriteFile(Data("2.jsonl"), text);
  IngestOptions options = Options({"?.jsonl"});
  options.deduplicate = false;
  options.sources[0].take_rows = 2500;
  IngestSummary summary = RunWell(options);
  EXPECT_EQ(summary.kept(), 2500);
  EXPECT_EQ(summary.sources[0].rows, 2001);
  EXPECT_EQ(summary.sources[1].rows, 500);
  EXPECT_EQ(Answers().back(), "499");

  options.sources[0].take_rows.reset();
  options.sources[0].take_fraction = 0.25;
  summary = RunWell(options);
  EXPECT_NEAR(static_cast<double>(summary.sources[0].kept), 500, 60);
  EXPECT_EQ(summary.sources[0].kept, summary.sources[1].kept) << "the choice is by content";
  EXPECT_EQ(summary.sources[0].not_taken, 2000 - summary.sources[0].kept);
}

TEST_F(IngestTest, WhatIsReadBeyondATakenRowChangesNothing) {
  std::string text;
  for (int i = 0; i < 50; ++i) text += Row("q", std::to_string(i)) + "\n";
  const std::string packed = Zstd(text);
  WriteFile(Data("cut.jsonl.zst"), packed + packed.substr(0, packed.size() - 4));
  for (const int threads : {1, 4}) {
    IngestOptions options = Options({"cut.jsonl.zst"});
    options.threads = threads;
    options.sources[0].take_rows = 20;
    EXPECT_EQ(RunWell(options).kept(), 20);
    EXPECT_TRUE(sink_.failures.empty());
  }
}

TEST_F(IngestTest, PassesOverALineOfFiftyMegabytes) {
  WriteFile(Data("a.jsonl"), Row("q", "0") + "\n" + Row("q", std::string(50 << 20, 'x')) + "\n" + Row("q", "1"));
  const IngestSummary summary = RunWell(Options({"a.jsonl"}));
  EXPECT_EQ(Answers(), (std::vector<std::string>{"0", "1"}));
  ASSERT_EQ(sink_.failures.size(), 1U);
  EXPECT_EQ(sink_.failures[0].reason, "row_too_long");
  EXPECT_EQ(sink_.failures[0].place.line, 2);
}

/// Every file of the collection that states which rows are read is read so.
TEST_F(IngestTest, ReadsTheFilesOfTheFieldCases) {
  DRAFTMILL_TEST_DATA_OR_SKIP(folder, "field_cases/text");
  int checked = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const Result<json::Value> description = json::Parse(ReadFile((entry.path() / "case.json").string()));
    ASSERT_TRUE(description.ok());
    if (description->Find("oracle")->as_string() != "file") continue;
    ++checked;
    IngestOptions options;
    options.sources.push_back(
        {(entry.path() / description->Find("input")->as_string()).string(), RowForm::kAuto, {}, {}});
    RunWell(options);
    std::size_t row = 0;
    std::size_t failure = 0;
    const Result<IngestedChunk> chunk = ReadIngestedChunk(RealFileSystem(), work(), 0);
    for (const json::Value& right : description->Find("right")->Find("rows")->as_array()) {
      const bool is_rejected = right.Find("rejected") != nullptr;
      const RowPlace& place = is_rejected ? sink_.failures.at(failure++).place : chunk->rows.at(row).place;
      EXPECT_EQ(place.line, right.Find("line")->as_integer()) << entry.path();
      EXPECT_EQ(place.byte_offset, right.Find("offset")->as_integer()) << entry.path();
      if (is_rejected) continue;
      EXPECT_EQ(json::Write(chunk->rows.at(row++).conversation), json::Write(*right.Find("row")));
    }
    EXPECT_EQ(row, chunk->rows.size());
    EXPECT_EQ(failure, sink_.failures.size());
  }
  EXPECT_EQ(checked, 3);
}

/// Real files in all forms: how many rows are good is known from reading them with Python.
TEST_F(IngestTest, ReadsRealFiles) {
  DRAFTMILL_TEST_DATA_OR_SKIP(folder, "conversations");
  struct Expected {
    const char* path;
    const char* format;
    std::int64_t kept_and_duplicates;
    std::int64_t rejected;
  };
  for (const Expected& expected : {Expected{"llamafactory/glaive_toolcall_en_demo.json", "sharegpt", 300, 0},
                                   Expected{"llamafactory/identity.json", "alpaca", 91, 0},
                                   Expected{"llamafactory/reason_tool_use_demo_50.jsonl", "messages", 50, 0},
                                   Expected{"fastchat/dummy_conversation.json", "sharegpt", 500, 0}}) {
    IngestOptions options;
    options.sources.push_back({folder + "/" + expected.path, RowForm::kAuto, {}, {}});
    options.threads = 2;
    const IngestSummary summary = RunWell(options);
    ASSERT_EQ(summary.sources.size(), 1U);
    EXPECT_EQ(summary.sources[0].format, expected.format) << expected.path;
    EXPECT_EQ(summary.sources[0].kept + summary.sources[0].duplicates, expected.kept_and_duplicates) << expected.path;
    EXPECT_EQ(summary.sources[0].rejected, expected.rejected) << expected.path;
    for (const Failure& failure : sink_.failures) ADD_FAILURE() << failure.reason << ": " << failure.message;
  }
}

}  // namespace
}  // namespace draftmill

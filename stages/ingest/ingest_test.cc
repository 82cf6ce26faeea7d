#include "stages/ingest/ingest.h"

#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include "base/test_data.h"
#include "stages/ingest/rejected_rows.h"
#include "state/faulty_file_system.h"
#include "state/temporary_folder.h"

namespace draftmill {
namespace {

void WriteFile(const std::string& path, std::string_view content) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << content;
}

std::string ReadFile(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::string Zstd(std::string_view text) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
  return packed;
}

std::string Gzip(std::string_view text) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string packed(deflateBound(&stream, text.size()) + 64, '\0');
  std::string input(text);
  stream.next_in = reinterpret_cast<Bytef*>(input.data());
  stream.avail_in = static_cast<uInt>(input.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

std::string Row(const std::string& question, const std::string& answer) {
  json::Object row;
  row.emplace_back("prompt", question);
  row.emplace_back("completion", answer);
  return json::Write(json::Value(std::move(row)));
}

/// Takes down everything that ingest tells.
class NotingSink : public IngestSink {
 public:
  Status AddChunk(const IngestedChunkFacts& facts, std::vector<ConversationPlace> rows) override {
    EXPECT_EQ(facts.rows, static_cast<std::int64_t>(rows.size()));
    chunks.push_back(facts);
    conversations.insert(conversations.end(), rows.begin(), rows.end());
    return OkStatus();
  }
  Status AddFailures(std::vector<Failure> more) override {
    failures.insert(failures.end(), more.begin(), more.end());
    return OkStatus();
  }
  void ReportProgress(const IngestProgress& now) override {
    EXPECT_GE(now.bytes_read, progress.bytes_read);
    EXPECT_GE(now.rows_read, progress.rows_read);
    EXPECT_GE(now.rows_written, progress.rows_written);
    progress = now;
  }

  std::vector<IngestedChunkFacts> chunks;
  std::vector<ConversationPlace> conversations;
  std::vector<Failure> failures;
  IngestProgress progress;
};

class IngestTest : public ::testing::Test {
 protected:
  std::string Data(const std::string& name) const { return folder_.path() + "/data/" + name; }
  std::string work() const { return folder_.path() + "/work"; }

  IngestOptions Options(std::vector<std::string> names) const {
    IngestOptions options;
    for (const std::string& name : names) options.sources.push_back({Data(name), RowForm::kAuto, {}, {}});
    return options;
  }

  Result<IngestSummary> Run(const IngestOptions& options) {
    sink_ = NotingSink();
    return Ingest(options, RealFileSystem(), work(), sink_, [] { return false; });
  }

  /// Runs it, expects success, and checks all that must hold of any result.
  IngestSummary RunWell(const IngestOptions& options) {
    Result<IngestSummary> result = Run(options);
    EXPECT_TRUE(result.ok()) << result.status().ToString();
    if (!result.ok()) return {};
    const IngestSummary summary = std::move(result).value();
    std::int64_t sample = 0;
    std::map<std::int32_t, std::int64_t> kept;
    for (const IngestedChunkFacts& facts : summary.chunks) {
      const Result<IngestedChunk> chunk = ReadIngestedChunk(RealFileSystem(), work(), facts.chunk, facts.digest);
      EXPECT_TRUE(chunk.ok()) << chunk.status().ToString();
      if (!chunk.ok()) continue;
      EXPECT_EQ(facts.first_sample, sample);
      EXPECT_EQ(facts.rows, static_cast<std::int64_t>(chunk->rows.size()));
      EXPECT_LE(facts.rows, options.chunk_rows);
      for (const IngestedRow& row : chunk->rows) {
        const ConversationPlace& place = sink_.conversations[static_cast<std::size_t>(sample)];
        EXPECT_EQ(row.sample_id, sample++);
        EXPECT_EQ(place.sample_id, row.sample_id);
        EXPECT_EQ(place.chunk, facts.chunk);
        EXPECT_EQ(place.content_hash, row.content_hash);
        EXPECT_EQ(row.content_hash, HashBytes128(ContentForHash(row.conversation)));
        ++kept[row.place.source];
      }
    }
    EXPECT_EQ(summary.chunks, sink_.chunks);
    EXPECT_EQ(summary.kept(), sample);
    EXPECT_EQ(summary.rejected(), static_cast<std::int64_t>(sink_.failures.size()));
    for (std::size_t i = 0; i < summary.sources.size(); ++i) {
      const SourceSummary& source = summary.sources[i];
      EXPECT_EQ(source.rows, source.kept + source.duplicates + source.rejected + source.not_taken) << source.path;
      EXPECT_EQ(source.kept, kept[static_cast<std::int32_t>(i)]);
      EXPECT_EQ(source.content_hash, HashBytes128(ReadFile(source.path)));
    }
    EXPECT_EQ(sink_.progress.bytes_read, sink_.progress.bytes_total);
    EXPECT_EQ(sink_.progress.rows_written, summary.kept());
    EXPECT_FALSE(std::filesystem::exists(work() + "/ingested/spill"));
    const Result<IngestSummary> stored = ReadIngestSummary(RealFileSystem(), work());
    EXPECT_TRUE(stored.ok()) << stored.status().ToString();
    if (stored.ok()) {
      EXPECT_EQ(stored->chunks, summary.chunks);
      for (std::size_t i = 0; i < summary.sources.size(); ++i) {
        EXPECT_EQ(stored->sources[i].epoch, summary.sources[i].epoch);
      }
    }
    return summary;
  }

  /// The last message of every conversation in global order.
  std::vector<std::string> Answers() {
    std::vector<std::string> answers;
    for (const IngestedChunkFacts& facts : sink_.chunks) {
      const Result<IngestedChunk> chunk = ReadIngestedChunk(RealFileSystem(), work(), facts.chunk);
      for (const IngestedRow& row : chunk->rows) {
        answers.push_back(row.conversation.Find("messages")->as_array().back().Find("content")->as_string());
      }
    }
    return answers;
  }

  std::map<std::string, std::string> PublishedFiles() const {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(work())) {
      if (entry.is_regular_file()) files[entry.path().string()] = ReadFile(entry.path().string());
    }
    return files;
  }

  void ExpectRefusal(const IngestOptions& options, StatusCode code, const std::vector<std::string>& words) {
    const Result<IngestSummary> result = Run(options);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.status().code(), code) << result.status().ToString();
    for (const std::string& word : words) {
      EXPECT_NE(result.status().message().find(word), std::string::npos) << word << " in " << result.status().message();
    }
  }

  TemporaryFolder folder_;
  NotingSink sink_;
};

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
  // Named by itself it is a source like any other.
  EXPECT_EQ(RunWell(Options({"work-run.lock/ingested"})).kept(), 1);
}

TEST_F(IngestTest, HarmsNothingWhereASourceIsMissing) {
  WriteFile(Data("a.jsonl"), Row("q", "a"));
  RunWell(Options({"a.jsonl"}));
  const auto before = PublishedFiles();
  ExpectRefusal(Options({"a.jsonl", "missing.jsonl"}), StatusCode::kNotFound, {"missing.jsonl"});
  EXPECT_EQ(PublishedFiles(), before);
}

// Whether it was appended to, cut, written over or replaced: rows of a file that changes are of no one content.
TEST_F(IngestTest, RefusesAFileThatIsNotWhatTheRunWasBegunWith) {
  const std::string path = Data("a.jsonl");
  const std::string rows = Row("q", "a") + "\n" + Row("r", "b") + "\n";
  IngestOptions options = Options({"a.jsonl"});
  for (const std::string& now :
       {rows + Row("s", "c") + "\n", Row("q", "a") + "\n", Row("q", "x") + "\n" + Row("r", "b") + "\n"}) {
    WriteFile(path, rows);
    options.files = *FindSourceFiles(options.sources, RealFileSystem());
    options.files[0].content = HashBytes128(rows);
    EXPECT_TRUE(Run(options).ok());
    WriteFile(path, now);
    // Also where not all of it is wanted.
    for (const std::optional<std::int64_t> taken : {std::optional<std::int64_t>(), std::optional<std::int64_t>(1)}) {
      options.sources[0].take_rows = taken;
      const Result<IngestSummary> summary = Run(options);
      EXPECT_EQ(summary.status().code(), StatusCode::kConflict) << summary.status().ToString();
      EXPECT_NE(summary.status().message().find("a.jsonl changed while it was read"), std::string::npos);
    }
    options.sources[0].take_rows.reset();
  }
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

/// The rows that stay, in global order, by sorting all of them in memory.
std::vector<std::string> NaiveOrder(const std::vector<std::string>& answers, const IngestOptions& options) {
  struct Known {
    std::uint64_t key;
    Hash128 hash;
    std::size_t row;
  };
  std::vector<Known> rows;
  std::set<std::string> seen;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (options.deduplicate && !seen.insert(answers[i]).second) continue;
    const Hash128 hash = HashBytes128(R"({"messages":[{"content":"q","role":"user"},{"content":")" + answers[i] +
                                      R"(","role":"assistant"}]})");
    const std::string_view bytes(reinterpret_cast<const char*>(hash.bytes.data()), 16);
    rows.push_back({options.shuffle_seed ? HashBytes64(bytes, *options.shuffle_seed) : 0, hash, i});
  }
  if (options.shuffle_seed) {
    std::sort(rows.begin(), rows.end(), [](const Known& a, const Known& b) {
      return std::tie(a.key, a.hash, a.row) < std::tie(b.key, b.hash, b.row);
    });
  }
  std::vector<std::string> order;
  for (const Known& row : rows) order.push_back(answers[row.row]);
  return order;
}

TEST_F(IngestTest, GivesTheSameBytesWhateverTheThreadsAndTheMemory) {
  std::mt19937 random(5);
  std::vector<std::string> answers;
  for (int i = 0; i < 3000; ++i) {
    const bool is_repeat = !answers.empty() && random() % 4 == 0;
    answers.push_back(is_repeat ? answers[random() % answers.size()]
                                : std::to_string(random()) + std::string(random() % 60, 'x'));
  }
  for (int i = 0; i < 300; ++i) answers.push_back("often");
  for (int file = 0; file < 3; ++file) {
    std::string text;
    for (std::size_t i = static_cast<std::size_t>(file) * answers.size() / 3;
         i < (static_cast<std::size_t>(file) + 1) * answers.size() / 3; ++i) {
      text += Row("q", answers[i]) + "\n";
    }
    WriteFile(Data(std::to_string(file) + ".jsonl"), text);
  }
  for (const bool deduplicate : {true, false}) {
    for (const bool shuffle : {true, false}) {
      IngestOptions options = Options({"*.jsonl"});
      options.deduplicate = deduplicate;
      if (shuffle) options.shuffle_seed = 7;
      options.chunk_rows = 500;
      options.chunk_bytes = 60000;
      const IngestSummary summary = RunWell(options);
      EXPECT_EQ(Answers(), NaiveOrder(answers, options)) << deduplicate << shuffle;
      const auto expected = PublishedFiles();
      for (const auto& [threads, memory] : std::vector<std::pair<int, std::int64_t>>{{2, 1 << 26}, {4, 5000}}) {
        options.threads = threads;
        options.memory_bytes = memory;
        RunWell(options);
        EXPECT_EQ(PublishedFiles(), expected) << threads << " threads, " << memory << " bytes";
      }
    }
  }
}

TEST_F(IngestTest, SeedsAndContentChangeTheOrder) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += Row("q", std::to_string(i)) + "\n";
  WriteFile(Data("a.jsonl"), text);
  IngestOptions options = Options({"a.jsonl"});
  std::set<std::vector<std::string>> orders;
  for (const std::uint64_t seed : {0, 1, 2}) {
    options.shuffle_seed = seed;
    RunWell(options);
    orders.insert(Answers());
  }
  EXPECT_EQ(orders.size(), 3U);
}

TEST_F(IngestTest, PassesOverALineOfFiftyMegabytes) {
  WriteFile(Data("a.jsonl"), Row("q", "0") + "\n" + Row("q", std::string(50 << 20, 'x')) + "\n" + Row("q", "1"));
  const IngestSummary summary = RunWell(Options({"a.jsonl"}));
  EXPECT_EQ(Answers(), (std::vector<std::string>{"0", "1"}));
  ASSERT_EQ(sink_.failures.size(), 1U);
  EXPECT_EQ(sink_.failures[0].reason, "row_too_long");
  EXPECT_EQ(sink_.failures[0].place.line, 2);
}

TEST_F(IngestTest, StopsWhenAskedAndStartsAnew) {
  std::string text;
  for (int i = 0; i < 20000; ++i) text += Row("q", std::to_string(i)) + "\n";
  WriteFile(Data("a.jsonl"), text);
  IngestOptions options = Options({"a.jsonl"});
  options.shuffle_seed = 1;
  options.chunk_rows = 500;
  RunWell(options);
  const auto expected = PublishedFiles();
  for (const int calls : {0, 3, 14}) {
    int left = calls;
    sink_ = NotingSink();
    const Result<IngestSummary> result = Ingest(options, RealFileSystem(), work(), sink_, [&] { return left-- <= 0; });
    EXPECT_EQ(result.status().code(), StatusCode::kCancelled);
    EXPECT_FALSE(std::filesystem::exists(work() + "/ingested/index.json"));
  }
  RunWell(options);
  EXPECT_EQ(PublishedFiles(), expected);
}

TEST_F(IngestTest, NoticesDamagedChunks) {
  WriteFile(Data("a.jsonl"), Row("q", "a"));
  const IngestSummary summary = RunWell(Options({"a.jsonl"}));
  const std::string path = IngestedChunkPath(work(), 0);
  const std::string good = ReadFile(path);
  for (std::size_t i = 0; i < good.size(); i += 3) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x20);
    WriteFile(path, bad);
    const Result<IngestedChunk> chunk = ReadIngestedChunk(RealFileSystem(), work(), 0, summary.chunks[0].digest);
    ASSERT_FALSE(chunk.ok());
    EXPECT_EQ(chunk.status().code(), StatusCode::kCorrupt);
    EXPECT_NE(chunk.status().message().find("chunk-000000"), std::string::npos);
  }
  std::filesystem::remove(path);
  EXPECT_EQ(ReadIngestedChunk(RealFileSystem(), work(), 0).status().code(), StatusCode::kNotFound);
}

/// Whatever goes wrong, and whenever: ingest says so, no index stands beside half a set of chunks, and the next try
/// makes the same bytes as an undisturbed one.
TEST_F(IngestTest, SurvivesFullDisksFailedOperationsAndPowerCuts) {
  std::string text = "broken\n";
  for (int i = 0; i < 300; ++i) text += Row("q", std::to_string(i % 200)) + "\n";
  WriteFile(Data("a.jsonl"), text);
  IngestOptions options = Options({"a.jsonl"});
  options.chunk_rows = 60;
  options.memory_bytes = 20000;
  RunWell(options);
  const auto expected = PublishedFiles();

  sink_ = NotingSink();
  FaultyFileSystem counting(RealFileSystem(), folder_.path());
  ASSERT_TRUE(Ingest(options, counting, work(), sink_, [] { return false; }).ok());
  const auto points = static_cast<int>(counting.Points().size());
  ASSERT_GT(points, 30);
  for (int nth = 1; nth <= points; nth += 11) {
    FaultyFileSystem faulty(RealFileSystem(), folder_.path());
    int left = nth;
    faulty.SetHook([&](std::string_view) { return --left == 0 ? DiskFull("injected") : OkStatus(); });
    sink_ = NotingSink();
    const Result<IngestSummary> result = Ingest(options, faulty, work(), sink_, [] { return false; });
    ASSERT_EQ(result.status().code(), StatusCode::kDiskFull) << nth;
    ASSERT_TRUE(faulty.PowerCut(nth % 2 == 0 ? Unsynced::kLost : Unsynced::kNamesSurvive).ok());
    const Result<IngestSummary> stored = ReadIngestSummary(RealFileSystem(), work());
    if (!stored.ok()) continue;
    for (const IngestedChunkFacts& facts : stored->chunks) {
      EXPECT_TRUE(ReadIngestedChunk(RealFileSystem(), work(), facts.chunk, facts.digest).ok()) << nth;
    }
  }
  RunWell(options);
  EXPECT_EQ(PublishedFiles(), expected);
}

TEST_F(IngestTest, NamesTheFileThatCannotBeRead) {
  WriteFile(Data("a.jsonl"), Row("q", "a"));
  FaultyFileSystem faulty(RealFileSystem(), folder_.path());
  faulty.Inject({.point = "open:data/a.jsonl", .status = ErrnoStatus(EACCES, "open " + Data("a.jsonl"))});
  const Result<IngestSummary> result = Ingest(Options({"a.jsonl"}), faulty, work(), sink_, [] { return false; });
  EXPECT_EQ(result.status().code(), StatusCode::kIo);
  EXPECT_NE(result.status().message().find("a.jsonl: Permission denied"), std::string::npos)
      << result.status().message();
  EXPECT_FALSE(std::filesystem::exists(work()));
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

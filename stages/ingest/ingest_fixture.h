// What tests of ingest share: files to be read, a sink that notes everything, and runs of which all is checked that must hold
// of any. For tests only.
#pragma once

#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stages/ingest/ingest.h"
#include "state/temporary_folder.h"

namespace draftmill {

inline void WriteFile(const std::string& path, std::string_view content) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << content;
}

inline std::string ReadFile(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

inline std::string Zstd(std::string_view text) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
  return packed;
}

inline std::string Gzip(std::string_view text) {
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

inline std::string Row(const std::string& question, const std::string& answer) {
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

}  // namespace draftmill

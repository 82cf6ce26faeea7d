// What becomes of the rows where something goes wrong: missing and changing sources, stops, damage, full disks, power cuts.
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "stages/ingest/ingest_fixture.h"
#include "state/faulty_file_system.h"

namespace draftmill {
namespace {

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

}  // namespace
}  // namespace draftmill

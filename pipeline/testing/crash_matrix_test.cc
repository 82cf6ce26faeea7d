// Whatever moment a run ends at, continuing it gives the same bytes and the same rows: pipeline/testing/crash_matrix.h.
//
// DRAFTMILL_CRASH_POINTS=all tries every point with every ending, DRAFTMILL_CRASH_POINTS=2/6 the second of six parts of
// them; otherwise those that stand for the others.
#include "pipeline/testing/crash_matrix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/test_clock.h"

#if defined(__SANITIZE_THREAD__)
// A run that is ended at a point leaves threads that nobody joins, some of them at their end.
extern "C" const char* __tsan_default_options() {  // NOLINT(bugprone-reserved-identifier): the sanitizer's name
  return "report_thread_leaks=0";
}
#endif

namespace draftmill {
namespace {

/// In memory where that can be: the matrix asks what would be on a disk, not how long a disk takes.
std::filesystem::path Place() {
  std::error_code ignored;
  const std::filesystem::path memory = "/dev/shm";
  return std::filesystem::is_directory(memory, ignored) ? memory : std::filesystem::temp_directory_path();
}

/// Every `parts`-th point, the `part`-th of them first (from 0).
struct Part {
  std::size_t part = 0;
  std::size_t parts = 1;
};

/// Which of all points are wanted; nothing where those that stand for the others are.
std::optional<Part> WantedPart() {
  const char* wanted = std::getenv("DRAFTMILL_CRASH_POINTS");
  if (wanted == nullptr) return std::nullopt;
  unsigned part = 1;
  unsigned parts = 1;
  if (std::string_view(wanted) == "all" || std::sscanf(wanted, "%u/%u", &part, &parts) == 2)
    return Part{part - 1, parts};
  return std::nullopt;
}

std::vector<CrashPoint> Take(const Part& part, const std::vector<CrashPoint>& points) {
  std::vector<CrashPoint> taken;
  for (std::size_t i = part.part; i < points.size(); i += part.parts) taken.push_back(points[i]);
  return taken;
}

class CrashMatrixTest : public testing::Test {
 protected:
  CrashMatrixTest() {
    // Two chunks, some batches in each, more than one shard: small, so that the matrix is many runs and not long ones. Not
    // the last layer: the check of its states would load libtorch in each of them, which takes longer than the rest.
    example_.WriteRows(12);
    example_.WritePipeline(
        "extract: {layers: [1, 3, 4, 5], batch_tokens: 256, block_tokens: 512}\nvocab_map: {size: 200}\n", 7);
  }

  const ExampleRun example_{Place()};
};

/// The fast suite tries one point of so many: each is a run that ends and one that continues.
constexpr int kStride = kSanitizerSlowdown > 1 ? 240 : 120;

constexpr Ending kEndings[] = {Ending::kKill, Ending::kPowerCut, Ending::kPowerCutNamesSurvive};

/// Tries the points that are wanted; where those that stand for the others are, one of `every` of them.
void TryPoints(CrashMatrix& matrix, const char* what, std::size_t every = 1) {
  ASSERT_EQ(matrix.failure(), "");
  const std::optional<Part> part = WantedPart();
  const std::vector<CrashPoint> points =
      part ? Take(*part, matrix.points()) : Take({.part = 0, .parts = every}, matrix.Chosen(kStride));
  int differences = 0;
  for (std::size_t i = 0; i < points.size() && differences < 20; ++i) {
    for (std::size_t ending = 0; ending < std::size(kEndings); ++ending) {
      // Of some points each has the ending whose turn it is.
      if (!part && ending != i % std::size(kEndings)) continue;
      const std::string difference = matrix.Try(points[i], kEndings[ending]);
      EXPECT_EQ(difference, "");
      if (!difference.empty()) ++differences;
    }
  }
  std::printf("crash matrix, %s: %zu of %zu points, %s, %d runs ended and continued, %d differ\n", what, points.size(),
              matrix.points().size(), part ? "each with every ending" : "each with one of three endings",
              matrix.ended_runs(), differences);
}

TEST_F(CrashMatrixTest, SomePoints) {
  CrashMatrix matrix(example_);
  TryPoints(matrix, "a run from nothing");
}

// A finished run that a file is added to: ingest replaces what is there, and all that is published must come through.
TEST_F(CrashMatrixTest, SomePointsOfAnEpoch) {
  CrashMatrix matrix(example_, [this] {
    ExampleRun::Write(example_.folder() / "more.jsonl",
                      R"({"prompt": "one more question", "completion": "one more answer"})"
                      "\n");
    const std::filesystem::path pipeline = example_.folder() / "pipeline.yaml";
    std::string text = ExampleRun::Read(pipeline);
    const std::string source = "{path: rows.jsonl}";
    text.insert(text.find(source) + source.size(), ", {path: more.jsonl}");
    ExampleRun::Write(pipeline, text);
  });
  // Most of its points are those of a run from nothing once more.
  TryPoints(matrix, "a file is added", 4);
}

// Shards are deleted once they are published: the deletion is a point like any other.
TEST_F(CrashMatrixTest, SomePointsOfARunThatDiscardsItsShards) {
  example_.EditPipeline("{shard_bytes: 64KiB}", "{shard_bytes: 64KiB, discard_after_publish: true}");
  CrashMatrix matrix(example_);
  ASSERT_EQ(matrix.failure(), "");
  const auto is_deletion = [](const CrashPoint& point) {
    return point.name.starts_with("remove:shards/") && point.name.ends_with(".safetensors");
  };
  EXPECT_TRUE(std::any_of(matrix.points().begin(), matrix.points().end(), is_deletion));
  TryPoints(matrix, "shards are discarded", 4);
}

// A program that forgot one sync is caught: the matrix can fail.
TEST_F(CrashMatrixTest, FindsAMissingSync) {
  // Not vocab/, the manifest and the log of state.db: a run makes the first two again when it finds them damaged, and what
  // the third forgot it finds in the files.
  for (const char* sync : {"sync:ingested.partial/", "sync:corpus/", "sync_folder:corpus", "sync:shards/"}) {
    CrashMatrix matrix(example_);
    ASSERT_EQ(matrix.failure(), "");
    matrix.OmitSyncs(sync);
    std::string found;
    // From the end: what was not synced hurts when much has been built on it.
    const std::vector<CrashPoint> points = matrix.Chosen(1000);
    for (auto point = points.rbegin(); point != points.rend() && found.empty(); ++point) {
      found = matrix.Try(*point, Ending::kPowerCutNamesSurvive);
      if (found.empty()) found = matrix.Try(*point, Ending::kPowerCut);
    }
    EXPECT_NE(found, "") << sync;
  }
}

}  // namespace
}  // namespace draftmill

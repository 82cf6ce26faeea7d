// Whatever moment a run ends at, continuing it gives the same bytes and the same rows: pipeline/crash_matrix.h.
//
// DRAFTMILL_CRASH_POINTS=all tries every point with every ending; otherwise those that stand for the others.
#include "pipeline/crash_matrix.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "base/test_clock.h"

namespace draftmill {
namespace {

/// In memory where that can be: the matrix asks what would be on a disk, not how long a disk takes.
std::filesystem::path Place() {
  std::error_code ignored;
  const std::filesystem::path memory = "/dev/shm";
  return std::filesystem::is_directory(memory, ignored) ? memory : std::filesystem::temp_directory_path();
}

bool TriesAll() {
  const char* wanted = std::getenv("DRAFTMILL_CRASH_POINTS");
  return wanted != nullptr && std::string_view(wanted) == "all";
}

class CrashMatrixTest : public testing::Test {
 protected:
  CrashMatrixTest() {
    // Two chunks, some batches in each, more than one shard: small, so that the matrix is many runs and not long ones.
    example_.WriteRows(12);
    example_.WritePipeline("extract: {batch_tokens: 256, block_tokens: 512}\nvocab_map: {size: 200}\n", 7);
  }

  const ExampleRun example_{Place()};
};

/// The fast suite tries one point of so many: each is a run that ends and one that continues.
constexpr int kStride = kSanitizerSlowdown > 1 ? 240 : 60;

constexpr Ending kEndings[] = {Ending::kKill, Ending::kPowerCut, Ending::kPowerCutNamesSurvive};

TEST_F(CrashMatrixTest, SomePoints) {
  CrashMatrix matrix(example_);
  ASSERT_EQ(matrix.failure(), "");
  const std::vector<CrashPoint> points = TriesAll() ? matrix.points() : matrix.Chosen(kStride);
  int differences = 0;
  for (std::size_t i = 0; i < points.size() && differences < 20; ++i) {
    for (std::size_t ending = 0; ending < std::size(kEndings); ++ending) {
      // Of some points each has the ending whose turn it is.
      if (!TriesAll() && ending != i % std::size(kEndings)) continue;
      const std::string difference = matrix.Try(points[i], kEndings[ending]);
      EXPECT_EQ(difference, "");
      if (!difference.empty()) ++differences;
    }
  }
  std::printf("crash matrix: %zu of %zu points, %s, %d runs ended and continued, %d differ\n", points.size(),
              matrix.points().size(), TriesAll() ? "each with every ending" : "each with one of three endings",
              matrix.ended_runs(), differences);
}

// A program that forgot one sync is caught: the matrix can fail.
TEST_F(CrashMatrixTest, FindsAMissingSync) {
  // Not vocab/ and not the log of state.db: a run makes the first again from the corpus when it finds it damaged, and what
  // the second forgot it finds in the files.
  for (const char* sync : {"sync:ingested.partial/", "sync:corpus/", "sync_folder:corpus", "sync:shards/", "sync:manifest.json"}) {
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

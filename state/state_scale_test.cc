// What people ask must not take longer with the number of samples, and writing must keep up with ingest.
//
// DRAFTMILL_SCALE_SAMPLES changes the number of samples; the slow run takes ten million.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "state/example_state.h"
#include "state/state_reader.h"
#include "state/store.h"
#include "state/temporary_folder.h"

namespace draftmill {
namespace {

constexpr std::int64_t kRowsPerChunk = 4000;

std::int64_t Samples() {
  const char* text = std::getenv("DRAFTMILL_SCALE_SAMPLES");
  return text == nullptr ? 1'000'000 : std::atoll(text);
}

/// The shortest of five times: what it takes, not what else the machine did.
template <typename Call>
std::int64_t BestNs(Call call) {
  std::int64_t best_ns = INT64_MAX;
  for (int i = 0; i < 5; ++i) {
    const std::int64_t begin_ns = RealClock().MonotonicNs();
    EXPECT_TRUE(call());
    best_ns = std::min(best_ns, RealClock().MonotonicNs() - begin_ns);
  }
  return best_ns;
}

TEST(StateScaleTest, QuestionsAreAnsweredInMilliseconds) {
  const TemporaryFolder folder;
  const ExampleShape shape{.chunks = Samples() / kRowsPerChunk,
                           .rows_per_chunk = kRowsPerChunk,
                           .samples_per_batch = 20,
                           .batches_per_shard = 10,
                           .written_chunks = Samples() / kRowsPerChunk - 2};
  const std::int64_t begin_ns = RealClock().MonotonicNs();
  {
    auto state = StateWriter::Open(folder.path(), {.create = true});
    ASSERT_TRUE(state.ok());
    const Status filled = FillExample(**state, shape);
    ASSERT_TRUE(filled.ok()) << filled.ToString();
    ASSERT_TRUE((*state)->Close().ok());
  }
  RecordProperty("fill_ms", std::to_string((RealClock().MonotonicNs() - begin_ns) / 1'000'000));
  auto reader = StateReader::Open(folder.path());
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(reader->Progress()->at(1).total, shape.chunks * kRowsPerChunk);
  constexpr std::int64_t kLimitNs = 20'000'000;
  EXPECT_LT(BestNs([&] { return reader->Progress().ok(); }), kLimitNs);
  EXPECT_LT(BestNs([&] { return reader->FindSample(Samples() / 2).ok(); }), kLimitNs);
  EXPECT_LT(BestNs([&] { return reader->Chunks().ok(); }), kLimitNs);
  EXPECT_LT(BestNs([&] { return reader->Samples(shape.chunks / 2).ok(); }), kLimitNs);
  EXPECT_LT(BestNs([&] { return reader->FailuresByReason().ok(); }), kLimitNs);
}

}  // namespace
}  // namespace draftmill

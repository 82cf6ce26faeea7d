#include "pipeline/progress/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <thread>

#include "pipeline/progress/progress_board.h"

namespace draftmill {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t kSecond = 1'000'000'000;

StageProgress Tokenize(std::int64_t done, std::int64_t tokens) {
  return {.stage = "tokenize",
          .unit = "samples",
          .done = done,
          .total = 1000,
          .tokens = tokens,
          .bytes = 0,
          .buffer_fill = 0.4};
}

TEST(ProgressBoardTest, RatesLeaveOutWhatAnEarlierRunDid) {
  ProgressBoard board;
  EXPECT_TRUE(board.Update(Tokenize(500, 50'000), 0));
  EXPECT_FALSE(board.Update(Tokenize(600, 60'000), 10 * kSecond));
  const StageView view = board.View(10 * kSecond)[0];
  EXPECT_DOUBLE_EQ(view.done_per_second, 10);
  EXPECT_DOUBLE_EQ(view.tokens_per_second, 1000);
  ASSERT_TRUE(view.eta_seconds.has_value());
  EXPECT_DOUBLE_EQ(*view.eta_seconds, 40);
}

TEST(ProgressBoardTest, RatesFollowTheLastSecondsAndSinkInAStall) {
  ProgressBoard board;
  for (int second = 0; second <= 60; ++second) board.Update(Tokenize(second, 0), second * kSecond);
  for (int second = 61; second <= 100; ++second) board.Update(Tokenize(60 + 10 * (second - 60), 0), second * kSecond);
  EXPECT_NEAR(board.View(100 * kSecond)[0].done_per_second, 10, 0.7);
  EXPECT_LT(board.View(160 * kSecond)[0].done_per_second, 3);
}

TEST(ProgressBoardTest, AFinishedStageShowsItsMeanRate) {
  ProgressBoard board;
  board.Update(Tokenize(0, 0), 0);
  StageProgress done = Tokenize(1000, 5000);
  done.activity = StageActivity::kDone;
  EXPECT_TRUE(board.Update(done, 20 * kSecond));
  const StageView view = board.View(500 * kSecond)[0];
  EXPECT_DOUBLE_EQ(view.done_per_second, 50);
  EXPECT_DOUBLE_EQ(view.running_seconds, 20);
  EXPECT_THAT(RenderLine(view),
              HasSubstr("1,000 of 1,000 samples (100 %), 50 samples/s, 250 tokens/s, done in 20.0 s"));
}

TEST(ProgressBoardTest, WaitingDoesNotCount) {
  ProgressBoard board;
  StageProgress waiting = Tokenize(0, 0);
  waiting.activity = StageActivity::kWaiting;
  board.Update(waiting, 0);
  board.Update(Tokenize(0, 0), 100 * kSecond);
  board.Update(Tokenize(100, 0), 110 * kSecond);
  EXPECT_DOUBLE_EQ(board.View(110 * kSecond)[0].done_per_second, 10);
}

TEST(ProgressViewTest, NinetyNinePointNineIsNotAll) {
  ProgressBoard board;
  board.Update({.stage = "extract", .done = 999'999, .total = 1'000'000}, 0);
  EXPECT_THAT(RenderLine(board.View(kSecond)[0]), HasSubstr("(99.9 %)"));
}

TEST(ProgressViewTest, FitsEveryWidth) {
  ProgressBoard board;
  board.Update({.stage = "extract", .done = 0, .total = 37'312, .tokens = 1, .bytes = 0, .buffer_fill = 0.25}, 0);
  board.Update({.stage = "extract",
                .done = 18'421,
                .total = 37'312,
                .tokens = 43'000'000,
                .bytes = std::int64_t{1} << 41,
                .buffer_fill = 0.25},
               100 * kSecond);
  const std::vector<StageView> view = board.View(100 * kSecond);
  for (int columns = 1; columns <= 200; ++columns) {
    const std::vector<std::string> rows = RenderLiveRows(view, columns);
    ASSERT_EQ(rows.size(), 1U);
    EXPECT_LE(rows[0].size(), static_cast<std::size_t>(columns));
  }
  const std::string wide = RenderLiveRows(view, 160)[0];
  for (const char* part : {"extract", "49.3 %", "[#######.........]", "18,421/37,312 samples", "184/s", "430 k tok/s",
                           "ETA 1 m 43 s", "buffer 25 %", "2.00 TiB"}) {
    EXPECT_THAT(wide, HasSubstr(part));
  }
  EXPECT_THAT(RenderLiveRows(view, 40)[0], Not(HasSubstr("buffer")));
}

TEST(ProgressTest, AFileGetsPlainLinesWithEverythingThatWasTold) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  {
    auto progress = MakeProgress(ends[1], RealClock());
    progress->Line("resuming");
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&progress, t] {
        for (int i = 0; i <= 250; ++i) {
          progress->Update({.stage = "stage " + std::to_string(t), .unit = "rows", .done = i, .total = 250});
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  close(ends[1]);
  std::string text(65536, '\0');
  std::size_t used = 0;
  for (ssize_t got = 0; (got = read(ends[0], text.data() + used, text.size() - used)) > 0;)
    used += static_cast<std::size_t>(got);
  close(ends[0]);
  text.resize(used);
  EXPECT_THAT(text, HasSubstr("resuming\n"));
  for (int t = 0; t < 4; ++t) EXPECT_THAT(text, HasSubstr("stage " + std::to_string(t) + ": 250 of 250 rows (100 %)"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace draftmill

#include "pipeline/flow/chunk_flow.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <random>
#include <thread>

namespace draftmill {
namespace {

std::vector<ChunkTicket> Tickets(int count, std::int64_t cost) {
  std::vector<ChunkTicket> tickets;
  for (int i = 0; i < count; ++i) tickets.push_back({i, cost});
  return tickets;
}

/// Steps that do nothing but sleep at random and note the order in which they were called.
struct RecordedSteps {
  std::mutex mutex;
  std::vector<int> accounted;
  std::vector<int> finished;
  std::vector<std::pair<int, int>> written;
  std::atomic<int> in_flight{0};
  std::atomic<int> most_in_flight{0};
  int batches = 3;

  ChunkSteps Make() {
    ChunkSteps steps;
    steps.tokenize = [this](ChunkWork& work) {
      const int now = ++in_flight;
      int most = most_in_flight;
      while (now > most && !most_in_flight.compare_exchange_weak(most, now)) {
      }
      std::mt19937 random(static_cast<unsigned>(work.ticket.chunk));
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
      work.tokens.chunk = work.ticket.chunk;
      return OkStatus();
    };
    steps.account = [this](ChunkWork& work) {
      accounted.push_back(work.tokens.chunk);
      work.batch_wanted.assign(static_cast<std::size_t>(batches), true);
      return OkStatus();
    };
    steps.extract = [this](const ChunkWork& work, const std::function<Status(BatchStates)>& emit) -> Status {
      for (int i = 0; i < batches; ++i) {
        BatchStates states;
        states.chunk = work.tokens.chunk;
        states.batch = i;
        states.hidden_states.resize(500);
        DRAFTMILL_RETURN_IF_ERROR(emit(std::move(states)));
      }
      return OkStatus();
    };
    steps.write = [this](const ChunkWork& work, BatchStates states) {
      EXPECT_EQ(work.ticket.chunk, states.chunk);
      written.emplace_back(states.chunk, states.batch);
      return OkStatus();
    };
    steps.finish = [this](const ChunkWork& work) {
      finished.push_back(work.ticket.chunk);
      --in_flight;
      return OkStatus();
    };
    return steps;
  }
};

const std::function<bool()> kNeverStop = [] { return false; };

TEST(ChunkFlowTest, KeepsTheOrderAndTheBounds) {
  for (const int threads : {1, 2, 4}) {
    RecordedSteps recorded;
    const ChunkSteps steps = recorded.Make();
    ChunkFlowPeaks peaks;
    ASSERT_TRUE(RunChunkFlow(Tickets(50, 10), steps, {threads, 40, 2500}, kNeverStop, &peaks).ok());
    ASSERT_EQ(recorded.accounted.size(), 50U);
    ASSERT_EQ(recorded.finished.size(), 50U);
    for (int i = 0; i < 50; ++i) {
      EXPECT_EQ(recorded.accounted[static_cast<std::size_t>(i)], i);
      EXPECT_EQ(recorded.finished[static_cast<std::size_t>(i)], i);
      for (int b = 0; b < 3; ++b)
        EXPECT_EQ(recorded.written[static_cast<std::size_t>(3 * i + b)], std::make_pair(i, b));
    }
    EXPECT_LE(recorded.most_in_flight, 4);
    EXPECT_LE(peaks.chunk_bytes, 40);
    EXPECT_LE(peaks.states_bytes, 2500);
  }
}

TEST(ChunkFlowTest, AChunkLargerThanTheBudgetPassesAlone) {
  RecordedSteps recorded;
  const ChunkSteps steps = recorded.Make();
  ASSERT_TRUE(RunChunkFlow(Tickets(5, 1000), steps, {2, 10, 10}, kNeverStop, nullptr).ok());
  EXPECT_EQ(recorded.finished.size(), 5U);
  EXPECT_EQ(recorded.most_in_flight, 1);
}

TEST(ChunkFlowTest, AFailureStopsTheSourceAndIsReturned) {
  RecordedSteps recorded;
  ChunkSteps steps = recorded.Make();
  steps.write = [](const ChunkWork& work, const BatchStates&) {
    return work.ticket.chunk == 3 ? DiskFull("planted") : OkStatus();
  };
  const Status status = RunChunkFlow(Tickets(1000, 10), steps, {2, 40, 2500}, kNeverStop, nullptr);
  EXPECT_EQ(status.code(), StatusCode::kDiskFull);
  EXPECT_EQ(recorded.finished.size(), 3U);
  EXPECT_LT(recorded.accounted.size(), 100U);
}

TEST(ChunkFlowTest, StopsOnRequestAndFinishesWhatWasLetIn) {
  RecordedSteps recorded;
  const ChunkSteps steps = recorded.Make();
  std::atomic<int> asked{0};
  const std::function<bool()> stop_soon = [&] { return ++asked > 10; };
  const Status status = RunChunkFlow(Tickets(1000, 10), steps, {2, 40, 2500}, stop_soon, nullptr);
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_EQ(recorded.finished.size(), recorded.accounted.size());
  EXPECT_LT(recorded.finished.size(), 20U);
}

TEST(ChunkFlowTest, TellsWhenTheWriterIsSlowerThanTheEngine) {
  for (const bool slow : {true, false}) {
    RecordedSteps recorded;
    recorded.batches = 60;
    ChunkSteps steps = recorded.Make();
    if (!slow) {
      const auto extract = steps.extract;
      steps.extract = [extract](const ChunkWork& work, const std::function<Status(BatchStates)>& emit) {
        return extract(work, [&](BatchStates states) {
          std::this_thread::sleep_for(std::chrono::milliseconds(4));
          return emit(std::move(states));
        });
      };
    }
    steps.write = [slow](const ChunkWork&, const BatchStates&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(slow ? 4 : 0));
      return OkStatus();
    };
    std::vector<WriterSpan> spans;
    steps.paced = [&](const WriterSpan& span) { spans.push_back(span); };
    ASSERT_TRUE(RunChunkFlow(Tickets(1, 10), steps, {2, 40, 2500, 0.1}, kNeverStop, nullptr).ok());
    ASSERT_FALSE(spans.empty());
    EXPECT_EQ(spans[0].disk_is_slower(), slow) << Describe(spans[0]);
    EXPECT_GT(spans[0].bytes, 0);
  }
}

TEST(ChunkFlowTest, TellsHowFullTheQueueOfStatesIs) {
  RecordedSteps recorded;
  ChunkSteps steps = recorded.Make();
  std::mutex mutex;
  std::vector<double> fills;
  steps.states_queued = [&](double fill) {
    const std::lock_guard<std::mutex> lock(mutex);
    fills.push_back(fill);
  };
  // A batch has 1,000 bytes of states; the writer waits until one more stands in the queue.
  steps.write = [&, write = steps.write](const ChunkWork& work, BatchStates states) {
    for (bool waits = states.batch == 0; waits; std::this_thread::yield()) {
      const std::lock_guard<std::mutex> lock(mutex);
      waits = std::count(fills.begin(), fills.end(), 0.5) == 0;
    }
    return write(work, std::move(states));
  };
  ASSERT_TRUE(RunChunkFlow(Tickets(1, 10), steps, {2, 40, 2000}, kNeverStop, nullptr).ok());
  EXPECT_EQ(fills.size(), 6U);  // each of three batches comes and goes
  EXPECT_EQ(fills.back(), 0.0);
}

TEST(ChunkFlowTest, PassesWithoutExtraction) {
  RecordedSteps recorded;
  ChunkSteps steps = recorded.Make();
  steps.extract = nullptr;
  ASSERT_TRUE(RunChunkFlow(Tickets(20, 10), steps, {2, 40, 2500}, kNeverStop, nullptr).ok());
  EXPECT_EQ(recorded.finished.size(), 20U);
  EXPECT_TRUE(recorded.written.empty());
}

}  // namespace
}  // namespace draftmill

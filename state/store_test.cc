#include "state/store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "state/example_state.h"
#include "state/schema.h"
#include "state/state_reader.h"
#include "state/temporary_folder.h"
#include "state/written_at.h"

namespace draftmill {
namespace {

using testing::HasSubstr;

class StoreTest : public testing::Test {
 protected:
  std::unique_ptr<StateWriter> Open(StateWriterOptions options = {.create = true}) {
    Result<std::unique_ptr<StateWriter>> state = StateWriter::Open(folder_.path(), std::move(options));
    EXPECT_TRUE(state.ok()) << state.status().ToString();
    return std::move(state).value();
  }
  StateReader Read() {
    Result<StateReader> reader = StateReader::Open(folder_.path());
    EXPECT_TRUE(reader.ok()) << reader.status().ToString();
    return std::move(reader).value();
  }

  TemporaryFolder folder_;
};

/// Whether a process holds a lock on any byte of the file, asked from another process.
bool IsLocked(const std::string& path) {
  const pid_t child = fork();
  if (child == 0) {
    struct flock range {};
    range.l_type = F_WRLCK;
    range.l_whence = SEEK_SET;
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    _exit(fd >= 0 && ::fcntl(fd, F_GETLK, &range) == 0 && range.l_type != F_UNLCK ? 1 : 0);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 1;
}

// POSIX locks belong to the process: closing any descriptor of the file drops them, and then somebody else's connection
// could fold in and remove the log under a run that goes on writing to it.
TEST_F(StoreTest, ReadingInTheSameProcessKeepsTheLocks) {
  const auto state = Open();
  ASSERT_TRUE(state->BeginRun({.host = "h", .pid = 1}).ok());
  const std::string path = StateDatabasePath(folder_.path());
  ASSERT_TRUE(IsLocked(path));
  ASSERT_TRUE(Read().LastRun().ok());
  EXPECT_TRUE(IsLocked(path));
}

// Each checkpoint changes the file: a kill behind it must still cost no check of every page.
TEST_F(StoreTest, RemembersTheFileBehindEachCheckpoint) {
  const auto state = Open();
  const std::string path = StateDatabasePath(folder_.path());
  FileSystem& files = RealFileSystem();
  std::int64_t size = files.Stat(path)->size_bytes;
  int checkpoints = 0;
  for (int i = 0; checkpoints < 3 && i < 100; ++i) {
    // A hundred pages.
    ASSERT_TRUE(state->Wait(state->SetFact("fact " + std::to_string(i), std::string(400'000, 'x'))).ok());
    if (files.Stat(path)->size_bytes != size) ++checkpoints;
    size = files.Stat(path)->size_bytes;
    Result<sqlite::Connection> reader = OpenForReading(files, path);
    ASSERT_TRUE(reader.ok());
    EXPECT_TRUE(*IsAsWritten(files, *reader, path)) << i;
  }
  EXPECT_EQ(checkpoints, 3);
  EXPECT_TRUE(state->Close().ok());
}

TEST_F(StoreTest, NamesRunsForPeople) {
  const auto state = Open();
  const Result<RunRecord> run = state->BeginRun({.host = "h", .pid = 1});
  ASSERT_TRUE(run.ok()) << run.status().ToString();
  EXPECT_THAT(run->name, testing::MatchesRegex("[a-z]+-[a-z]+"));
  EXPECT_EQ(run->run, 1);
  EXPECT_GT(run->started_ms, 0);
  ASSERT_TRUE(state->Wait(state->FinishRun(75, "{}")).ok());
  StateReader reader = Read();
  const auto last = reader.LastRun();
  ASSERT_TRUE(last.ok());
  EXPECT_EQ((*last)->exit_status, 75);
  EXPECT_TRUE((*last)->finished_ms.has_value());
}

TEST_F(StoreTest, ReadersSeeWhatIsDurableWhileARunWrites) {
  const auto state = Open();
  ASSERT_TRUE(FillExample(*state, {}).ok());
  std::atomic<bool> stop = false;
  std::thread writing([&] {
    for (int i = 0; !stop; ++i) static_cast<void>(state->Wait(state->SetFact("count", std::to_string(i))));
  });
  std::int64_t last_seen = -1;
  for (int i = 0; i < 50; ++i) {
    StateReader reader = Read();
    const auto progress = reader.Progress();
    ASSERT_TRUE(progress.ok()) << progress.status().ToString();
    EXPECT_EQ(progress->size(), 5U);
    const auto fact = reader.Fact("count");
    ASSERT_TRUE(fact.ok());
    const std::int64_t seen = fact->has_value() ? std::stoll(**fact) : -1;
    EXPECT_GE(seen, last_seen);
    last_seen = seen;
  }
  stop = true;
  writing.join();
  EXPECT_TRUE(state->Close().ok());
}

TEST_F(StoreTest, ManyThreadsWriteInTheirOwnOrder) {
  constexpr int kThreads = 4;
  constexpr int kWrites = 200;
  StateWriterOptions options{.create = true};
  options.max_queued_writes = 8;
  const auto state = Open(std::move(options));
  ASSERT_TRUE(state->BeginRun({.name = "tidy-heron"}).ok());
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kWrites; ++i) {
        state->AddEvent(EventLevel::kInfo, std::to_string(t) + "/" + std::to_string(i));
        if (i % 50 == 0) {
          EXPECT_TRUE(state->Flush().ok());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(state->Close().ok());
  StateReader reader = Read();
  const auto events = reader.Events(0, kThreads * kWrites + 1);
  ASSERT_TRUE(events.ok());
  ASSERT_EQ(events->size(), static_cast<std::size_t>(kThreads * kWrites));
  std::vector<int> next(kThreads, 0);
  for (const EventRecord& event : *events) {
    const auto thread = static_cast<std::size_t>(event.text[0] - '0');
    EXPECT_EQ(event.text.substr(2), std::to_string(next[thread]++));
  }
}

TEST_F(StoreTest, AFailedWriteTakesBackItsGroupAndStopsTheWriter) {
  const auto state = Open();
  ASSERT_TRUE(state->Wait(state->SetFact("durable", "yes")).ok());
  const StateWriter::Ticket bad = state->Submit([](sqlite::Connection&) { return Internal("made to fail"); });
  EXPECT_EQ(state->Wait(bad).code(), StatusCode::kInternal);
  EXPECT_THAT(state->failure().message(), HasSubstr("made to fail"));
  EXPECT_FALSE(state->Wait(state->SetFact("later", "yes")).ok());
  EXPECT_FALSE(state->Flush().ok());
  EXPECT_FALSE(state->Close().ok());
  StateReader reader = Read();
  EXPECT_EQ(*reader.Fact("durable"), "yes");
  EXPECT_EQ(*reader.Fact("later"), std::nullopt);
}

TEST_F(StoreTest, WaitersBehindAFailureAreReleased) {
  StateWriterOptions options{.create = true};
  options.max_queued_writes = 1;
  const auto state = Open(std::move(options));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        state->Submit([](sqlite::Connection&) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
          return Internal("made to fail");
        });
      }
      EXPECT_FALSE(state->Flush().ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(StoreTest, AFullDiskIsWaitedOutWhereAsked) {
  std::atomic<int> asked = 0;
  StateWriterOptions options{.create = true};
  options.retry_full_disk = [&](const Status&) { return ++asked < 3; };
  const auto state = Open(std::move(options));
  const auto full_until = [&](int times) {
    return [&asked, times](sqlite::Connection& db) -> Status {
      if (asked < times) return DiskFull("made to fail");
      return db.Run("INSERT INTO facts VALUES ('a', 'b')");
    };
  };
  EXPECT_TRUE(state->Wait(state->Submit(full_until(2))).ok());
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(state->Wait(state->Submit(full_until(100))).code(), StatusCode::kDiskFull);
}

TEST_F(StoreTest, ClosingLeavesOneFile) {
  const auto state = Open();
  ASSERT_TRUE(FillExample(*state, {}).ok());
  ASSERT_TRUE(state->Close().ok());
  EXPECT_EQ(RealFileSystem().List(folder_.path())->size(), 1U);
  EXPECT_FALSE(Open()->after_unclean_end());
}

TEST_F(StoreTest, ClosingWhileSomebodyReadsKeepsEverything) {
  const auto state = Open();
  ASSERT_TRUE(FillExample(*state, {}).ok());
  {
    // Reads in the middle of a query, as a slow person would.
    StateReader reader = Read();
    Result<sqlite::Statement> query = reader.connection().Prepare("SELECT sample_id FROM samples");
    ASSERT_TRUE(query.ok());
    ASSERT_TRUE(*query->Step());
    std::thread closing([&] { EXPECT_TRUE(state->Close().ok()); });
    closing.join();
  }
  EXPECT_EQ(Read().Chunks()->size(), 6U);
}

}  // namespace
}  // namespace draftmill

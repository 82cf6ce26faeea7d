#include "state/run_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>

#include "state/temporary_folder.h"

namespace draftmill {
namespace {

using testing::HasSubstr;

TEST(RunLockTest, OneRunAtATimeAndTheSecondLearnsWhoHoldsIt) {
  const TemporaryFolder folder;
  EXPECT_FALSE(RunLock::Peek(folder.path())->has_value());
  {
    const Result<RunLock> lock = RunLock::Acquire(folder.path(), RealClock());
    ASSERT_TRUE(lock.ok()) << lock.status().ToString();
    const Status second = RunLock::Acquire(folder.path(), RealClock()).status();
    EXPECT_EQ(second.code(), StatusCode::kConflict);
    EXPECT_THAT(second.message(), HasSubstr("process " + std::to_string(::getpid())));
    EXPECT_THAT(second.message(), HasSubstr(folder.path()));
    const auto owner = RunLock::Peek(folder.path());
    ASSERT_TRUE(owner.ok());
    ASSERT_TRUE(owner->has_value());
    EXPECT_EQ((*owner)->pid, ::getpid());
    EXPECT_EQ((*owner)->boot_id, ThisProcess(RealClock()).boot_id);
  }
  EXPECT_FALSE(RunLock::Peek(folder.path())->has_value());
  EXPECT_TRUE(RunLock::Acquire(folder.path(), RealClock()).ok());
}

TEST(RunLockTest, AKilledRunLeavesNoLock) {
  const TemporaryFolder folder;
  std::array<int, 2> ready{};
  ASSERT_EQ(::pipe(ready.data()), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const Result<RunLock> lock = RunLock::Acquire(folder.path(), RealClock());
    const char answer = lock.ok() ? 'y' : 'n';
    if (::write(ready[1], &answer, 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  char answer = 0;
  ASSERT_EQ(::read(ready[0], &answer, 1), 1);
  EXPECT_EQ(answer, 'y');
  EXPECT_EQ(RunLock::Acquire(folder.path(), RealClock()).status().code(), StatusCode::kConflict);
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(RunLock::Acquire(folder.path(), RealClock()).ok());
  ::close(ready[0]);
  ::close(ready[1]);
}

// As people do who take it for a stale one.
TEST(RunLockTest, RemovingTheFileLetsNobodyIn) {
  const TemporaryFolder folder;
  const Result<RunLock> lock = RunLock::Acquire(folder.path(), RealClock());
  ASSERT_TRUE(lock.ok());
  ASSERT_TRUE(RealFileSystem().Remove(JoinPath(folder.path(), "run.lock")).ok());
  EXPECT_TRUE(RunLock::Peek(folder.path())->has_value());
  EXPECT_EQ(RunLock::Acquire(folder.path(), RealClock()).status().code(), StatusCode::kConflict);
  EXPECT_EQ(RunLock::AcquireForReading(folder.path(), RealClock()).status().code(), StatusCode::kConflict);
  EXPECT_FALSE(RealFileSystem().Exists(JoinPath(folder.path(), "run.lock")));
}

TEST(RunLockTest, WhateverStandsInTheFileOnlyChangesTheMessage) {
  const TemporaryFolder folder;
  ASSERT_TRUE(RealFileSystem().WriteAtomically(JoinPath(folder.path(), "run.lock"), std::string(100'000, 'x')).ok());
  EXPECT_TRUE(RunLock::Acquire(folder.path(), RealClock()).ok());
  EXPECT_EQ(LockOwner().ToString(), "a process whose name does not stand in run.lock");
}

TEST(RunLockTest, AFolderThatIsNotThereIsNamed) {
  EXPECT_EQ(RunLock::Acquire("/nonexistent/folder", RealClock()).status().code(), StatusCode::kNotFound);
  EXPECT_FALSE(RunLock::Peek("/nonexistent/folder")->has_value());
}

}  // namespace
}  // namespace draftmill

// What a run says at its end where its database can or cannot be read. Whole reports are tested with the run.
#include "pipeline/run/run_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipeline/exit_status.h"
#include "state/example_state.h"
#include "state/store.h"
#include "state/temporary_folder.h"

namespace draftmill {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

RunReport EndedWith(Status status, const std::string& work_folder) {
  ReportInput input;
  input.status = std::move(status);
  input.work_folder = work_folder;
  return MakeReport(input, RealFileSystem());
}

TEST(RunReportTest, AFullDiskIsAnsweredWithWhatToDo) {
  const TemporaryFolder with_database;
  const TemporaryFolder without;
  auto state = StateWriter::Open(with_database.path(), {.create = true});
  ASSERT_TRUE(state.ok()) << state.status().message();
  ASSERT_TRUE(FillExample(**state, ExampleShape{}).ok());
  ASSERT_TRUE((*state)->Close().ok());
  for (const std::string& folder : {with_database.path(), without.path()}) {
    const RunReport report = EndedWith(DiskFull("SQLite: COMMIT: database or disk is full"), folder);
    EXPECT_EQ(report.exit_status, kExitRunAgain);
    EXPECT_THAT(report.summary, HasSubstr("database or disk is full"));
    EXPECT_THAT(report.summary, HasSubstr("free space on the disk of " + folder + ", then run the same command again"));
  }
}

TEST(RunReportTest, WhatRunningAgainDoesNotMendIsNotAnsweredSo) {
  const TemporaryFolder without;
  const RunReport report = EndedWith(Corrupt("corpus/chunk-00000.safetensors is damaged"), without.path());
  EXPECT_EQ(report.exit_status, kExitFailed);
  EXPECT_THAT(report.summary, Not(HasSubstr("run the same command again")));
}

}  // namespace
}  // namespace draftmill

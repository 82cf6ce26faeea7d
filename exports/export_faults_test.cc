// Whatever moment an export ends at, by a power cut or a full disk, the same command goes on to the same bytes.
//
// Every change that an export makes to the disk is tried, under sanitizers one of four: nothing lists them by hand, so a new
// one is covered by itself.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <system_error>

#include "base/test_clock.h"
#include "exports/export_run.h"
#include "pipeline/testing/example_run.h"
#include "state/faulty_file_system.h"

namespace draftmill {
namespace {

namespace fs = std::filesystem;

constexpr int kStride = kSanitizerSlowdown > 1 ? 5 : 2;

using Tree = std::map<std::string, std::string>;

Tree TreeOf(const fs::path& folder) {
  Tree tree;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) tree[fs::relative(entry.path(), folder).string()] = ExampleRun::Read(entry.path());
  }
  return tree;
}

/// In memory where that can be: the test asks what would be on a disk, not how long a disk takes.
fs::path Place() {
  std::error_code ignored;
  const fs::path memory = "/dev/shm";
  return fs::is_directory(memory, ignored) ? memory : fs::temp_directory_path();
}

class ExportFaultsTest : public testing::TestWithParam<const char*> {
 protected:
  ExportFaultsTest() {
    example_.WriteRows(7);
    example_.WritePipeline("extract: {batch_tokens: 256, block_tokens: 512}\nvocab_map: {size: 200}\n", 4);
    const RunReport report = example_.Run({}, {.make_extractor = &MakeExampleExtractor});
    EXPECT_EQ(report.exit_status, 3) << report.summary;  // one of the seven is refused
  }

  fs::path output() const { return example_.folder() / "output"; }

  ExportRequest Request() const {
    ExportRequest request{
        .work_folder = example_.work().string(), .format = GetParam(), .output = output().string(), .selection = {}};
    request.selection.eval_fraction = 0.3;
    request.token_bytes = [](std::int32_t id) { return "<" + std::to_string(id) + ">"; };
    return request;
  }
  Result<ExportReport> Export(FileSystem& files) const {
    const std::unique_ptr<ProgressSink> progress = MakeSilentProgress();
    return RunExport(files, Request(), *progress);
  }

  void RemoveOutput() const {
    fs::remove_all(output());
    fs::remove_all(output().string() + ".partial");
  }

  /// An export that nothing disturbs: what it writes, and how many changes to the disk that takes.
  void Undisturbed() {
    FaultyFileSystem files(RealFileSystem(), example_.folder().string());
    const Result<ExportReport> report = Export(files);
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_EQ(report->counts.samples, 6);
    changes_ = static_cast<int>(files.Points().size());
    tree_ = TreeOf(output());
  }

  const ExampleRun example_{Place()};
  Tree tree_;
  int changes_ = 0;
};

/// A shell's completion puts a '/' behind the name of a folder.
TEST_P(ExportFaultsTest, ASlashBehindTheNameOfTheFolderSaysNothing) {
  Undisturbed();
  RemoveOutput();
  const std::unique_ptr<ProgressSink> progress = MakeSilentProgress();
  ExportRequest request = Request();
  request.output += "//";
  for (const bool was_there : {false, true}) {
    const Result<ExportReport> report = RunExport(RealFileSystem(), request, *progress);
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_EQ(report->was_there, was_there);
    EXPECT_EQ(report->output, output().string());
  }
  EXPECT_TRUE(TreeOf(output()) == tree_);
}

TEST_P(ExportFaultsTest, GoesOnAfterAFullDisk) {
  Undisturbed();
  int full = 0;
  for (int at = 1; at <= changes_; at += kStride) {
    RemoveOutput();
    FaultyFileSystem files(RealFileSystem(), example_.folder().string());
    int seen = 0;
    files.SetHook([&](std::string_view) {
      if (++seen == at) files.SetFreeBytes(0);
      return OkStatus();
    });
    const Result<ExportReport> ended = Export(files);
    // Behind the last write a full disk harms nothing.
    if (ended.ok()) continue;
    ++full;
    EXPECT_EQ(ended.status().code(), StatusCode::kDiskFull) << "change " << at << ": " << ended.status().ToString();
    EXPECT_FALSE(fs::exists(output())) << "change " << at;
    const Result<ExportReport> report = Export(RealFileSystem());
    ASSERT_TRUE(report.ok()) << "change " << at << ": " << report.status().ToString();
    EXPECT_TRUE(TreeOf(output()) == tree_) << "change " << at;
  }
  EXPECT_GT(full, changes_ / kStride / 4);
}

TEST_P(ExportFaultsTest, GoesOnAfterAPowerCut) {
  Undisturbed();
  for (int at = 1; at <= changes_; at += kStride) {
    RemoveOutput();
    FaultyFileSystem files(RealFileSystem(), example_.folder().string());
    int seen = 0;
    files.SetHook([&](std::string_view) -> Status {
      if (++seen < at) return OkStatus();
      if (seen == at) {
        // The two endings take turns.
        EXPECT_TRUE(files.PowerCut(at / kStride % 2 == 0 ? Unsynced::kLost : Unsynced::kNamesSurvive).ok());
      }
      return IoError("the power is gone");
    });
    ASSERT_FALSE(Export(files).ok()) << "change " << at;
    const Result<ExportReport> report = Export(RealFileSystem());
    ASSERT_TRUE(report.ok()) << "change " << at << ": " << report.status().ToString();
    EXPECT_TRUE(TreeOf(output()) == tree_) << "change " << at;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, ExportFaultsTest, testing::Values("specforge", "speculators", "jsonl"),
                         [](const auto& format) { return std::string(format.param); });

}  // namespace
}  // namespace draftmill

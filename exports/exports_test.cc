// The small parts of exports. Whole exports are read back by tests/export_test.py.
#include <gtest/gtest.h>

#include <cmath>

#include "exports/export_format.h"
#include "exports/export_run.h"
#include "exports/post_norm.h"
#include "exports/selection.h"
#include "exports/sha1.h"
#include "kernels/bfloat16.h"
#include "pipeline/testing/example_run.h"

namespace draftmill {
namespace {

TEST(SelectionTest, ReadsEveryKindOfTerm) {
  const Result<Selection> selection =
      ParseSelection({"source=a.jsonl", "source=b.jsonl", "samples=3-5", "eval=0.25", "split=eval"});
  ASSERT_TRUE(selection.ok()) << selection.status().ToString();
  EXPECT_EQ(selection->sources.size(), 2U);
  EXPECT_TRUE(selection->TakesSample(3) && selection->TakesSample(5));
  EXPECT_FALSE(selection->TakesSample(2) || selection->TakesSample(6));
  EXPECT_EQ(selection->only, Split::kEval);
}

TEST(SelectionTest, RefusesWhatItDoesNotUnderstand) {
  for (const char* term : {"", "eval=1", "eval=0", "eval=x", "samples=5", "samples=5-3", "samples=a-b", "split=both",
                           "source=", "rows=1-2"}) {
    EXPECT_EQ(ParseSelection({term}).status().code(), StatusCode::kInvalidConfig) << term;
  }
  EXPECT_EQ(ParseSelection({"split=train"}).status().code(), StatusCode::kInvalidConfig);
}

TEST(SelectionTest, SplitsByTheFirstEightBytesOfTheHash) {
  Selection selection;
  Hash128 hash;
  hash.bytes[7] = 0x40;  // a quarter of 2^64
  EXPECT_EQ(selection.SideOf(hash), Split::kTrain);
  selection.eval_fraction = 0.25;
  EXPECT_EQ(selection.SideOf(hash), Split::kTrain);
  hash.bytes[7] = 0x3F;
  EXPECT_EQ(selection.SideOf(hash), Split::kEval);
  hash.bytes[15] = 0xFF;
  EXPECT_EQ(selection.SideOf(hash), Split::kEval);
}

TEST(ExportRunTest, RefusesARunOfWhichShardsWereDiscarded) {
  const ExampleRun example;
  example.WriteRows(12);
  example.EditPipeline("{shard_bytes: 64KiB}", "{shard_bytes: 64KiB, discard_after_publish: true}");
  ASSERT_EQ(example.Run({}, {.make_extractor = &MakeExampleExtractor}).exit_status, 3);
  const std::unique_ptr<ProgressSink> progress = MakeSilentProgress();
  const std::string output = (example.folder() / "output").string();
  for (const std::string_view format : ExportFormatNames()) {
    const Result<ExportReport> report = RunExport(
        RealFileSystem(),
        {.work_folder = example.work().string(), .format = std::string(format), .output = output, .selection = {}},
        *progress);
    EXPECT_EQ(report.status().code(), StatusCode::kInvalidConfig) << format;
    EXPECT_NE(report.status().message().find("write.discard_after_publish"), std::string::npos) << format;
    EXPECT_FALSE(RealFileSystem().Exists(output));
  }
}

TEST(Sha1Test, GivesTheDigestsOfTheStandard) {
  EXPECT_EQ(Sha1Hex("abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
  EXPECT_EQ(Sha1Hex(""), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
  EXPECT_EQ(Sha1Hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
}

/// One row of bf16 values through the norm.
std::vector<float> Normed(const FinalNorm& norm, const std::vector<float>& row) {
  std::vector<std::uint16_t> bits;
  for (const float value : row) bits.push_back(ToBf16(value).bits);
  PostNorm(norm).Apply(bits);
  std::vector<float> values;
  for (const std::uint16_t value : bits) values.push_back(ToFloat(Bf16{value}));
  return values;
}

TEST(PostNormTest, RoundsWhereTheModelRounds) {
  const std::vector<float> row = {3.0F, -1.0F, 0.5F, 2.0F};
  const FinalNorm hf{.weight = {1.01171875F, 0.3F, 2.0F, -1.0F},
                     .epsilon = 1e-5,
                     .adds_one = false,
                     .rounding = "hf",
                     .model_fingerprint = ""};
  const float inverse = 1.0F / std::sqrt(static_cast<float>((9.0 + 1.0 + 0.25 + 4.0) / 4) + 1e-5F);
  const std::vector<float> values = Normed(hf, row);
  for (std::size_t i = 0; i < row.size(); ++i) {
    EXPECT_EQ(values[i], RoundToBf16(RoundToBf16(row[i] * inverse) * RoundToBf16(hf.weight[i])));
  }
  FinalNorm fused = hf;
  fused.rounding = "fused";
  fused.adds_one = true;
  const std::vector<float> gemma = Normed(fused, row);
  for (std::size_t i = 0; i < row.size(); ++i) {
    EXPECT_EQ(gemma[i], RoundToBf16(row[i] * inverse * (1.0F + RoundToBf16(fused.weight[i]))));
  }
}

}  // namespace
}  // namespace draftmill

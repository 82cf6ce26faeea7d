#include "formats/final_norm.h"

#include <gtest/gtest.h>

#include "state/temporary_folder.h"

namespace draftmill {
namespace {

FinalNorm ExampleNorm() {
  return {.weight = {1.0F, 0.5F, -2.25F, 0x1.02p-3F},
          .epsilon = 1e-5,
          .adds_one = true,
          .rounding = "fused",
          .model_fingerprint = "m1"};
}

TEST(FinalNormTest, ReadsBackWhatItWrote) {
  const TemporaryFolder folder;
  ASSERT_TRUE(WriteFinalNorm(RealFileSystem(), folder.path(), ExampleNorm()).ok());
  const Result<FinalNorm> read = ReadFinalNorm(RealFileSystem(), folder.path());
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(*read, ExampleNorm());
}

TEST(FinalNormTest, IsNotWrittenAgainWhereItStands) {
  const TemporaryFolder folder;
  ASSERT_TRUE(WriteFinalNorm(RealFileSystem(), folder.path(), ExampleNorm()).ok());
  const auto before = RealFileSystem().Stat(FinalNormPath(folder.path()));
  ASSERT_TRUE(WriteFinalNorm(RealFileSystem(), folder.path(), ExampleNorm()).ok());
  EXPECT_EQ(RealFileSystem().Stat(FinalNormPath(folder.path()))->inode, before->inode);
  FinalNorm other = ExampleNorm();
  other.epsilon = 1e-6;
  ASSERT_TRUE(WriteFinalNorm(RealFileSystem(), folder.path(), other).ok());
  EXPECT_EQ(*ReadFinalNorm(RealFileSystem(), folder.path()), other);
}

TEST(FinalNormTest, NoticesADamagedWeight) {
  const TemporaryFolder folder;
  ASSERT_TRUE(WriteFinalNorm(RealFileSystem(), folder.path(), ExampleNorm()).ok());
  std::string bytes = *RealFileSystem().ReadAll(FinalNormPath(folder.path()));
  bytes[bytes.size() - 3] = static_cast<char>(bytes[bytes.size() - 3] ^ 1);
  ASSERT_TRUE(RealFileSystem().WriteAtomically(FinalNormPath(folder.path()), bytes).ok());
  EXPECT_EQ(ReadFinalNorm(RealFileSystem(), folder.path()).status().code(), StatusCode::kCorrupt);
}

}  // namespace
}  // namespace draftmill

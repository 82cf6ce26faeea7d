#include "base/status.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "base/hash.h"

namespace draftmill {
namespace {

Result<int> Half(int number) {
  if (number % 2 != 0) return InvalidInput("odd: " + std::to_string(number));
  return number / 2;
}

Status Quarter(int number, int* out) {
  DRAFTMILL_ASSIGN_OR_RETURN(const int half, Half(number));
  DRAFTMILL_ASSIGN_OR_RETURN(*out, Half(half).WithContext("second step"));
  return OkStatus();
}

TEST(StatusTest, PassesValuesAndFailuresOn) {
  int out = 0;
  EXPECT_TRUE(Quarter(8, &out).ok());
  EXPECT_EQ(out, 2);
  const Status failure = Quarter(6, &out);
  EXPECT_EQ(failure.code(), StatusCode::kInvalidInput);
  EXPECT_EQ(failure.ToString(), "invalid input: second step: odd: 3");
}

TEST(StatusTest, TellsFullDisksFromOtherErrors) {
  EXPECT_EQ(ErrnoStatus(ENOSPC, "write a").code(), StatusCode::kDiskFull);
  EXPECT_EQ(ErrnoStatus(ENOENT, "open a").code(), StatusCode::kNotFound);
  EXPECT_EQ(ErrnoStatus(EIO, "read a").code(), StatusCode::kIo);
}

TEST(HashTest, AgreesWithTheReferenceDigestsAndItself) {
  // xxhsum -H3 and -H128 of the empty input (xxHash's own test vectors).
  EXPECT_EQ(ToHex(HashBytes64("")), "2d06800538d394c2");
  EXPECT_EQ(ToHex(HashBytes128("")), "7f498d4624c30160d8984701d306aa99");
  StreamingHash pieces;
  pieces.Update("draft");
  pieces.Update("mill");
  EXPECT_EQ(pieces.Digest64(), HashBytes64("draftmill"));
  EXPECT_EQ(pieces.Digest128(), HashBytes128("draftmill"));
  const Result<Hash128> back = Hash128FromHex(ToHex(HashBytes128("x")));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(*back, HashBytes128("x"));
  EXPECT_FALSE(Hash128FromHex("xyz").ok());
}

}  // namespace
}  // namespace draftmill

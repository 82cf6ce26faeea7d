#include "formats/npy.h"

#include <gtest/gtest.h>

namespace draftmill {
namespace {

// numpy 2: numpy.save(f, numpy.array([3, -1])) and of [True, False].
TEST(Npy, WritesTheBytesOfNumpy) {
  const std::string header(
      "\x93NUMPY\x01\x00v\x00{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }"
      "                                                            \n",
      128);
  EXPECT_EQ(NpyOfInt64(std::vector<std::int64_t>{3, -1}),
            header + std::string("\3\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", 16));
  const std::string bools = NpyOfBool(std::vector<std::uint8_t>{1, 0});
  EXPECT_EQ(bools.size(), 130U);
  EXPECT_NE(bools.find("'descr': '|b1'"), std::string::npos);
}

TEST(Npy, ReadsBackWhatItWroteAndNothingElse) {
  const std::vector<std::int64_t> numbers = {0, 5, std::int64_t{1} << 40};
  EXPECT_EQ(*ReadNpyInt64(NpyOfInt64(numbers), "f"), numbers);
  EXPECT_TRUE(ReadNpyInt64(NpyOfInt64({}), "f")->empty());
  EXPECT_EQ(*ReadNpyBool(NpyOfBool(std::vector<std::uint8_t>{1, 0, 1}), "f"), (std::vector<std::uint8_t>{1, 0, 1}));
  EXPECT_EQ(ReadNpyBool(NpyOfInt64(numbers), "f").status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(ReadNpyInt64("", "f").status().code(), StatusCode::kCorrupt);
  std::string file = NpyOfInt64(numbers);
  file.pop_back();
  EXPECT_EQ(ReadNpyInt64(file, "f").status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(ReadNpyBool(NpyOfBool(std::vector<std::uint8_t>{2}), "f").status().code(), StatusCode::kCorrupt);
}

}  // namespace
}  // namespace draftmill

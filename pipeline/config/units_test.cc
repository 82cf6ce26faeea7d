#include "pipeline/config/units.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace draftmill {
namespace {

TEST(UnitsTest, ReadsSizesExactly) {
  EXPECT_EQ(*ParseByteSize("0"), 0);
  EXPECT_EQ(*ParseByteSize("4096"), 4096);
  EXPECT_EQ(*ParseByteSize("7B"), 7);
  EXPECT_EQ(*ParseByteSize("256MiB"), 256LL << 20);
  EXPECT_EQ(*ParseByteSize("256 MiB"), 256LL << 20);
  EXPECT_EQ(*ParseByteSize("1GB"), 1'000'000'000);
  EXPECT_EQ(*ParseByteSize("1.5GiB"), 3LL << 29);
  EXPECT_EQ(*ParseByteSize("2KB"), *ParseByteSize("2kB"));
}

TEST(UnitsTest, RefusesWhatIsNoSize) {
  for (const char* text : {"", "MiB", "-1", "1.5", "1.", ".5GiB", "1e9", "1MiBs", "1mib", "0x10", "1 2",
                           "99999999999999999999", "9000000TiB", "1.0000000001GB"}) {
    EXPECT_FALSE(ParseByteSize(text).ok()) << text;
  }
}

TEST(UnitsTest, TakesTheLargestSizeAndNothingAboveIt) {
  EXPECT_EQ(*ParseByteSize("9223372036854775807"), std::numeric_limits<std::int64_t>::max());
  EXPECT_FALSE(ParseByteSize("9223372036854775808").ok());
  EXPECT_FALSE(ParseByteSize("8388608TiB").ok());
}

TEST(UnitsTest, ReadsDurations) {
  EXPECT_EQ(*ParseDurationMs("0"), 0);
  EXPECT_EQ(*ParseDurationMs("90s"), 90'000);
  EXPECT_EQ(*ParseDurationMs("1.5h"), 5'400'000);
  EXPECT_EQ(*ParseDurationMs("20ms"), 20);
  EXPECT_EQ(*ParseDurationMs("2d"), 172'800'000);
  for (const char* text : {"90", "s", "1w", "-1s", "0.5ms"}) EXPECT_FALSE(ParseDurationMs(text).ok()) << text;
}

TEST(UnitsTest, WritesWhatItReads) {
  for (const std::int64_t bytes :
       {std::int64_t{0}, std::int64_t{1}, std::int64_t{1000}, std::int64_t{1024}, std::int64_t{1537},
        std::int64_t{5} << 30, std::int64_t{1'500'000'000}, std::numeric_limits<std::int64_t>::max()}) {
    EXPECT_EQ(*ParseByteSize(FormatByteSizeExact(bytes)), bytes) << FormatByteSizeExact(bytes);
    EXPECT_EQ(*ParseDurationMs(FormatDurationExact(bytes)), bytes) << FormatDurationExact(bytes);
  }
  EXPECT_EQ(FormatByteSizeExact(std::int64_t{1} << 30), "1GiB");
  EXPECT_EQ(FormatDurationExact(900'000), "15m");
}

}  // namespace
}  // namespace draftmill

#include "stages/extract/model/layer_layout.h"

#include <gtest/gtest.h>

namespace draftmill {
namespace {

TEST(LayerLayoutTest, PartsFollowEachOtherAndCoverTheLayer) {
  for (const std::int64_t total : {0, 1, 63, 64, 65, 1000, 4096, 1'000'003}) {
    for (const std::int64_t parts : {1, 2, 3, 8}) {
      LayerLayout layout;
      layout.matrices_total = total;
      layout.packed.bytes = 3 * total;
      LayerPart expected;
      for (std::int64_t part = 0; part < parts; ++part) {
        const LayerPart range = PartOf(layout, part, parts);
        EXPECT_EQ(range.first_matrix, expected.first_matrix) << total << " in " << parts;
        EXPECT_EQ(range.first_packed, expected.first_packed) << total << " in " << parts;
        EXPECT_TRUE(range.first_matrix % 64 == 0 || range.matrices_count == 0);
        EXPECT_TRUE(range.first_packed % 64 == 0 || range.packed_bytes == 0);
        EXPECT_LE(range.matrices_count, (total + parts - 1) / parts + 63);
        expected.first_matrix += range.matrices_count;
        expected.first_packed += range.packed_bytes;
      }
      EXPECT_EQ(expected.first_matrix, total) << "in " << parts;
      EXPECT_EQ(expected.first_packed, 3 * total) << "in " << parts;
    }
  }
}

}  // namespace
}  // namespace draftmill

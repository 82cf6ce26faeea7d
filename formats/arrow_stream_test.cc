// The form of Arrow streams. That pyarrow and `datasets` read them is tests/export_test.py's to show.
#include "formats/arrow_stream.h"

#include <gtest/gtest.h>

#include <cstring>

namespace draftmill {
namespace {

std::int32_t NumberAt(const std::string& bytes, std::size_t at) {
  std::int32_t number = 0;
  std::memcpy(&number, bytes.data() + at, sizeof(number));
  return number;
}

TEST(ArrowStreamTest, MessagesAreAlignedAndSayTheirLengths) {
  const ArrowStream stream({{"ids", ArrowType::kInt64List}, {"length", ArrowType::kInt64}}, {{"key", "value"}});
  const std::string schema = stream.Begin();
  EXPECT_EQ(NumberAt(schema, 0), -1);
  EXPECT_EQ(static_cast<std::size_t>(NumberAt(schema, 4)) + 8, schema.size());
  EXPECT_EQ(schema.size() % 8, 0U);
  EXPECT_NE(schema.find("ids"), std::string::npos);

  const std::vector<std::int32_t> offsets = {0, 2, 3};
  const std::vector<std::int64_t> values = {7, 8, 9}, lengths = {2, 1};
  const std::string batch = stream.Batch({ArrowColumn::Lists(offsets, values), ArrowColumn::Numbers(lengths)});
  const std::size_t body = static_cast<std::size_t>(NumberAt(batch, 4)) + 8;
  EXPECT_EQ(body % 8, 0U);
  ASSERT_EQ(batch.size(), body + 16 + 24 + 16);
  EXPECT_EQ(NumberAt(batch, body + 4), 2);
  EXPECT_EQ(NumberAt(batch, body + 16), 7);
  EXPECT_EQ(NumberAt(batch, body + 40), 2);
  EXPECT_EQ(stream.End(), std::string("\xFF\xFF\xFF\xFF\0\0\0\0", 8));
}

}  // namespace
}  // namespace draftmill

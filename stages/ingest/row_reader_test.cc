#include "stages/ingest/row_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

namespace draftmill {
namespace {

/// Hands a text on in pieces of at most `piece` bytes.
class TextStream : public ByteStream {
 public:
  TextStream(std::string text, std::size_t piece) : text_(std::move(text)), piece_(piece) {}

  Result<std::size_t> Read(std::span<std::byte> buffer) override {
    const std::size_t bytes = std::min({buffer.size(), piece_, text_.size() - at_});
    std::memcpy(buffer.data(), text_.data() + at_, bytes);
    at_ += bytes;
    return bytes;
  }
  std::int64_t packed_bytes() const override { return static_cast<std::int64_t>(at_); }
  Result<Hash128> HashWholeFile() override { return HashBytes128(text_); }

 private:
  std::string text_;
  std::size_t piece_;
  std::size_t at_ = 0;
};

struct Seen {
  std::string text;
  std::int64_t line;
  std::int64_t byte_offset;
  bool is_too_long;
  bool is_fault;
  friend bool operator==(const Seen&, const Seen&) = default;
};

void PrintTo(const Seen& seen, std::ostream* out) {
  *out << "{" << seen.text << " line " << seen.line << " offset " << seen.byte_offset
       << (seen.is_too_long ? " too long" : "") << (seen.is_fault ? " fault" : "") << "}";
}

std::vector<Seen> Rows(const std::string& text, FileLayout layout, std::int64_t max_row_bytes = 1000,
                       std::size_t piece = 1 << 20) {
  RowReader reader(std::make_unique<TextStream>(text, piece), layout, max_row_bytes);
  std::vector<Seen> rows;
  RawRow row;
  while (true) {
    const Result<bool> more = reader.Next(row);
    EXPECT_TRUE(more.ok());
    if (!more.ok() || !*more) return rows;
    EXPECT_EQ(row.row, static_cast<std::int64_t>(rows.size()));
    rows.push_back({std::string(row.text), row.line, row.byte_offset, row.is_too_long, !row.fault.empty()});
  }
}

using List = std::vector<Seen>;

TEST(RowReaderTest, CutsLines) {
  EXPECT_EQ(Rows("", FileLayout::kLines), List{});
  EXPECT_EQ(Rows(" \n\r\n\t", FileLayout::kLines), List{});
  EXPECT_EQ(Rows("a\r\n\n  \n b \nc", FileLayout::kLines),
            (List{{"a", 1, 0, false, false}, {" b", 4, 7, false, false}, {"c", 5, 11, false, false}}));
  EXPECT_EQ(Rows("\xEF\xBB\xBF"
                 "a\n\xEF\xBB\xBF"
                 "b",
                 FileLayout::kLines),
            (List{{"a", 1, 0, false, false},
                  {"\xEF\xBB\xBF"
                   "b",
                   2, 5, false, false}}));
  EXPECT_EQ(Rows("12345\n1234\n123456\n1", FileLayout::kLines, 4), (List{{"", 1, 0, true, false},
                                                                         {"1234", 2, 6, false, false},
                                                                         {"", 3, 11, true, false},
                                                                         {"1", 4, 18, false, false}}));
}

TEST(RowReaderTest, CutsTheElementsOfAList) {
  EXPECT_EQ(Rows("[]", FileLayout::kValues), List{});
  EXPECT_EQ(Rows(" [ ] \n", FileLayout::kValues), List{});
  EXPECT_EQ(
      Rows("[1, {\"a,]\": [2,3]} ,\n\"x\\\"]\"]\n", FileLayout::kValues),
      (List{{"1", 0, 1, false, false}, {"{\"a,]\": [2,3]}", 0, 4, false, false}, {"\"x\\\"]\"", 0, 21, false, false}}));
  EXPECT_EQ(
      Rows("[1,,2,]", FileLayout::kValues),
      (List{{"1", 0, 1, false, false}, {"", 0, 3, false, false}, {"2", 0, 4, false, false}, {"", 0, 6, false, false}}));
  EXPECT_EQ(Rows("[1,", FileLayout::kValues), (List{{"1", 0, 1, false, false}, {"", 0, 3, false, true}}));
  EXPECT_EQ(Rows("[{\"a\": \"b", FileLayout::kValues),
            (List{{"{\"a\": \"b", 0, 1, false, false}, {"", 0, 9, false, true}}));
  EXPECT_EQ(Rows("[1] [2]", FileLayout::kValues), (List{{"1", 0, 1, false, false}, {"", 0, 4, false, true}}));
  EXPECT_EQ(Rows("[1,\"" + std::string(50, 'x') + "\",2]", FileLayout::kValues, 10),
            (List{{"1", 0, 1, false, false}, {"", 0, 3, true, false}, {"2", 0, 56, false, false}}));
}

TEST(RowReaderTest, CutsObjects) {
  EXPECT_EQ(Rows("{\"a\":\n1}", FileLayout::kValues), (List{{"{\"a\":\n1}", 1, 0, false, false}}));
  EXPECT_EQ(Rows("{\n}\n\n{\"}\": [{}]}", FileLayout::kValues),
            (List{{"{\n}", 1, 0, false, false}, {"{\"}\": [{}]}", 4, 5, false, false}}));
  EXPECT_EQ(Rows("{\n} x y\n{}", FileLayout::kValues),
            (List{{"{\n}", 1, 0, false, false}, {"x y", 2, 4, false, false}, {"{}", 3, 8, false, false}}));
}

TEST(RowReaderTest, ReadsLinesUnderTheNameOfJson) {
  // One broken line costs that line, not the rest of the file.
  EXPECT_EQ(Rows("{}\n{\"broken\n{}\n", FileLayout::kValues),
            (List{{"{}", 1, 0, false, false}, {"{\"broken", 2, 3, false, false}, {"{}", 3, 12, false, false}}));
}

TEST(RowReaderTest, GivesTheSameRowsHoweverTheBytesCome) {
  std::mt19937 random(3);
  const std::string alphabet = "{}[],\"\\ \nab\r\t";
  for (int round = 0; round < 1000; ++round) {
    std::string text = round % 3 == 0 ? "[" : round % 3 == 1 ? "{" : "\xEF\xBB\xBF";
    for (std::size_t length = random() % 60; length > 0; --length) text += alphabet[random() % alphabet.size()];
    for (const FileLayout layout : {FileLayout::kLines, FileLayout::kValues}) {
      const std::int64_t max_row_bytes = static_cast<std::int64_t>(random() % 20) + 1;
      const List whole = Rows(text, layout, max_row_bytes);
      for (const std::size_t piece : {std::size_t{1}, std::size_t{3}, std::size_t{random() % 20 + 1}}) {
        ASSERT_EQ(Rows(text, layout, max_row_bytes, piece), whole) << text << "\npieces of " << piece;
      }
    }
  }
}

}  // namespace
}  // namespace draftmill

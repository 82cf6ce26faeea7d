#include "stages/ingest/sorted_spill.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "state/temporary_folder.h"

namespace draftmill {
namespace {

struct Row {
  SpillKey key;
  std::int64_t number;
  std::string text;
};

/// Sends rows through a spill and checks that they come back in order, whole, with equal keys as they were added.
void ExpectSorted(std::vector<Row> rows, std::int64_t memory_bytes, int skip_bits = 0) {
  const TemporaryFolder folder;
  SortedSpill spill(RealFileSystem(), folder.path(), memory_bytes, skip_bits);
  for (const Row& row : rows) {
    SpilledRow spilled;
    spilled.key = row.key;
    spilled.content_hash = HashBytes128(row.text);
    spilled.place = {static_cast<std::int32_t>(row.number % 7), row.number, row.number + 1, row.number * 100};
    spilled.text = row.text;
    ASSERT_TRUE(spill.Add(spilled).ok());
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.key < b.key; });
  std::size_t i = 0;
  const Status status = spill.Visit([&](const SpilledRow& row, bool repeats_key) {
    if (i >= rows.size()) return Internal("more rows than were added");
    EXPECT_EQ(row.key, rows[i].key);
    EXPECT_EQ(row.place.row, rows[i].number);
    EXPECT_EQ(row.place.source, rows[i].number % 7);
    EXPECT_EQ(row.place.line, rows[i].number + 1);
    EXPECT_EQ(row.place.byte_offset, rows[i].number * 100);
    EXPECT_EQ(row.text, rows[i].text);
    EXPECT_EQ(row.content_hash, HashBytes128(rows[i].text));
    EXPECT_EQ(repeats_key, i > 0 && rows[i].key == rows[i - 1].key);
    ++i;
    return OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(i, rows.size());
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

SpillKey KeyWith(std::initializer_list<std::pair<std::size_t, int>> bytes) {
  SpillKey key{};
  for (const auto& [index, value] : bytes) key[index] = static_cast<std::uint8_t>(value);
  return key;
}

TEST(SortedSpillTest, SortsInAnyMemory) {
  std::mt19937 random(1);
  std::vector<Row> rows;
  for (int i = 0; i < 2000; ++i) {
    Row row{{}, i, std::string(random() % 200, 'a')};
    for (std::uint8_t& byte : row.key) byte = static_cast<std::uint8_t>(random());
    if (i % 5 == 0 && i > 0) row.key = rows[random() % rows.size()].key;
    rows.push_back(row);
  }
  ExpectSorted(rows, 1 << 26);
  ExpectSorted(rows, 3000);
  ExpectSorted({}, 1000);
  ExpectSorted({rows[0]}, 1);
}

TEST(SortedSpillTest, SpreadsKeysThatDifferLate) {
  std::vector<Row> rows;
  for (int i = 0; i < 600; ++i) rows.push_back({KeyWith({{23, i % 4}, {22, (i * 7) % 256}}), i, "x"});
  ExpectSorted(rows, 500);
  ExpectSorted(rows, 500, 22 * 8);
}

TEST(SortedSpillTest, TakesAnyNumberOfEqualKeys) {
  std::vector<Row> rows;
  for (int i = 0; i < 5000; ++i) rows.push_back({KeyWith({{5, 1}}), i, std::string(100, 'y')});
  for (int i = 5000; i < 5010; ++i) rows.push_back({KeyWith({{5, 2}}), i, "z"});
  ExpectSorted(rows, 1000);
}

TEST(SortedSpillTest, TakesRowsLargerThanItsMemoryAndItsBlocks) {
  ExpectSorted({{KeyWith({{0, 2}}), 0, std::string(300000, 'a')},
                {KeyWith({{0, 1}}), 1, std::string(70000, 'b')},
                {KeyWith({{0, 1}, {1, 1}}), 2, ""}},
               1000);
}

TEST(SortedSpillTest, NoticesDamage) {
  const TemporaryFolder folder;
  SortedSpill spill(RealFileSystem(), folder.path(), 1 << 20, 0);
  SpilledRow row;
  const std::string text(100000, 'x');
  row.text = text;
  ASSERT_TRUE(spill.Add(row).ok());  // larger than a block, so it is written at once
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    Result<std::unique_ptr<WritableFile>> file =
        RealFileSystem().OpenForWriting(entry.path().string(), OpenMode::kOpenExisting);
    const std::byte other{0x55};
    ASSERT_TRUE((*file)->WriteAt(20, std::span<const std::byte>(&other, 1)).ok());
  }
  EXPECT_EQ(spill.Visit([](const SpilledRow&, bool) { return OkStatus(); }).code(), StatusCode::kCorrupt);
}

}  // namespace
}  // namespace draftmill

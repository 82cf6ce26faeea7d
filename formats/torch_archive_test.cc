// The bytes of torch archives. That torch reads them is tests/export_test.py's to show.
#include "formats/torch_archive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstring>

namespace draftmill::torch_archive {
namespace {

using testing::HasSubstr;

std::uint64_t NumberAt(std::string_view bytes, std::size_t at, int count) {
  std::uint64_t number = 0;
  for (int i = count; i-- > 0;)
    number = (number << 8) | static_cast<unsigned char>(bytes[at + static_cast<std::size_t>(i)]);
  return number;
}

TEST(TorchArchiveTest, PicklesAsTorchDoes) {
  Dict dict;
  dict.Add("ids", Tensor{Dtype::kI64, {3}}).Add("flag", false).Add("id", "7-0");
  const std::vector<std::int64_t> ids = {1, 2, 3};
  const Result<std::string> file = BuildArchive(dict, {std::as_bytes(std::span(ids))});
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  const std::string pickle = std::string("\x80\x02}(X\x03\0\0\0ids", 12) + "ctorch._utils\n_rebuild_tensor_v2\n((" +
                             std::string("X\x07\0\0\0storage", 12) + "ctorch\nLongStorage\n" +
                             std::string(
                                 "X\x01\0\0\0"
                                 "0",
                                 6) +
                             std::string("X\x03\0\0\0cpu", 8) + "K\x03tQ" +
                             std::string("K\0K\x03\x85K\x01\x85\x89", 9) + "ccollections\nOrderedDict\n)RtR" +
                             std::string(
                                 "X\x04\0\0\0flag\x89X\x02\0\0\0idX\x03\0\0\0"
                                 "7-0u.",
                                 26);
  EXPECT_THAT(*file, HasSubstr(pickle));
}

TEST(TorchArchiveTest, EveryRecordIsAlignedAndHasItsChecksum) {
  Dict dict;
  dict.Add("a", Tensor{Dtype::kBool, {5}}).Add("b", Tensor{Dtype::kBf16, {1, 2, 3}});
  const std::vector<std::byte> five(5, std::byte{1}), twelve(12, std::byte{2});
  const Result<std::string> file = BuildArchive(dict, {five, twelve});
  ASSERT_TRUE(file.ok());
  std::size_t at = 0;
  std::vector<std::string> names;
  while (NumberAt(*file, at, 4) == 0x04034b50) {
    const std::size_t name = NumberAt(*file, at + 26, 2), extra = NumberAt(*file, at + 28, 2),
                      size = NumberAt(*file, at + 22, 4);
    const std::size_t data = at + 30 + name + extra;
    names.push_back(file->substr(at + 30, name));
    EXPECT_EQ(data % 64, 0U) << names.back();
    EXPECT_EQ(NumberAt(*file, at + 14, 4), ::crc32_z(0, reinterpret_cast<const Bytef*>(file->data() + data), size))
        << names.back();
    at = data + size;
  }
  EXPECT_THAT(names, testing::ElementsAre("archive/data.pkl", "archive/byteorder", "archive/data/0", "archive/data/1",
                                          "archive/version", "archive/.data/serialization_id"));
  EXPECT_EQ(NumberAt(*file, at, 4), 0x02014b50U);
}

TEST(TorchArchiveTest, HasZip64FieldsFromFourGibibytesOn) {
  constexpr std::int64_t kLarge = std::int64_t{5} << 30;
  Dict dict;
  dict.Add("large", Tensor{Dtype::kBf16, {kLarge / 2}}).Add("far", Tensor{Dtype::kI64, {1}});
  const Result<Layout> layout = Layout::Of(dict);
  ASSERT_TRUE(layout.ok());
  EXPECT_GT(layout->storage_offset(1), kLarge);
  EXPECT_EQ(layout->storage_offset(1) % 64, 0);
  const std::vector<std::uint32_t> crc32 = {1, 2};
  const std::vector<FramePiece> pieces = layout->Frame(crc32);
  const std::string& header = pieces[2].bytes;  // of archive/data/0
  EXPECT_EQ(NumberAt(header, 18, 4), 0xFFFFFFFFU);
  const std::size_t extra = 30 + std::strlen("archive/data/0");
  EXPECT_EQ(NumberAt(header, extra, 2), 1U);
  EXPECT_EQ(NumberAt(header, extra + 4, 8), static_cast<std::uint64_t>(kLarge));
  const FramePiece& end = pieces.back();
  EXPECT_EQ(end.offset + static_cast<std::int64_t>(end.bytes.size()), layout->file_bytes());
  const std::size_t locator = end.bytes.size() - 22 - 20;
  EXPECT_EQ(NumberAt(end.bytes, locator, 4), 0x07064b50U);
  EXPECT_EQ(NumberAt(end.bytes, locator + 8, 8), static_cast<std::uint64_t>(end.offset) + locator - 56);
}

TEST(TorchArchiveTest, RefusesTypesThatTorchHasNoStorageFor) {
  EXPECT_EQ(Layout::Of(Tensor{Dtype::kF8E8M0, {1}}).status().code(), StatusCode::kInvalidInput);
}

}  // namespace
}  // namespace draftmill::torch_archive

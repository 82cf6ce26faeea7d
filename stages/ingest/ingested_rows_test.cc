#include "stages/ingest/ingested_rows.h"

#include <gtest/gtest.h>
#include <zstd.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "state/temporary_folder.h"

namespace draftmill {
namespace {

/// A line as it stands in a chunk, with these numbers.
std::string Line(std::string_view sample_id, std::string_view source = "0", std::string_view row = "0") {
  return R"({"sample_id":)" + std::string(sample_id) + R"(,"content_hash":")" + std::string(32, '0') +
         R"(","source":)" + std::string(source) + R"(,"row":)" + std::string(row) +
         R"(,"line":1,"byte_offset":0,"conversation":{"messages":[]}})" + "\n";
}

/// Reads `text` as if it were chunk 0 of a work folder, with no digest to go by.
Result<IngestedChunk> Read(const std::string& text) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(IngestedFolder(folder.path()));
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 1));
  EXPECT_TRUE(RealFileSystem().WriteAtomically(IngestedChunkPath(folder.path(), 0), packed).ok());
  return ReadIngestedChunk(RealFileSystem(), folder.path(), 0);
}

TEST(IngestedRowsTest, ReadsRowsWithConsecutiveIds) {
  const Result<IngestedChunk> chunk = Read(Line("7", "2147483647", "9") + Line("8"));
  ASSERT_TRUE(chunk.ok()) << chunk.status().ToString();
  ASSERT_EQ(chunk->rows.size(), 2U);
  EXPECT_EQ(chunk->rows[0].sample_id, 7);
  EXPECT_EQ(chunk->rows[0].place.source, 2147483647);
  EXPECT_EQ(chunk->rows[0].place.row, 9);
}

TEST(IngestedRowsTest, RefusesNumbersThatCannotBe) {
  const std::string most = "9223372036854775807";
  const std::vector<std::string> texts = {
      Line("7") + Line("9"), Line("-1"),  Line(most) + Line("0"), Line("7", "-1"), Line("7", "4294967296"),
      Line("7", "0", "-5"),  Line("7.5"), Line("\"7\"")};
  for (const std::string& text : texts) {
    const Result<IngestedChunk> chunk = Read(text);
    ASSERT_FALSE(chunk.ok()) << text;
    EXPECT_EQ(chunk.status().code(), StatusCode::kCorrupt) << text;
    EXPECT_NE(chunk.status().message().find("chunk-000000"), std::string::npos) << chunk.status().message();
  }
}

}  // namespace
}  // namespace draftmill

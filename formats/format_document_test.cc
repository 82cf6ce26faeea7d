// The worked example of docs/formats.md, read as bytes and held against what this program writes. Its numbers were made
// by a Python script with xxhash alone, so they are an oracle for the hashes too.
#include <gtest/gtest.h>

#include <charconv>
#include <cstring>
#include <regex>
#include <sstream>

#include "formats/shard_example.h"
#include "formats/shard_reader.h"
#include "state/temporary_folder.h"

namespace draftmill {
namespace {

std::string Document() {
  const Result<std::string> text = RealFileSystem().ReadAll("docs/formats.md");
  EXPECT_TRUE(text.ok()) << "tests run in the root of the source tree";
  return text.ok() ? *text : "";
}

// What stands between "```" + `title` and the next "```".
std::string Block(const std::string& document, const std::string& title) {
  const std::size_t begin = document.find("```" + title + "\n");
  EXPECT_NE(begin, std::string::npos) << title;
  if (begin == std::string::npos) return "";
  const std::size_t first = begin + 3 + title.size() + 1;
  return document.substr(first, document.find("\n```", first) - first);
}

// The value of a row `| name | value |`.
std::string TableValue(const std::string& document, const std::string& name) {
  std::smatch match;
  EXPECT_TRUE(std::regex_search(document, match, std::regex("\\| " + name + " \\| `([0-9a-f]{32})` \\|"))) << name;
  return match.empty() ? "" : match[1].str();
}

// The whole file: length, header, padding, and the bytes of the dump, each line at the place that it gives.
std::string FileOfDocument(const std::string& document) {
  std::string file(std::string_view("\xf8\x0f\0\0\0\0\0\0", 8));
  file += Block(document, "json shard-header");
  file.resize(4096, ' ');
  std::istringstream lines(Block(document, "text shard-bytes"));
  for (std::string line; std::getline(lines, line);) {
    EXPECT_EQ(std::stoul(line.substr(0, 6)), file.size()) << line;
    for (std::size_t at = 8; at + 1 < line.size() && at < 8 + 48 && line[at] != ' '; at += 3) {
      unsigned byte = 0;
      std::from_chars(&line[at], &line[at] + 2, byte, 16);
      file += static_cast<char>(byte);
    }
  }
  return file;
}

TEST(FormatDocument, TheWorkedExampleIsAShardThatReadsBack) {
  const std::string document = Document();
  TemporaryFolder folder;
  const std::string path = JoinPath(folder.path(), "example.safetensors");
  ASSERT_TRUE(RealFileSystem().WriteAtomically(path, FileOfDocument(document)).ok());
  Result<ShardReader> reader = ShardReader::Open(RealFileSystem(), path);
  ASSERT_TRUE(reader.ok()) << reader.status().ToString();
  EXPECT_EQ(reader->contents().key(0), (SampleKey{12002, 1}));
  EXPECT_EQ(reader->contents().input_ids, (std::vector<std::int32_t>{500, 501}));
  EXPECT_EQ(reader->ReadStates(0)->back(), 0x3f8f);
  const Result<ShardCheck> check = reader->CheckBytes();
  ASSERT_TRUE(check.ok());
  EXPECT_TRUE(check->damaged_samples.empty());
  EXPECT_EQ(ToHex(check->batch_digests.at(0)), TableValue(document, "batch digest"));
  EXPECT_EQ(ToHex(check->digest), TableValue(document, "shard digest"));
}

TEST(FormatDocument, TheWorkedExampleIsWhatIsWritten) {
  const std::string file = FileOfDocument(Document());
  const TokenizedChunk chunk = ExampleShardChunk();
  const Result<ShardLayout> layout = LayOutShard(12, chunk.cu_seqlens, ExamplePlan(), 1, ExampleConvention());
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(layout->header.bytes, file.substr(0, 4096));
  std::uint64_t checksum = 0;
  const auto place = static_cast<std::size_t>(layout->TensorOffset("checksum"));
  ASSERT_LT(place + 8, file.size());
  std::memcpy(&checksum, file.data() + place, sizeof checksum);
  const std::string tail = BuildShardTail(*layout, chunk, {0}, {checksum});
  EXPECT_EQ(tail, file.substr(static_cast<std::size_t>(layout->tail_offset())));
  EXPECT_EQ(ToHex(ShardFrameDigest(layout->header.bytes, tail)), TableValue(Document(), "frame digest"));
}

}  // namespace
}  // namespace draftmill

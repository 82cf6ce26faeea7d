#include "formats/corpus_chunk.h"

#include <gtest/gtest.h>

#include "formats/tokenized_chunk_example.h"
#include "state/temporary_folder.h"

namespace draftmill {
namespace {

class CorpusChunkTest : public testing::Test {
 protected:
  // Changes one byte of the file, counted from its end where negative.
  void FlipByte(std::int64_t offset) {
    Result<std::string> content = file_system_.ReadAll(path_);
    ASSERT_TRUE(content.ok());
    const auto at = static_cast<std::size_t>(offset < 0 ? offset + static_cast<std::int64_t>(content->size()) : offset);
    std::string changed = *content;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    ASSERT_TRUE(file_system_.WriteAtomically(path_, changed).ok());
  }

  FileSystem& file_system_ = RealFileSystem();
  TemporaryFolder folder_;
  std::string path_ = JoinPath(folder_.path(), "corpus/chunk-000012.safetensors");
};

TEST_F(CorpusChunkTest, ReadsBackWhatWasWritten) {
  const TokenizedChunk chunk = ExampleChunk(12, {3, 1, 5, 2});
  const Result<PublishedFile> file = WriteCorpusChunk(file_system_, folder_.path(), chunk, "f1");
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(file->path, "corpus/chunk-000012.safetensors");
  EXPECT_FALSE(file_system_.Exists(path_ + ".partial"));
  const Result<CorpusChunk> read = ReadCorpusChunk(file_system_, folder_.path(), 12);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->fingerprint, "f1");
  EXPECT_EQ(read->chunk.input_ids, chunk.input_ids);
  EXPECT_EQ(read->chunk.loss_mask, chunk.loss_mask);
  EXPECT_EQ(read->chunk.cu_seqlens, chunk.cu_seqlens);
  EXPECT_EQ(read->chunk.sample_id, chunk.sample_id);
  EXPECT_EQ(read->chunk.variant, chunk.variant);
  EXPECT_EQ(read->chunk.content_hash, chunk.content_hash);
  EXPECT_EQ(read->chunk.token_hash, chunk.token_hash);
  const Result<PublishedFile> digest = DigestFile(file_system_, folder_.path(), file->path);
  ASSERT_TRUE(digest.ok());
  EXPECT_EQ(*digest, *file);
}

TEST_F(CorpusChunkTest, AChunkWhoseRowsAllFailedIsAFileToo) {
  ASSERT_TRUE(WriteCorpusChunk(file_system_, folder_.path(), ExampleChunk(12, {}), "f").ok());
  const Result<CorpusChunk> read = ReadCorpusChunk(file_system_, folder_.path(), 12);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->chunk.samples(), 0);
}

TEST_F(CorpusChunkTest, DamageIsFoundAndNamed) {
  ASSERT_TRUE(WriteCorpusChunk(file_system_, folder_.path(), ExampleChunk(12, {3, 1, 5, 2}), "f").ok());
  // From the end: 64 bytes of content hashes, 11 of the mask, 16 of variants, then the ids, whose last belongs to
  // 12001/1.
  FlipByte(-64 - 11 - 16 - 1);
  Result<CorpusChunk> read = ReadCorpusChunk(file_system_, folder_.path(), 12);
  EXPECT_EQ(read.status().code(), StatusCode::kCorrupt);
  EXPECT_NE(read.status().message().find("sample 12001/1"), std::string::npos) << read.status().ToString();
  EXPECT_NE(read.status().message().find(path_), std::string::npos);
}

TEST_F(CorpusChunkTest, AFileOfAnotherChunkOrKindIsRefused) {
  ASSERT_TRUE(WriteCorpusChunk(file_system_, folder_.path(), ExampleChunk(11, {3}), "f").ok());
  ASSERT_TRUE(file_system_.Rename(JoinPath(folder_.path(), CorpusChunkPath(11)), path_).ok());
  EXPECT_EQ(ReadCorpusChunk(file_system_, folder_.path(), 12).status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(ReadCorpusChunk(file_system_, folder_.path(), 13).status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(file_system_.WriteAtomically(path_, std::string("\2\0\0\0\0\0\0\0{}", 10)).ok());
  EXPECT_EQ(ReadCorpusChunk(file_system_, folder_.path(), 12).status().code(), StatusCode::kCorrupt);
}

TEST_F(CorpusChunkTest, AnInconsistentChunkIsNotWritten) {
  TokenizedChunk chunk = ExampleChunk(12, {3, 4});
  chunk.loss_mask[1] = 0;
  EXPECT_EQ(WriteCorpusChunk(file_system_, folder_.path(), chunk, "f").status().code(), StatusCode::kInternal);
  EXPECT_FALSE(file_system_.Exists(path_));
  chunk = ExampleChunk(12, {3, 4});
  std::swap(chunk.variant[0], chunk.variant[1]);
  EXPECT_FALSE(CheckTokenizedChunk(chunk).ok());
  chunk = ExampleChunk(12, {3, 4});
  chunk.cu_seqlens[1] = 0;
  EXPECT_FALSE(CheckTokenizedChunk(chunk).ok());
}

}  // namespace
}  // namespace draftmill

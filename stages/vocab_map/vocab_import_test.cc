#include "stages/vocab_map/vocab_import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/npy.h"
#include "stages/vocab_map/vocab_files.h"
#include "stages/vocab_map/vocab_map.h"
#include "state/temporary_folder.h"

namespace draftmill {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class VocabImportTest : public testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& content) {
    const std::string path = JoinPath(folder_.path(), name);
    EXPECT_TRUE(RealFileSystem().WriteAtomically(path, content).ok());
    return path;
  }
  std::string Refusal(const std::string& path, std::int64_t size, std::int64_t rows) {
    const auto imported = ReadVocabImport(RealFileSystem(), path, size, rows);
    EXPECT_EQ(imported.status().code(), StatusCode::kInvalidConfig);
    return imported.status().message();
  }

  TemporaryFolder folder_;
};

TEST_F(VocabImportTest, TakesAFileAsItIs) {
  const std::string path = Write("d2t.npy", NpyOfInt64(std::vector<std::int64_t>{1, 1, 3}));
  const auto imported = ReadVocabImport(RealFileSystem(), path, 3, 6);
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_THAT(imported->d2t, ElementsAre(1, 1, 3));
  EXPECT_TRUE(CheckBinding(*imported, "any", "any").ok());
}

TEST_F(VocabImportTest, RefusesWhatDoesNotFit) {
  const std::string path = Write("d2t.npy", NpyOfInt64(std::vector<std::int64_t>{1, 1, 3}));
  EXPECT_THAT(Refusal(path, 4, 6), AllOf(HasSubstr("has 3 places"), HasSubstr("set it to 3")));
  EXPECT_THAT(Refusal(path, 3, 5), HasSubstr("draft id 2 stands for no target id"));
  EXPECT_THAT(Refusal(path, 3, 3), HasSubstr("needs no map"));
  EXPECT_THAT(Refusal(Write("a.npy", NpyOfInt64(std::vector<std::int64_t>{3, 1})), 2, 9), HasSubstr("out of order"));
  EXPECT_THAT(Refusal(Write("b.npy", NpyOfInt64(std::vector<std::int64_t>{-1, 1})), 2, 9), HasSubstr("draft id 0"));
  EXPECT_THAT(Refusal(Write("c.npy", NpyOfInt64(std::vector<std::int64_t>{INT64_MAX, 1})), 2, 9),
              HasSubstr("draft id 0"));
  EXPECT_THAT(Refusal(Write("d.npy", NpyOfBool(std::vector<std::uint8_t>{1, 0})), 2, 9), HasSubstr("one-dimensional"));
  EXPECT_THAT(Refusal(Write("e.npy", "no array"), 2, 9), HasSubstr("e.npy"));
  EXPECT_EQ(ReadVocabImport(RealFileSystem(), path + ".absent", 2, 9).status().code(), StatusCode::kNotFound);
}

TEST_F(VocabImportTest, AFolderIsBoundToWhatItWasMadeFrom) {
  VocabMap map;
  map.exists = true;
  map.d2t = {1, 1};
  map.t2d = {0, 1, 1, 0};
  map.token_freq = {0, 5, 5, 0};
  map.report = json::Object{{"map", true}, {"vocab_rows", 4}, {"corpus_digest", "c0"}, {"mask_rule", "m0"}};
  ASSERT_TRUE(WriteVocab(RealFileSystem(), folder_.path(), map).ok());
  const std::string vocab = JoinPath(folder_.path(), "vocab");
  const auto imported = ReadVocabImport(RealFileSystem(), vocab, 2, 4);
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_TRUE(CheckBinding(*imported, "m0", "c0").ok());
  EXPECT_TRUE(CheckBinding(*imported, "m0", "").ok());
  EXPECT_THAT(CheckBinding(*imported, "m1", "c0").message(), HasSubstr("mask rule"));
  EXPECT_THAT(CheckBinding(*imported, "m0", "c1").message(), HasSubstr("for another corpus"));
  EXPECT_THAT(Refusal(vocab, 2, 8), HasSubstr("made for a vocabulary of 4 rows"));
  Write("vocab/t2d.npy", NpyOfBool(std::vector<std::uint8_t>{1, 1, 0, 0}));
  EXPECT_THAT(Refusal(vocab, 2, 4), HasSubstr("contradicts"));
}

}  // namespace
}  // namespace draftmill

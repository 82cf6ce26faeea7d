#include "stages/vocab_map/vocab_files.h"

#include <gtest/gtest.h>

#include "formats/npy.h"
#include "state/faulty_file_system.h"
#include "state/temporary_folder.h"

namespace draftmill {
namespace {

VocabMap MapOf(std::vector<std::int64_t> target_ids, std::int64_t rows) {
  VocabMap map;
  map.exists = true;
  map.t2d.resize(static_cast<std::size_t>(rows));
  map.token_freq.resize(static_cast<std::size_t>(rows), 3);
  for (std::size_t i = 0; i < target_ids.size(); ++i) {
    map.d2t.push_back(target_ids[i] - static_cast<std::int64_t>(i));
    map.t2d[static_cast<std::size_t>(target_ids[i])] = 1;
  }
  map.report = json::Object{{"map", true}, {"ids", static_cast<std::int64_t>(target_ids.size())}};
  return map;
}

class VocabFilesTest : public testing::Test {
 protected:
  // The draft vocabulary that is found, or -1 where there is none.
  std::int64_t FoundSize() {
    const Result<VocabMap> map = ReadVocab(RealFileSystem(), folder_.path());
    if (map.status().code() == StatusCode::kNotFound) return -1;
    EXPECT_TRUE(map.ok()) << map.status().ToString();
    return map.ok() ? static_cast<std::int64_t>(map->d2t.size()) : -2;
  }

  TemporaryFolder folder_;
  const VocabMap old_ = MapOf({1, 4}, 6);
  const VocabMap new_ = MapOf({0, 2, 5}, 6);
};

TEST_F(VocabFilesTest, ReadsBackWhatWasWritten) {
  FileSystem& files = RealFileSystem();
  const Result<std::vector<PublishedFile>> published = WriteVocab(files, folder_.path(), old_);
  ASSERT_TRUE(published.ok()) << published.status().ToString();
  ASSERT_EQ(published->size(), 4U);
  EXPECT_EQ((*published)[0].path, "vocab/d2t.npy");
  for (const PublishedFile& file : *published) EXPECT_EQ(*DigestFile(files, folder_.path(), file.path), file);
  const Result<VocabMap> read = ReadVocab(files, folder_.path());
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->d2t, old_.d2t);
  EXPECT_EQ(read->t2d, old_.t2d);
  EXPECT_EQ(read->token_freq, old_.token_freq);
  EXPECT_EQ(read->report, old_.report);
  VocabMap none;
  none.token_freq = {1, 2};
  none.report = json::Object{{"map", false}};
  ASSERT_EQ(WriteVocab(files, folder_.path(), none)->size(), 2U);
  EXPECT_FALSE(ReadVocab(files, folder_.path())->exists);
  EXPECT_EQ(files.List(folder_.path())->size(), 1U) << "nothing is left beside the folder";
}

TEST_F(VocabFilesTest, FilesThatDoNotBelongTogetherAreRefused) {
  FileSystem& files = RealFileSystem();
  ASSERT_TRUE(WriteVocab(files, folder_.path(), old_).ok());
  ASSERT_TRUE(files.WriteAtomically(JoinPath(folder_.path(), "vocab/d2t.npy"), NpyOfInt64(new_.d2t)).ok());
  EXPECT_EQ(ReadVocab(files, folder_.path()).status().code(), StatusCode::kCorrupt);
  ASSERT_TRUE(files
                  .WriteAtomically(JoinPath(folder_.path(), "vocab/d2t.npy"),
                                   NpyOfInt64(std::vector<std::int64_t>{0, std::int64_t{1} << 62}))
                  .ok());
  EXPECT_EQ(ReadVocab(files, folder_.path()).status().code(), StatusCode::kCorrupt);
}

// Wherever the exchange is interrupted, the next start finds the old files or the new ones, whole.
TEST_F(VocabFilesTest, APowerCutAnywhereLeavesTheOldFolderOrTheNewOne) {
  for (const bool has_old : {false, true}) {
    for (const Unsynced unsynced : {Unsynced::kLost, Unsynced::kNamesSurvive}) {
      bool done = false;
      for (int nth = 1; !done; ++nth) {
        ASSERT_TRUE(RealFileSystem().RemoveTree(JoinPath(folder_.path(), "vocab")).ok());
        if (has_old) {
          ASSERT_TRUE(WriteVocab(RealFileSystem(), folder_.path(), old_).ok());
        }
        FaultyFileSystem faulty(RealFileSystem(), folder_.path());
        int changes = 0;
        faulty.SetHook([&](std::string_view) { return ++changes >= nth ? IoError("power cut") : OkStatus(); });
        done = WriteVocab(faulty, folder_.path(), new_).ok();
        faulty.SetHook(nullptr);
        ASSERT_TRUE(faulty.PowerCut(unsynced).ok());
        ASSERT_TRUE(RecoverVocab(faulty, folder_.path()).ok());
        const std::int64_t size = FoundSize();
        EXPECT_TRUE(size == 3 || (!done && size == (has_old ? 2 : -1))) << size << " after change " << nth;
        ASSERT_TRUE(WriteVocab(faulty, folder_.path(), new_).ok());
        EXPECT_EQ(FoundSize(), 3);
        EXPECT_EQ(RealFileSystem().List(folder_.path())->size(), 1U);
      }
    }
  }
}

}  // namespace
}  // namespace draftmill

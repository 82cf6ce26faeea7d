#include "state/fingerprint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "state/temporary_folder.h"

namespace draftmill {
namespace {

using testing::ElementsAre;

Fingerprint Make(std::initializer_list<FingerprintPart> parts) {
  Fingerprint fingerprint;
  for (const FingerprintPart& part : parts) fingerprint.Add(part.name, part.value);
  return fingerprint;
}

TEST(FingerprintTest, HashesTheCanonicalForm) {
  // Computed with Python: xxhash.xxh3_128 over b"1:a1:12:bb0:".
  EXPECT_EQ(Make({{"a", "1"}, {"bb", ""}}).hash(), ToHex(HashBytes128("1:a1:12:bb0:")));
}

TEST(FingerprintTest, DependsOnNamesAndValuesAndNotOnTheirOrder) {
  const Fingerprint fingerprint = Make({{"a", "1"}, {"b", "2"}});
  EXPECT_EQ(fingerprint.hash(), Make({{"b", "2"}, {"a", "1"}}).hash());
  EXPECT_NE(fingerprint.hash(), Make({{"a", "2"}, {"b", "1"}}).hash());
  EXPECT_NE(fingerprint.hash(), Make({{"a", "12"}, {"b", ""}}).hash());
  EXPECT_NE(Make({{"a", "b"}}).hash(), Make({{"ab", ""}}).hash());
  EXPECT_EQ(fingerprint.hash().size(), 32U);
}

TEST(FingerprintTest, TellsWhatChanged) {
  using Kind = FingerprintChange::Kind;
  const Fingerprint before = Make({{"same", "1"}, {"changed", "old"}, {"gone", "x"}});
  const Fingerprint after = Make({{"new", "y"}, {"changed", "new"}, {"same", "1"}});
  const std::vector<FingerprintChange> changes = Diff(before, after);
  EXPECT_THAT(changes, ElementsAre(FingerprintChange{Kind::kChanged, "changed", "old", "new"},
                                   FingerprintChange{Kind::kRemoved, "gone", "x", ""},
                                   FingerprintChange{Kind::kAdded, "new", "", "y"}));
  EXPECT_EQ(ToString(changes[0]), "changed: old -> new");
  EXPECT_EQ(ToString(changes[1]), "gone: removed, was x");
  EXPECT_EQ(ToString(changes[2]), "new: added, y");
  EXPECT_TRUE(Diff(before, before).empty());
}

TEST(FingerprintTest, HashesFilesOfAnySize) {
  const TemporaryFolder folder;
  const std::string path = JoinPath(folder.path(), "a");
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{1} << 20, (std::size_t{1} << 20) + 1}) {
    const std::string content(size, 'x');
    ASSERT_TRUE(RealFileSystem().WriteAtomically(path, content).ok());
    const Result<FileDigest> digest = HashFile(RealFileSystem(), path);
    ASSERT_TRUE(digest.ok());
    EXPECT_EQ(digest->hash, HashBytes128(content));
    EXPECT_EQ(digest->bytes, static_cast<std::int64_t>(size));
  }
  EXPECT_EQ(HashFile(RealFileSystem(), path + "missing").status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace draftmill

#include "formats/manifest.h"

#include <gtest/gtest.h>

#include "state/temporary_folder.h"

namespace draftmill {
namespace {

Manifest Example() {
  Manifest manifest;
  manifest.facts = json::Object{{"layers", json::Array{2, 5}}, {"final_norm", "pre"}};
  manifest.corpus = {{{"corpus/chunk-000000.safetensors", 700, HashBytes128("a")}, 3, 9, 0}};
  manifest.vocab = {{"vocab/d2t.npy", 128, HashBytes128("b")}};
  manifest.shards = {{{"shards/000000/c000000-s000.safetensors", 5000, HashBytes128("c")}, 2, 5, 1},
                     {{"shards/000000/c000000-s001.safetensors", 4500, HashBytes128("d")}, 1, 4, 0}};
  return manifest;
}

TEST(Manifest, ReadsBackWhatWasWrittenAndItsBytesAreCanonical) {
  TemporaryFolder folder;
  FileSystem& files = RealFileSystem();
  ASSERT_TRUE(WriteManifest(files, folder.path(), Example()).ok());
  const Result<Manifest> read = ReadManifest(files, folder.path());
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  Manifest expected = Example();
  expected.facts = json::Object{{"final_norm", "pre"}, {"layers", json::Array{2, 5}}};  // keys come back sorted
  EXPECT_EQ(*read, expected);
  const std::string text = *files.ReadAll(ManifestPath(folder.path()));
  EXPECT_EQ(text.back(), '\n');
  EXPECT_EQ(text, ManifestText(expected));
  EXPECT_NE(text.find(R"("totals":{"quarantined":1,"samples":3,"shard_bytes":9500,"shards":2,"tokens":9})"),
            std::string::npos);
  ASSERT_TRUE(RemoveManifest(files, folder.path()).ok());
  ASSERT_TRUE(RemoveManifest(files, folder.path()).ok());
  EXPECT_EQ(ReadManifest(files, folder.path()).status().code(), StatusCode::kNotFound);
}

TEST(Manifest, DiscardedShardsStandApartAndAreNotCounted) {
  EXPECT_EQ(ManifestText(Example()).find("discarded"), std::string::npos);
  Manifest manifest = Example();
  manifest.facts = json::Object{};
  std::swap(manifest.shards, manifest.discarded_shards);
  const std::string text = ManifestText(manifest);
  EXPECT_NE(text.find(R"("shards":0,"tokens":0})"), std::string::npos) << text;
  const Result<Manifest> read = ParseManifest(text, "m");
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(*read, manifest);
  std::string damaged = text;
  damaged.replace(damaged.find("\"discarded_shards\":["), 20, "\"discarded_shards\":7");
  EXPECT_FALSE(ParseManifest(damaged, "m").ok());
  EXPECT_NE(DiscardedShardsNote(1).find("1 shard was deleted"), std::string::npos);
  EXPECT_NE(DiscardedShardsNote(12).find("12 shards were deleted"), std::string::npos);
}

TEST(Manifest, RefusesWhatIsNone) {
  EXPECT_EQ(ParseManifest("{", "m").status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(ParseManifest("[]", "m").status().code(), StatusCode::kCorrupt);
  std::string text = ManifestText(Example());
  text.replace(text.find("\"format_version\":1"), 18, "\"format_version\":2");
  EXPECT_EQ(ParseManifest(text, "m").status().code(), StatusCode::kUnsupported);
  text = ManifestText(Example());
  text.replace(text.find("\"bytes\":700"), 11, "\"bytes\":-70");
  EXPECT_EQ(ParseManifest(text, "m").status().message(), "m: corpus: 'bytes' is no whole number from 0");
  text = ManifestText(Example());
  text.replace(text.find("\"tokens\":5}"), 11, "\"tokens\":9223372036854775807}");
  EXPECT_EQ(ParseManifest(text, "m").status().message(),
            "m: 'shards' hold more than any disk, up to shards/000000/c000000-s001.safetensors");
}

TEST(Manifest, RefusesFilesOutsideOfItsFolder) {
  for (const char* path : {"", "/etc/passwd", "../x", "shards/../../x", "shards/..", "shards//x"}) {
    Manifest manifest = Example();
    manifest.shards[0].file.path = path;
    EXPECT_EQ(ParseManifest(ManifestText(manifest), "m").status().message(),
              "m: shards: 'path' leads out of the work folder: '" + std::string(path) + "'");
  }
  Manifest manifest = Example();
  manifest.shards[0].file.path = "shards/..a/b..";
  EXPECT_TRUE(ParseManifest(ManifestText(manifest), "m").ok());
}

}  // namespace
}  // namespace draftmill

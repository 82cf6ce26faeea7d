#include "state/faulty_file_system.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "state/temporary_folder.h"

namespace draftmill {
namespace {

using testing::ElementsAre;

std::span<const std::byte> Bytes(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }

class FaultyFileSystemTest : public testing::Test {
 protected:
  std::string Path(std::string_view name) const { return JoinPath(folder_.path(), name); }
  std::string Content(std::string_view name) {
    const Result<std::string> content = RealFileSystem().ReadAll(Path(name));
    return content.ok() ? *content : "(" + std::string(StatusCodeName(content.status().code())) + ")";
  }

  TemporaryFolder folder_;
  FaultyFileSystem files_{RealFileSystem(), folder_.path()};
};

TEST_F(FaultyFileSystemTest, NamesEveryChangeInOrder) {
  ASSERT_TRUE(files_.MakeFolder(Path("shards")).ok());
  ASSERT_TRUE(files_.WriteAtomically(Path("shards/x"), "content").ok());
  EXPECT_THAT(files_.Points(), ElementsAre("make_folder:shards", "create:shards/x.partial", "write:shards/x.partial",
                                           "sync:shards/x.partial", "rename:shards/x", "sync_folder:shards"));
}

// The promise of WriteAtomically: whichever step fails, and whatever the power takes with it, a reader finds the old
// content or the new one.
TEST_F(FaultyFileSystemTest, AtomicWritesLeaveTheOldOrTheNewContentWhateverFails) {
  ASSERT_TRUE(files_.WriteAtomically(Path("a"), "old").ok());
  const int steps = static_cast<int>(files_.Points().size());
  for (const Unsynced unsynced : {Unsynced::kLost, Unsynced::kNamesSurvive}) {
    for (int step = 1; step <= steps; ++step) {
      SCOPED_TRACE(step);
      files_.Inject({.point = "", .nth = step, .status = IoError("injected"), .kept_bytes = 1, .sticky = true});
      EXPECT_EQ(files_.WriteAtomically(Path("a"), "new").code(), StatusCode::kIo);
      files_.ClearFaults();
      ASSERT_TRUE(files_.PowerCut(unsynced).ok());
      EXPECT_THAT(Content("a"), testing::AnyOf("old", "new"));
      ASSERT_TRUE(files_.WriteAtomically(Path("a"), "old").ok());
    }
    ASSERT_TRUE(files_.WriteAtomically(Path("a"), "new").ok());
    ASSERT_TRUE(files_.PowerCut(unsynced).ok());
    EXPECT_EQ(Content("a"), "new");
    ASSERT_TRUE(files_.WriteAtomically(Path("a"), "old").ok());
  }
}

TEST_F(FaultyFileSystemTest, APowerCutTakesWhatWasNotSynced) {
  auto file = files_.OpenForWriting(Path("a"), OpenMode::kCreateNew);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE((*file)->WriteAt(0, Bytes("synced")).ok());
  ASSERT_TRUE((*file)->Sync().ok());
  ASSERT_TRUE(files_.SyncFolder(folder_.path()).ok());
  ASSERT_TRUE((*file)->WriteAt(6, Bytes(" lost")).ok());
  ASSERT_TRUE(files_.PowerCut(Unsynced::kLost).ok());
  EXPECT_EQ(Content("a"), "synced");
  EXPECT_EQ((*file)->WriteAt(0, Bytes("x")).code(), StatusCode::kIo);
}

TEST_F(FaultyFileSystemTest, FindsARenameWithoutASync) {
  {
    const auto file = files_.OpenForWriting(Path("a.partial"), OpenMode::kCreateNew);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE((*file)->WriteAt(0, Bytes("content")).ok());
  }
  ASSERT_TRUE(files_.Rename(Path("a.partial"), Path("a")).ok());
  ASSERT_TRUE(files_.SyncFolder(folder_.path()).ok());
  ASSERT_TRUE(files_.PowerCut(Unsynced::kLost).ok());
  EXPECT_EQ(Content("a"), "");
  EXPECT_EQ(Content("a.partial"), "(not found)");
}

TEST_F(FaultyFileSystemTest, RemovalsComeBackUntilTheFolderIsSynced) {
  ASSERT_TRUE(RealFileSystem().WriteAtomically(Path("a"), "was here before").ok());
  ASSERT_TRUE(files_.MakeFolder(Path("tree")).ok());
  ASSERT_TRUE(files_.WriteAtomically(Path("tree/b"), "b").ok());
  ASSERT_TRUE(files_.Remove(Path("a")).ok());
  ASSERT_TRUE(files_.RemoveTree(Path("tree")).ok());
  ASSERT_TRUE(files_.PowerCut(Unsynced::kLost).ok());
  EXPECT_EQ(Content("a"), "was here before");
  EXPECT_EQ(Content("tree/b"), "b");
  ASSERT_TRUE(files_.Remove(Path("a")).ok());
  ASSERT_TRUE(files_.RemoveTree(Path("tree")).ok());
  ASSERT_TRUE(files_.SyncFolder(folder_.path()).ok());
  ASSERT_TRUE(files_.PowerCut(Unsynced::kLost).ok());
  EXPECT_EQ(Content("a"), "(not found)");
  EXPECT_EQ(Content("tree/b"), "(not found)");
}

TEST_F(FaultyFileSystemTest, ARenamedFolderKeepsItsOldNameUntilItsParentIsSynced) {
  for (const bool synced : {false, true}) {
    ASSERT_TRUE(files_.RemoveTree(Path("new")).ok());
    ASSERT_TRUE(files_.MakeFolder(Path("old/deep")).ok());
    ASSERT_TRUE(files_.WriteAtomically(Path("old/deep/a"), "durable").ok());
    ASSERT_TRUE(files_.WriteAtomically(Path("old/b"), "durable").ok());
    ASSERT_TRUE(files_.SyncFolder(folder_.path()).ok());
    ASSERT_TRUE(files_.Rename(Path("old"), Path("new")).ok());
    EXPECT_EQ(Content("new/deep/a"), "durable");
    if (synced) {
      ASSERT_TRUE(files_.SyncFolder(folder_.path()).ok());
    }
    ASSERT_TRUE(files_.PowerCut(Unsynced::kLost).ok());
    EXPECT_EQ(files_.Exists(Path("old")), !synced);
    EXPECT_EQ(files_.Exists(Path("new")), synced);
    EXPECT_EQ(Content(synced ? "new/deep/a" : "old/deep/a"), "durable");
    EXPECT_EQ(Content(synced ? "new/b" : "old/b"), "durable");
  }
}

TEST_F(FaultyFileSystemTest, TheDiskBecomesFull) {
  files_.SetFreeBytes(10);
  const auto file = files_.OpenForWriting(Path("a"), OpenMode::kCreateNew);
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE((*file)->WriteAt(0, Bytes("12345678")).ok());
  EXPECT_EQ(files_.Space(folder_.path())->free_bytes, 2);
  EXPECT_EQ((*file)->Allocate(100).code(), StatusCode::kDiskFull);
  EXPECT_EQ((*file)->WriteAt(8, Bytes("90abcdef")).code(), StatusCode::kDiskFull);
  EXPECT_EQ(Content("a"), "1234567890");
  files_.SetFreeBytes(-1);
  EXPECT_TRUE((*file)->WriteAt(8, Bytes("90abcdef")).ok());
}

TEST_F(FaultyFileSystemTest, FailsTheNthMatchAndCutsItsWriteShort) {
  files_.Inject({.point = "write:a", .nth = 2, .status = IoError("injected"), .kept_bytes = 2});
  files_.Inject({.point = "read:", .nth = 1, .status = IoError("injected")});
  const auto file = files_.OpenForWriting(Path("a"), OpenMode::kCreateNew);
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE((*file)->WriteAt(0, Bytes("one ")).ok());
  EXPECT_EQ((*file)->WriteAt(4, Bytes("two ")).code(), StatusCode::kIo);
  EXPECT_EQ(Content("a"), "one tw");
  EXPECT_TRUE((*file)->WriteAt(4, Bytes("three")).ok());
  EXPECT_EQ(files_.ReadAll(Path("a")).status().code(), StatusCode::kIo);
  EXPECT_TRUE(files_.ReadAll(Path("a")).ok());
}

TEST_F(FaultyFileSystemTest, TheHookCanForbidAChange) {
  ASSERT_TRUE(files_.WriteAtomically(Path("a"), "old").ok());
  files_.SetHook([](std::string_view point) { return point == "rename:a" ? Cancelled("stop here") : OkStatus(); });
  EXPECT_EQ(files_.WriteAtomically(Path("a"), "new").code(), StatusCode::kCancelled);
  EXPECT_EQ(Content("a"), "old");
}

}  // namespace
}  // namespace draftmill

#include "state/state_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "state/schema.h"
#include "state/store.h"
#include "state/temporary_folder.h"

namespace draftmill {
namespace {

using testing::HasSubstr;

/// The machine's files, of which all below one folder claim to be on a network.
class PartlyNetwork final : public FileSystem {
 public:
  explicit PartlyNetwork(std::string network_folder) : network_folder_(std::move(network_folder)) {}

  Result<DiskSpace> Space(const std::string& path) override {
    DRAFTMILL_ASSIGN_OR_RETURN(DiskSpace space, real_.Space(path));
    if (path.starts_with(network_folder_)) space.network = "NFS";
    return space;
  }
  Result<std::unique_ptr<ReadableFile>> OpenForReading(const std::string& path) override {
    return real_.OpenForReading(path);
  }
  Result<std::unique_ptr<WritableFile>> OpenForWriting(const std::string& path, OpenMode mode) override {
    return real_.OpenForWriting(path, mode);
  }
  Status Rename(const std::string& from, const std::string& to) override { return real_.Rename(from, to); }
  Status Remove(const std::string& path) override { return real_.Remove(path); }
  Status MakeFolder(const std::string& path) override { return real_.MakeFolder(path); }
  Status RemoveTree(const std::string& path) override { return real_.RemoveTree(path); }
  Status SyncFolder(const std::string& path) override { return real_.SyncFolder(path); }
  Result<std::vector<FileInfo>> List(const std::string& folder) override { return real_.List(folder); }
  Result<FileInfo> Stat(const std::string& path) override { return real_.Stat(path); }

 private:
  FileSystem& real_ = RealFileSystem();
  const std::string network_folder_;
};

class StatePlaceTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(files_.MakeFolder(work_).ok()); }
  Status Write(const std::string& folder) const {
    auto state = StateWriter::Open(folder, {.create = true});
    return state.ok() ? (*state)->Close() : state.status();
  }

  TemporaryFolder folder_;
  const std::string work_ = JoinPath(folder_.path(), "share/work");
  const std::string local_ = JoinPath(folder_.path(), "local");
  PartlyNetwork files_{JoinPath(folder_.path(), "share")};
};

TEST_F(StatePlaceTest, ANetworkFileSystemIsRefusedWithAWayOut) {
  const Status refused = PlaceState(files_, work_, std::nullopt);
  EXPECT_EQ(refused.code(), StatusCode::kUnsupported);
  EXPECT_THAT(refused.message(), HasSubstr("NFS"));
  EXPECT_THAT(refused.message(), HasSubstr("--state-dir"));
  EXPECT_TRUE(PlaceState(RealFileSystem(), work_, std::nullopt).ok());
  EXPECT_EQ(PlaceState(files_, work_, JoinPath(folder_.path(), "share/other")).code(), StatusCode::kUnsupported);
}

TEST_F(StatePlaceTest, TheDatabaseLiesInTheNamedFolder) {
  ASSERT_TRUE(PlaceState(files_, work_, local_).ok());
  ASSERT_TRUE(Write(work_).ok());
  EXPECT_TRUE(std::filesystem::is_symlink(StateDatabasePath(work_)));
  EXPECT_TRUE(files_.Exists(StateDatabasePath(local_)));
  // Named once, it is known; naming it again changes nothing.
  EXPECT_TRUE(PlaceState(files_, work_, std::nullopt).ok());
  EXPECT_TRUE(PlaceState(files_, work_, local_).ok());
}

TEST_F(StatePlaceTest, NoDatabaseIsTakenForAnother) {
  ASSERT_TRUE(Write(work_).ok());
  EXPECT_EQ(PlaceState(files_, work_, local_).code(), StatusCode::kConflict);
  const std::string other = JoinPath(folder_.path(), "share/second");
  ASSERT_TRUE(files_.MakeFolder(other).ok());
  ASSERT_TRUE(files_.MakeFolder(local_).ok());
  ASSERT_TRUE(Write(local_).ok());
  EXPECT_EQ(PlaceState(files_, other, local_).code(), StatusCode::kConflict);
}

TEST_F(StatePlaceTest, ADatabaseWithASecondNameIsRefused) {
  ASSERT_TRUE(files_.MakeFolder(local_).ok());
  ASSERT_TRUE(Write(local_).ok());
  ASSERT_TRUE(PlaceState(RealFileSystem(), local_, std::nullopt).ok());
  std::filesystem::create_hard_link(StateDatabasePath(local_), JoinPath(folder_.path(), "copy.db"));
  const Status refused = PlaceState(RealFileSystem(), local_, std::nullopt);
  EXPECT_EQ(refused.code(), StatusCode::kConflict);
  EXPECT_THAT(refused.message(), HasSubstr("2 names"));
}

TEST_F(StatePlaceTest, OnAnotherMachineTheLinkIsNamed) {
  ASSERT_TRUE(PlaceState(files_, work_, local_).ok());
  ASSERT_TRUE(Write(work_).ok());
  ASSERT_TRUE(files_.RemoveTree(local_).ok());
  const Status lost = PlaceState(files_, work_, std::nullopt);
  EXPECT_EQ(lost.code(), StatusCode::kNotFound);
  EXPECT_THAT(lost.message(), HasSubstr("rebuild"));
  EXPECT_TRUE(PlaceState(files_, work_, JoinPath(folder_.path(), "local2")).ok());
  EXPECT_TRUE(Write(work_).ok());
}

}  // namespace
}  // namespace draftmill

// That SQLite's changes go through the seam: as points, as faults, and with what a power cut leaves of a commit.
#include "state/sqlite_over_file_system.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "state/faulty_file_system.h"
#include "state/sqlite.h"
#include "state/temporary_folder.h"

namespace draftmill {
namespace {

class SqliteOverFileSystemTest : public testing::Test {
 protected:
  sqlite::Connection Open() const {
    sqlite::Connection connection = sqlite::Connection::Open(path_, sqlite::Access::kCreate).value();
    EXPECT_EQ(connection.QueryText("PRAGMA journal_mode = WAL").value(), "wal");
    EXPECT_TRUE(connection.Execute("PRAGMA synchronous = FULL; CREATE TABLE IF NOT EXISTS t (a)").ok());
    return connection;
  }
  static std::int64_t Rows(sqlite::Connection& connection) {
    return connection.QueryInteger("SELECT count(*) FROM t").value();
  }
  bool HasPoint(const std::string& point) const {
    const std::vector<std::string> points = files_.Points();
    return std::find(points.begin(), points.end(), point) != points.end();
  }

  TemporaryFolder folder_;
  FaultyFileSystem files_{RealFileSystem(), folder_.path()};
  SqliteOverFileSystem databases_{files_};
  std::string path_ = JoinPath(folder_.path(), "state.db");
};

TEST_F(SqliteOverFileSystemTest, EveryChangeIsAPoint) {
  sqlite::Connection connection = Open();
  ASSERT_TRUE(connection.Execute("INSERT INTO t VALUES (1)").ok());
  for (const char* point : {"create:state.db", "write:state.db", "create:state.db-wal", "write:state.db-wal",
                            "sync:state.db-wal", "sync_folder:."}) {
    EXPECT_TRUE(HasPoint(point)) << point;
  }
  EXPECT_EQ(connection.QueryText("PRAGMA journal_mode = DELETE").value(), "delete");
  EXPECT_TRUE(HasPoint("remove:state.db-wal"));
}

TEST_F(SqliteOverFileSystemTest, APowerCutKeepsWhatWasCommitted) {
  {
    sqlite::Connection connection = Open();
    ASSERT_TRUE(connection.Execute("INSERT INTO t VALUES (1)").ok());
    ASSERT_TRUE(connection.Execute("PRAGMA synchronous = OFF; INSERT INTO t VALUES (2)").ok());
    EXPECT_EQ(Rows(connection), 2);
    ASSERT_TRUE(files_.SyncFolder(folder_.path()).ok());
    ASSERT_TRUE(files_.PowerCut(Unsynced::kLost).ok());
  }
  sqlite::Connection connection = Open();
  EXPECT_EQ(Rows(connection), 1);
  EXPECT_EQ(connection.QueryText("PRAGMA integrity_check").value(), "ok");
}

TEST_F(SqliteOverFileSystemTest, AFullDiskAndAFailedSyncAreReported) {
  sqlite::Connection connection = Open();
  files_.Inject({.point = "sync:state.db-wal", .status = IoError("injected")});
  EXPECT_EQ(connection.Execute("INSERT INTO t VALUES (1)").code(), StatusCode::kIo);
  files_.SetFreeBytes(0);
  EXPECT_EQ(connection.Execute("INSERT INTO t VALUES (1)").code(), StatusCode::kDiskFull);
  files_.SetFreeBytes(-1);
  EXPECT_TRUE(connection.Execute("INSERT INTO t VALUES (1)").ok());
  EXPECT_EQ(Rows(connection), 1);
}

}  // namespace
}  // namespace draftmill

#include "state/sqlite.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "state/file_system.h"
#include "state/temporary_folder.h"

namespace draftmill::sqlite {
namespace {

class SqliteTest : public testing::Test {
 protected:
  std::string Path(std::string_view name = "a.db") const { return JoinPath(folder_.path(), name); }
  Connection Open() {
    Result<Connection> connection = Connection::Open(Path(), Access::kCreate);
    EXPECT_TRUE(connection.ok()) << connection.status().ToString();
    return std::move(connection).value();
  }

  TemporaryFolder folder_;
};

TEST_F(SqliteTest, BindsAndReadsEveryKindOfValue) {
  Connection db = Open();
  ASSERT_TRUE(db.Execute("CREATE TABLE t (i INTEGER, r REAL, s TEXT, b BLOB, n INTEGER) STRICT").ok());
  const std::array<std::uint8_t, 3> blob = {1, 0, 255};
  const std::optional<std::int64_t> nothing;
  ASSERT_TRUE(
      db.Run("INSERT INTO t VALUES (?, ?, ?, ?, ?)", std::int64_t{-5}, 0.5, std::string("a\0b", 3), blob, nothing)
          .ok());
  ASSERT_TRUE(
      db.Run("INSERT INTO t VALUES (?, ?, ?, ?, ?)", 7, 1.0, std::string_view(), nullptr, std::optional(9)).ok());
  Statement query = *db.Prepare("SELECT i, r, s, b, n FROM t ORDER BY i");
  ASSERT_TRUE(*query.Step());
  EXPECT_EQ(query.columns(), 5);
  EXPECT_EQ(query.ColumnName(2), "s");
  EXPECT_EQ(query.Integer(0), -5);
  EXPECT_EQ(query.Real(1), 0.5);
  EXPECT_EQ(query.Text(2), std::string("a\0b", 3));
  EXPECT_TRUE(std::equal(blob.begin(), blob.end(), query.Blob(3).begin(), query.Blob(3).end()));
  EXPECT_TRUE(query.IsNull(4));
  EXPECT_EQ(query.OptionalInteger(4), std::nullopt);
  ASSERT_TRUE(*query.Step());
  EXPECT_FALSE(query.IsNull(2));
  EXPECT_TRUE(query.IsNull(3));
  EXPECT_EQ(query.OptionalInteger(4), 9);
  EXPECT_FALSE(*query.Step());
}

TEST_F(SqliteTest, CachedStatementsCanBeRunAgain) {
  Connection db = Open();
  ASSERT_TRUE(db.Execute("CREATE TABLE t (i INTEGER PRIMARY KEY) STRICT").ok());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(db.Run("INSERT INTO t VALUES (?)", i).ok());
  EXPECT_FALSE(db.Run("INSERT INTO t VALUES (?)", 1).ok());
  EXPECT_TRUE(db.Run("INSERT INTO t VALUES (?)", 3).ok());
  EXPECT_EQ(*db.QueryInteger("SELECT count(*) FROM t"), 4);
  EXPECT_EQ(db.QueryInteger("SELECT i FROM t WHERE i > 100").status().code(), StatusCode::kNotFound);
}

TEST_F(SqliteTest, ATransactionIsRolledBackUnlessCommitted) {
  Connection db = Open();
  ASSERT_TRUE(db.Execute("CREATE TABLE t (i INTEGER) STRICT").ok());
  {
    Result<Transaction> transaction = Transaction::Begin(db);
    ASSERT_TRUE(transaction.ok());
    ASSERT_TRUE(db.Run("INSERT INTO t VALUES (1)").ok());
  }
  EXPECT_EQ(*db.QueryInteger("SELECT count(*) FROM t"), 0);
  {
    Result<Transaction> transaction = Transaction::Begin(db);
    ASSERT_TRUE(transaction.ok());
    ASSERT_TRUE(db.Run("INSERT INTO t VALUES (1)").ok());
    ASSERT_TRUE(transaction->Commit().ok());
  }
  EXPECT_EQ(*db.QueryInteger("SELECT count(*) FROM t"), 1);
}

TEST_F(SqliteTest, ReadersCannotWrite) {
  ASSERT_TRUE(Open().Execute("CREATE TABLE t (i INTEGER) STRICT").ok());
  Result<Connection> reader = Connection::Open(Path(), Access::kReadOnly);
  ASSERT_TRUE(reader.ok());
  EXPECT_FALSE(reader->Run("INSERT INTO t VALUES (1)").ok());
  EXPECT_EQ(Connection::Open(Path("missing.db"), Access::kReadOnly).status().code(), StatusCode::kIo);
}

TEST_F(SqliteTest, PathsAreNotReadAsOptions) {
  const std::string path = Path("a?mode=memory#x%41.db");
  {
    Result<Connection> db = Connection::Open(path, Access::kCreate);
    ASSERT_TRUE(db.ok());
    ASSERT_TRUE(db->Execute("CREATE TABLE t (i INTEGER) STRICT").ok());
  }
  EXPECT_TRUE(RealFileSystem().Exists(path));
}

TEST_F(SqliteTest, WrongSqlSaysWhichAndWhy) {
  Connection db = Open();
  const Status status = db.Run("SELECT nothing FROM nowhere");
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_NE(status.message().find("nowhere"), std::string::npos);
}

TEST_F(SqliteTest, AFullDatabaseIsAFullDisk) {
  Connection db = Open();
  ASSERT_TRUE(db.Execute("CREATE TABLE t (b BLOB) STRICT; PRAGMA max_page_count = 10").ok());
  EXPECT_EQ(db.Run("INSERT INTO t VALUES (zeroblob(1000000))").code(), StatusCode::kDiskFull);
}

}  // namespace
}  // namespace draftmill::sqlite

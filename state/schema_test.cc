#include "state/schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "state/run_lock.h"
#include "state/temporary_folder.h"
#include "state/written_at.h"

namespace draftmill {
namespace {

using testing::HasSubstr;

class SchemaTest : public testing::Test {
 protected:
  std::string Path() const { return StateDatabasePath(folder_.path()); }
  Result<WritableDatabase> Open(bool create = true) { return OpenForWriting(files_, Path(), create); }
  /// Changes the database behind draftmill's back.
  void Execute(const std::string& sql) {
    Result<sqlite::Connection> db = sqlite::Connection::Open(Path(), sqlite::Access::kCreate);
    ASSERT_TRUE(db.ok());
    const Status status = db->Execute(sql);
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  std::string Content() { return *files_.ReadAll(Path()); }

  TemporaryFolder folder_;
  FileSystem& files_ = RealFileSystem();
};

TEST_F(SchemaTest, MakesADatabaseWithTheSettingsItPromises) {
  EXPECT_EQ(Open(false).status().code(), StatusCode::kNotFound);
  Result<WritableDatabase> database = Open();
  ASSERT_TRUE(database.ok()) << database.status().ToString();
  EXPECT_FALSE(database->after_unclean_end);
  sqlite::Connection& db = database->connection;
  EXPECT_EQ(*db.QueryText("PRAGMA journal_mode"), "wal");
  EXPECT_EQ(*db.QueryInteger("PRAGMA synchronous"), 2);
  EXPECT_EQ(*db.QueryInteger("PRAGMA foreign_keys"), 1);
  EXPECT_EQ(*db.QueryInteger("PRAGMA trusted_schema"), 0);
  EXPECT_EQ(*db.QueryInteger("PRAGMA mmap_size"), 0);
  EXPECT_EQ(*db.QueryInteger("PRAGMA application_id"), kStateApplicationId);
  EXPECT_EQ(*db.QueryInteger("PRAGMA user_version"), SchemaVersion());
  EXPECT_EQ(*db.QueryInteger("SELECT count(*) FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND "
                             "name NOT LIKE 'sqlite_%' AND NOT strict"),
            0);
}

TEST_F(SchemaTest, ClosingLeavesOneFileThatOpensWithoutWriting) {
  {
    Result<WritableDatabase> database = Open();
    ASSERT_TRUE(database.ok());
    ASSERT_TRUE(CloseForWriting(database->connection).ok());
  }
  EXPECT_EQ(files_.List(folder_.path())->size(), 1U);
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0555), 0);
  EXPECT_TRUE(OpenForReading(files_, Path()).ok());
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0755), 0);
  Result<WritableDatabase> again = Open(false);
  ASSERT_TRUE(again.ok());
  EXPECT_FALSE(again->after_unclean_end);
}

TEST_F(SchemaTest, AnUncleanEndIsSeenAndItsCommitsAreKept) {
  const std::string crashed = JoinPath(folder_.path(), "crashed");
  ASSERT_TRUE(files_.MakeFolder(crashed).ok());
  {
    Result<WritableDatabase> database = Open();
    ASSERT_TRUE(database.ok());
    ASSERT_TRUE(database->connection.Run("INSERT INTO facts VALUES ('a', 'b')").ok());
    // What a kill would leave: the files as they are while the writer has them open.
    for (const char* name : {"state.db", "state.db-wal"}) {
      std::filesystem::copy_file(JoinPath(folder_.path(), name), JoinPath(crashed, name));
    }
  }
  Result<WritableDatabase> database = OpenForWriting(files_, StateDatabasePath(crashed), false);
  ASSERT_TRUE(database.ok()) << database.status().ToString();
  EXPECT_TRUE(database->after_unclean_end);
  EXPECT_EQ(*database->connection.QueryText("SELECT value FROM facts WHERE name = 'a'"), "b");
}

TEST_F(SchemaTest, RefusesWhatIsNoDatabaseAndLeavesItAlone) {
  const std::string text = std::string(5000, 'x');
  ASSERT_TRUE(files_.WriteAtomically(Path(), text).ok());
  const Status status = Open().status();
  EXPECT_EQ(status.code(), StatusCode::kConflict);
  EXPECT_THAT(status.message(), HasSubstr("no SQLite database"));
  EXPECT_THAT(status.message(), HasSubstr("Move it away and run again"));
  EXPECT_EQ(OpenForReading(files_, Path()).status().code(), StatusCode::kConflict);
  EXPECT_EQ(Content(), text);
}

TEST_F(SchemaTest, RefusesTheDatabaseOfAnotherProgram) {
  Execute("PRAGMA application_id = 7; CREATE TABLE theirs (i INTEGER)");
  const std::string before = Content();
  const Status status = Open().status();
  EXPECT_EQ(status.code(), StatusCode::kConflict);
  EXPECT_THAT(status.message(), HasSubstr("another program"));
  EXPECT_EQ(OpenForReading(files_, Path()).status().code(), StatusCode::kConflict);
  EXPECT_EQ(Content(), before);
}

TEST_F(SchemaTest, RefusesADatabaseWithoutAnOwnerThatHoldsTables) {
  Execute("CREATE TABLE theirs (i INTEGER)");
  EXPECT_EQ(Open().status().code(), StatusCode::kConflict);
}

TEST_F(SchemaTest, RefusesANewerVersion) {
  ASSERT_TRUE(Open().ok());
  Execute("PRAGMA user_version = " + std::to_string(SchemaVersion() + 1));
  const Status status = Open().status();
  EXPECT_EQ(status.code(), StatusCode::kConflict);
  EXPECT_THAT(status.message(), HasSubstr("newer draftmill"));
  EXPECT_EQ(OpenForReading(files_, Path()).status().code(), StatusCode::kConflict);
}

// As an earlier draftmill left it: only the first two versions of the schema.
TEST_F(SchemaTest, AnOlderDatabaseIsMigratedWithItsShards) {
  for (const Migration& migration : SchemaMigrations().first(2)) Execute(std::string(migration.sql));
  Execute("INSERT INTO shards VALUES (3, 1, 4, 2, 16, 1600, 'published', 'shards/f', 77, 'digest', 1, 'e', 'cpu', 5)");
  Execute("PRAGMA application_id = " + std::to_string(kStateApplicationId) + "; PRAGMA user_version = 2");
  EXPECT_EQ(OpenForReading(files_, Path()).status().code(), StatusCode::kConflict);
  Result<WritableDatabase> database = Open();
  ASSERT_TRUE(database.ok()) << database.status().ToString();
  sqlite::Connection& db = database->connection;
  EXPECT_EQ(*db.QueryInteger("PRAGMA user_version"), SchemaVersion());
  EXPECT_EQ(
      *db.QueryText("SELECT concat FROM (SELECT chunk || ' ' || shard || ' ' || first_batch || ' ' || batches || "
                    "' ' || samples || ' ' || tokens || ' ' || state || ' ' || file || ' ' || bytes || ' ' || "
                    "digest || ' ' || quarantined || ' ' || fingerprint || ' ' || numerics || ' ' || published_ms "
                    "AS concat FROM shards)"),
      "3 1 4 2 16 1600 published shards/f 77 digest 1 e cpu 5");
  EXPECT_EQ(*db.QueryInteger("SELECT shards FROM shards_by_state WHERE state = 'published'"), 1);
}

TEST_F(SchemaTest, RefusesASchemaThatIsNotTheOneOfItsVersion) {
  const std::string endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT i FROM n";
  for (const std::string& change :
       {"DROP VIEW progress; CREATE VIEW progress AS " + endless, std::string("DROP TABLE events"),
        std::string("CREATE TRIGGER t AFTER INSERT ON facts BEGIN DELETE FROM samples; END")}) {
    ASSERT_TRUE(files_.Remove(Path()).ok());
    {
      Result<WritableDatabase> database = Open();
      ASSERT_TRUE(database.ok());
      ASSERT_TRUE(CloseForWriting(database->connection).ok());
    }
    Execute(change);
    EXPECT_EQ(OpenForReading(files_, Path()).status().code(), StatusCode::kCorrupt) << change;
    EXPECT_EQ(Open().status().code(), StatusCode::kCorrupt) << change;
    for (const char* suffix : {"-wal", "-shm"}) ASSERT_TRUE(files_.Remove(Path() + suffix).ok());
  }
}

TEST_F(SchemaTest, AnIndexOfOnesOwnDoesNoHarm) {
  ASSERT_TRUE(Open().ok());
  Execute("CREATE INDEX mine ON samples (tokens)");
  EXPECT_TRUE(OpenForReading(files_, Path()).ok());
  EXPECT_TRUE(Open().ok());
}

TEST_F(SchemaTest, AFileInWhichNothingWasCommittedIsNew) {
  Execute("PRAGMA journal_mode = WAL");
  EXPECT_EQ(OpenForReading(files_, Path()).status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(Open().ok());
}

/// Rows for some hundred pages, all of them in the file and none in the log.
Status FillPages(sqlite::Connection& connection) {
  return connection.Execute(
      "WITH RECURSIVE counter(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counter WHERE n < 20000)"
      "INSERT INTO facts SELECT 'name' || n, 'value' || n FROM counter;"
      "PRAGMA wal_checkpoint(TRUNCATE)");
}

/// Loses a page in the middle, as in a copy that was made while a run wrote.
void LosePage(std::string& content) { content.replace(content.size() - 3 * 4096, 4096, 4096, '\x5a'); }

TEST_F(SchemaTest, ReadsEveryPageAfterAnUncleanEndThatMayHaveTornSome) {
  Result<WritableDatabase> database = Open();
  ASSERT_TRUE(database.ok());
  ASSERT_TRUE(FillPages(database->connection).ok());
  std::string content = Content();
  LosePage(content);
  const auto file = files_.OpenForWriting(Path(), OpenMode::kOpenExisting);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE((*file)->WriteAt(0, std::as_bytes(std::span(content))).ok());
  // As after a kill: this connection stays open, and what it writes now stays in the log.
  const std::string place = PlaceOf(files_, Path());
  ASSERT_THAT(place, HasSubstr(BootId()));
  const auto remember = [&](const std::string& where) {
    return database->connection.Run("UPDATE facts SET value = ? WHERE name = 'written_at'", where);
  };
  // A kill alone loses no page: at ten million samples reading them all would take longer than everything else.
  ASSERT_TRUE(remember(place).ok());
  EXPECT_TRUE(Open().ok());
  // The machine was started again, it is another file or was changed since, or the system does not say.
  for (const std::string& other : {"boot another" + place.substr(place.find(',')), place + '0', std::string()}) {
    ASSERT_TRUE(remember(other).ok());
    const Status status = Open().status();
    EXPECT_EQ(status.code(), StatusCode::kCorrupt) << other;
    EXPECT_THAT(status.message(), HasSubstr("run again"));
  }
}

// Somebody copies a work folder while a run writes to it and puts the copy back: over the file, or as a new one, which
// often gets the inode that became free.
TEST_F(SchemaTest, ReadsEveryPageOfACopyThatWasPutBack) {
  std::string copy;
  std::string log;
  {
    Result<WritableDatabase> database = Open();
    ASSERT_TRUE(database.ok());
    ASSERT_TRUE(FillPages(database->connection).ok());
    ASSERT_TRUE(RememberWritten(files_, database->connection, Path()).ok());
    EXPECT_TRUE(*IsAsWritten(files_, database->connection, Path()));
    copy = Content();
    log = *files_.ReadAll(Path() + "-wal");
  }
  LosePage(copy);
  for (const bool over_the_file : {true, false}) {
    // Kernels tell the time of a change in steps of up to 10 ms.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    for (const auto& [path, content] : {std::pair(Path(), &copy), std::pair(Path() + "-wal", &log)}) {
      if (!over_the_file) {
        ASSERT_TRUE(files_.Remove(path).ok());
      }
      const auto file = files_.OpenForWriting(path, OpenMode::kCreate);
      ASSERT_TRUE(file.ok());
      ASSERT_TRUE((*file)->WriteAt(0, std::as_bytes(std::span(*content))).ok());
    }
    EXPECT_EQ(Open().status().code(), StatusCode::kCorrupt) << over_the_file;
  }
}

TEST_F(SchemaTest, TruncatedAndGarbledFilesAreRefusedWithoutACrash) {
  {
    Result<WritableDatabase> database = Open();
    ASSERT_TRUE(database.ok());
    ASSERT_TRUE(CloseForWriting(database->connection).ok());
  }
  const std::string whole = Content();
  for (const std::size_t size : {1UL, 50UL, 100UL, 4096UL, whole.size() / 2}) {
    ASSERT_TRUE(files_.WriteAtomically(Path(), whole.substr(0, size)).ok());
    EXPECT_FALSE(OpenForReading(files_, Path()).ok()) << size;
    EXPECT_FALSE(Open().ok()) << size;
  }
  std::string garbled = whole;
  std::fill(garbled.begin() + 100, garbled.begin() + 4096, '\xff');
  ASSERT_TRUE(files_.WriteAtomically(Path(), garbled).ok());
  EXPECT_EQ(OpenForReading(files_, Path()).status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(Open().status().code(), StatusCode::kCorrupt);
}

// A seeded stand-in for the fuzzer: bytes changed anywhere end in an answer or a refusal.
TEST_F(SchemaTest, DamagedBytesNeverCrashAReader) {
  {
    Result<WritableDatabase> database = Open();
    ASSERT_TRUE(database.ok());
    ASSERT_TRUE(database->connection.Run("INSERT INTO facts VALUES ('a', 'b')").ok());
    ASSERT_TRUE(CloseForWriting(database->connection).ok());
  }
  const std::string whole = Content();
  std::mt19937_64 random(7);
  for (int round = 0; round < 60; ++round) {
    std::string changed = whole;
    for (int i = 0; i < 8; ++i) changed[random() % changed.size()] = static_cast<char>(random());
    ASSERT_TRUE(files_.WriteAtomically(Path(), changed).ok());
    Result<sqlite::Connection> db = OpenForReading(files_, Path());
    if (!db.ok()) continue;
    for (const char* table : {"progress", "timeline", "facts", "failures_by_reason"}) {
      static_cast<void>(db->QueryText("SELECT * FROM " + std::string(table)));
    }
  }
}

}  // namespace
}  // namespace draftmill

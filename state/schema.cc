#include "state/schema.h"

#include <array>
#include <chrono>
#include <cstring>
#include <map>
#include <thread>
#include <utility>

#include "state/written_at.h"

namespace draftmill {
namespace {

constexpr std::string_view kMagic{"SQLite format 3\0", 16};
constexpr std::size_t kWriteVersionOffset = 18;
constexpr std::byte kWalVersion{2};

/// The first bytes of the file say without SQLite what it is and how its last writer left it.
struct FileHead {
  bool missing_or_empty = false;
  bool is_sqlite = false;
  bool is_wal = false;
};

Result<FileHead> ReadHead(FileSystem& files, const std::string& path) {
  const Result<std::unique_ptr<ReadableFile>> file = files.OpenForReading(path);
  if (!file.ok()) {
    if (file.status().code() == StatusCode::kNotFound) return FileHead{.missing_or_empty = true};
    return file.status();
  }
  std::array<std::byte, 100> head{};
  DRAFTMILL_ASSIGN_OR_RETURN(const std::size_t count, (*file)->ReadAt(0, head));
  return FileHead{.missing_or_empty = count == 0,
                  .is_sqlite = count == head.size() && std::memcmp(head.data(), kMagic.data(), kMagic.size()) == 0,
                  .is_wal = head[kWriteVersionOffset] == kWalVersion};
}

/// Opens and closes the file: only where no connection of this process can be open on it.
bool StartsAsSqlite(FileSystem& files, const std::string& path) {
  const Result<FileHead> head = ReadHead(files, path);
  return !head.ok() || head->is_sqlite;
}

constexpr std::string_view kMoveAway =
    ". It was left as it is. Move it away and run again (shards that are whole and right are kept), or name another "
    "work "
    "folder with --work DIR";

Status NotOurs(const std::string& path, std::string_view what) {
  return Conflict(path + " is " + std::string(what) + std::string(kMoveAway));
}

/// Whose database it is. Version 0 of nobody is a file in which nothing was ever committed.
Result<std::int64_t> CheckOwner(sqlite::Connection& connection, const std::string& path) {
  DRAFTMILL_ASSIGN_OR_RETURN(const std::int64_t application, connection.QueryInteger("PRAGMA application_id"));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::int64_t version, connection.QueryInteger("PRAGMA user_version"));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::int64_t objects, connection.QueryInteger("SELECT count(*) FROM sqlite_schema"));
  if (application == 0 && version == 0 && objects == 0) return 0;
  if (application != kStateApplicationId) return NotOurs(path, "a database of another program");
  if (version > SchemaVersion()) {
    return Conflict(path + " was written by a newer draftmill (its schema is version " + std::to_string(version) +
                    ", this program knows " + std::to_string(SchemaVersion()) +
                    "). It was left as it is. Use the newer program");
  }
  if (version < 1) return sqlite::Damaged(path, "its schema has no version");
  return version;
}

Status RunMigrations(sqlite::Connection& connection, std::int64_t version) {
  for (const Migration& migration : SchemaMigrations().subspan(static_cast<std::size_t>(version))) {
    DRAFTMILL_RETURN_IF_ERROR(connection.Execute(std::string(migration.sql)).WithContext(migration.name));
  }
  return OkStatus();
}

Status Migrate(sqlite::Connection& connection, std::int64_t version) {
  if (version == SchemaVersion()) return OkStatus();
  DRAFTMILL_ASSIGN_OR_RETURN(sqlite::Transaction transaction, sqlite::Transaction::Begin(connection));
  DRAFTMILL_RETURN_IF_ERROR(RunMigrations(connection, version));
  DRAFTMILL_RETURN_IF_ERROR(connection.Execute("PRAGMA application_id = " + std::to_string(kStateApplicationId)));
  DRAFTMILL_RETURN_IF_ERROR(connection.Execute("PRAGMA user_version = " + std::to_string(SchemaVersion())));
  return transaction.Commit();
}

/// The SQL of everything in a database, by kind and name.
using SchemaObjects = std::map<std::string, std::string>;

Result<SchemaObjects> ReadObjects(sqlite::Connection& connection) {
  SchemaObjects objects;
  DRAFTMILL_ASSIGN_OR_RETURN(
      sqlite::Statement query,
      connection.Prepare("SELECT type || ' ' || name, sql FROM sqlite_schema WHERE sql IS NOT NULL"));
  for (;;) {
    DRAFTMILL_ASSIGN_OR_RETURN(const bool found, query.Step());
    if (!found) return objects;
    objects[query.Text(0)] = query.Text(1);
  }
}

/// Of a database that this program made. The same for as long as the program runs, and a millisecond to find out.
Result<SchemaObjects> MakeExpectedObjects() {
  DRAFTMILL_ASSIGN_OR_RETURN(sqlite::Connection pattern, sqlite::Connection::Open(":memory:", sqlite::Access::kCreate));
  DRAFTMILL_RETURN_IF_ERROR(RunMigrations(pattern, 0));
  return ReadObjects(pattern);
}

const Result<SchemaObjects>& ExpectedObjects() {
  static const Result<SchemaObjects> objects = MakeExpectedObjects();
  return objects;
}

/// What a database of this version holds must be what this program would have made: a file from elsewhere could give a
/// view another meaning, or let a trigger change what is written. Views and indexes that somebody added do no harm.
Status CheckObjects(sqlite::Connection& connection, const std::string& path) {
  DRAFTMILL_RETURN_IF_ERROR(ExpectedObjects().status());
  DRAFTMILL_ASSIGN_OR_RETURN(const SchemaObjects found, ReadObjects(connection));
  for (const auto& [name, sql] : *ExpectedObjects()) {
    const auto object = found.find(name);
    if (object == found.end()) return sqlite::Damaged(path, "it has no " + name);
    if (object->second != sql) return sqlite::Damaged(path, "its " + name + " was changed");
  }
  for (const auto& [name, sql] : found) {
    if (name.starts_with("trigger ")) return sqlite::Damaged(path, "somebody added the " + name);
  }
  return OkStatus();
}

Status QuickCheck(sqlite::Connection& connection, const std::string& path) {
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string finding, connection.QueryText("PRAGMA quick_check(1)"));
  return finding == "ok" ? OkStatus() : sqlite::Damaged(path, finding);
}

/// Errors of SQLite about the file itself, in the words of this module.
Status Explain(const Status& status, const std::string& path) {
  if (status.code() == StatusCode::kCorrupt && !status.message().starts_with(path)) {
    return sqlite::Damaged(path, status.message());
  }
  return status;
}

/// Asks whose it is without changing anything: closing a writing connection would fold in a foreign file's log. A file
/// that cannot be read so (a journal to be rolled back) is left to the writing connection.
Status RefuseForeign(const std::string& path) {
  Result<sqlite::Connection> connection = sqlite::Connection::Open(path, sqlite::Access::kReadOnly);
  if (!connection.ok()) return OkStatus();
  const Status status = CheckOwner(*connection, path).status();
  return status.code() == StatusCode::kIo ? OkStatus() : status;
}

/// Every page, but where all that the file holds is known to have come from its own writer: 0.7 s for a million samples,
/// which a kill need not cost.
Status CheckPages(FileSystem& files, sqlite::Connection& connection, const std::string& path, std::int64_t version) {
  if (version > 0) {
    DRAFTMILL_ASSIGN_OR_RETURN(const bool is_known, IsAsWritten(files, connection, path));
    if (is_known) return OkStatus();
  }
  return QuickCheck(connection, path);
}

Result<WritableDatabase> TryOpenForWriting(FileSystem& files, const FileHead& head, const std::string& path) {
  if (!head.missing_or_empty) DRAFTMILL_RETURN_IF_ERROR(RefuseForeign(path));
  DRAFTMILL_ASSIGN_OR_RETURN(sqlite::Connection connection, sqlite::Connection::Open(path, sqlite::Access::kCreate));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::int64_t version, CheckOwner(connection, path));
  if (head.is_wal) DRAFTMILL_RETURN_IF_ERROR(CheckPages(files, connection, path, version));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string mode, connection.QueryText("PRAGMA journal_mode = WAL"));
  if (mode != "wal") {
    return Unsupported(path +
                       ": this file system cannot hold the database (no shared memory for SQLite's WAL mode). "
                       "Put the work folder on a local disk");
  }
  DRAFTMILL_RETURN_IF_ERROR(connection.Execute("PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 1000"));
  DRAFTMILL_RETURN_IF_ERROR(Migrate(connection, version));
  DRAFTMILL_RETURN_IF_ERROR(CheckObjects(connection, path));
  DRAFTMILL_RETURN_IF_ERROR(RememberWritten(files, connection, path));
  return WritableDatabase{.connection = std::move(connection), .after_unclean_end = head.is_wal};
}

/// Makes SQLite read the file, which opening alone does not.
Status TouchSchema(sqlite::Connection& connection) {
  return connection.QueryInteger("SELECT count(*) FROM sqlite_schema").status();
}

/// A WAL database in a folder that cannot be written opens only as a file that does not change; which holds where no
/// log is beside it.
Result<sqlite::Connection> OpenReadable(FileSystem& files, const std::string& path) {
  Result<sqlite::Connection> connection = sqlite::Connection::Open(path, sqlite::Access::kReadOnly);
  Status status = connection.status();
  if (status.ok()) status = TouchSchema(*connection);
  if (status.ok()) return connection;
  if (status.code() != StatusCode::kIo || files.Exists(path + "-wal")) return status;
  DRAFTMILL_ASSIGN_OR_RETURN(sqlite::Connection immutable, sqlite::Connection::Open(path, sqlite::Access::kImmutable));
  DRAFTMILL_RETURN_IF_ERROR(TouchSchema(immutable));
  return immutable;
}

}  // namespace

std::int64_t SchemaVersion() { return static_cast<std::int64_t>(SchemaMigrations().size()); }

std::string StateDatabasePath(const std::string& work_folder) { return JoinPath(work_folder, "state.db"); }

Result<WritableDatabase> OpenForWriting(FileSystem& files, const std::string& path, bool create) {
  DRAFTMILL_ASSIGN_OR_RETURN(const FileHead head, ReadHead(files, path));
  if (head.missing_or_empty && !create) {
    return NotFound("there is no " + path + ": nothing was run in this work folder yet");
  }
  if (!head.missing_or_empty && !head.is_sqlite) return NotOurs(path, "no SQLite database");
  Result<WritableDatabase> database = TryOpenForWriting(files, head, path);
  if (!database.ok()) return Explain(database.status(), path);
  // SQLite syncs the file; that its name survives is up to us.
  DRAFTMILL_RETURN_IF_ERROR(files.SyncFolder(ParentPath(path)));
  return database;
}

Status CloseForWriting(sqlite::Connection& connection) {
  // SQLite does not wait for readers here; one that only looks is gone in a moment.
  constexpr int kTries = 10;
  constexpr std::chrono::milliseconds kPause(100);
  for (int i = 0; i < kTries; ++i) {
    if (i > 0) std::this_thread::sleep_for(kPause);
    const Result<std::string> mode = connection.QueryText("PRAGMA journal_mode = DELETE");
    if (!mode.ok() && mode.status().code() != StatusCode::kConflict) return mode.status();
    if (mode.ok() && *mode == "delete") return OkStatus();
  }
  return Conflict("the state database is being read by another process; it stays complete, but in WAL mode");
}

Result<sqlite::Connection> OpenForReading(FileSystem& files, const std::string& path) {
  // Only SQLite may open the file here: the writer of this process holds locks on it, and closing any other descriptor of
  // the file would drop them (POSIX locks belong to the process). Somebody else's connection could then remove the log.
  const Status nothing = NotFound("there is no run in " + ParentPath(path) + " yet (" + path + " is missing or empty)");
  const Result<FileInfo> info = files.Stat(path);
  if (!info.ok()) return info.status().code() == StatusCode::kNotFound ? nothing : info.status();
  if (info->is_folder) return NotOurs(path, "a folder");
  if (info->size_bytes == 0) return nothing;
  Result<sqlite::Connection> connection = OpenReadable(files, path);
  if (connection.status().code() == StatusCode::kCorrupt && !StartsAsSqlite(files, path)) {
    return NotOurs(path, "no SQLite database");
  }
  if (!connection.ok()) return Explain(connection.status(), path);
  const Result<std::int64_t> version = CheckOwner(*connection, path);
  if (!version.ok()) return Explain(version.status(), path);
  if (*version == 0) return nothing;
  if (*version < SchemaVersion()) {
    return Conflict(path + " was written by an older draftmill (its schema is version " + std::to_string(*version) +
                    ", this program reads " + std::to_string(SchemaVersion()) +
                    "). Nothing is lost: `draftmill run` brings it up to date");
  }
  const Status objects = CheckObjects(*connection, path);
  if (!objects.ok()) return Explain(objects, path);
  return connection;
}

}  // namespace draftmill

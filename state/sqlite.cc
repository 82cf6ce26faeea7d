#include "state/sqlite.h"

#include <sqlite3.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace draftmill::sqlite {
namespace {

StatusCode CodeOf(sqlite3* connection, int code) {
  switch (code & 0xff) {
    case SQLITE_FULL: return StatusCode::kDiskFull;
    case SQLITE_IOERR: {
      const int error = sqlite3_system_errno(connection);
      return error == ENOSPC || error == EDQUOT ? StatusCode::kDiskFull : StatusCode::kIo;
    }
    case SQLITE_NOMEM: return StatusCode::kOutOfMemory;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB: return StatusCode::kCorrupt;
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return StatusCode::kConflict;
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_PERM: return StatusCode::kIo;
    default: return StatusCode::kInternal;
  }
}

/// The file of a connection; empty where it has none.
std::string FileOf(sqlite3* connection) {
  const char* file = connection != nullptr ? sqlite3_db_filename(connection, "main") : nullptr;
  return file != nullptr ? file : "";
}

Status ErrorOf(sqlite3* connection, int code, std::string_view what) {
  const StatusCode status = CodeOf(connection, code);
  if (status == StatusCode::kCorrupt) {
    const std::string file = FileOf(connection);
    return Damaged(file.empty() ? "state.db" : file, sqlite3_errstr(code));
  }
  std::string message("SQLite: ");
  message += what;
  message += ": ";
  message += connection != nullptr ? sqlite3_errmsg(connection) : sqlite3_errstr(code);
  // Other messages get the path from whoever opened the file; these may come from any statement of a run.
  if (status != StatusCode::kDiskFull && status != StatusCode::kIo) return {status, std::move(message)};
  const int error = connection != nullptr ? sqlite3_system_errno(connection) : 0;
  if (status == StatusCode::kIo && error != 0) message += std::string(" (") + std::strerror(error) + ")";
  const std::string file = FileOf(connection);
  if (!file.empty() && message.find(file) == std::string::npos) message += ": " + file;
  return {status, std::move(message)};
}

/// The file: URI of a path, so that no character of it is read as an option.
std::string FileUri(const std::string& path, std::string_view options) {
  constexpr char kHexDigits[] = "0123456789ABCDEF";
  std::string uri = "file:";
  for (const char c : path) {
    if (c == '?' || c == '#' || c == '%') {
      const auto byte = static_cast<unsigned char>(c);
      uri += '%';
      uri += kHexDigits[byte >> 4];
      uri += kHexDigits[byte & 15];
    } else {
      uri += c;
    }
  }
  uri += options;
  return uri;
}

int OpenFlags(Access access) {
  // Each connection has one thread at a time, so SQLite's own mutexes would only cost.
  constexpr int kCommon = SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
  switch (access) {
    case Access::kReadOnly:
    case Access::kImmutable: return kCommon | SQLITE_OPEN_READONLY;
    case Access::kCreate: return kCommon | SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  }
  return kCommon | SQLITE_OPEN_READONLY;
}

}  // namespace

Status Damaged(std::string_view path, std::string_view finding) {
  std::string message(path);
  message += " is damaged (";
  message += finding;
  message += kDamagedAdvice;
  return Corrupt(std::move(message));
}

void Statement::Finalizer::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }

Status Statement::Check(int code, std::string_view what) const {
  if (code == SQLITE_OK) return OkStatus();
  return ErrorOf(sqlite3_db_handle(statement_.get()), code, what);
}

Result<bool> Statement::Step() {
  const int code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) {
    DRAFTMILL_RETURN_IF_ERROR(Reset());
    return false;
  }
  const Status status = Check(code, sqlite3_sql(statement_.get()));
  sqlite3_reset(statement_.get());
  return status;
}

Status Statement::Finish() {
  for (;;) {
    DRAFTMILL_ASSIGN_OR_RETURN(const bool row, Step());
    if (!row) return OkStatus();
  }
}

Status Statement::Reset() {
  // The code repeats the error of the last Step, which has been reported already.
  sqlite3_reset(statement_.get());
  return OkStatus();
}

int Statement::columns() const { return sqlite3_column_count(statement_.get()); }
std::string Statement::ColumnName(int column) const { return sqlite3_column_name(statement_.get(), column); }
bool Statement::IsNull(int column) const { return sqlite3_column_type(statement_.get(), column) == SQLITE_NULL; }
std::int64_t Statement::Integer(int column) const { return sqlite3_column_int64(statement_.get(), column); }
double Statement::Real(int column) const { return sqlite3_column_double(statement_.get(), column); }

std::string Statement::Text(int column) const {
  const unsigned char* text = sqlite3_column_text(statement_.get(), column);
  if (text == nullptr) return {};
  const auto size = static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column));
  return {reinterpret_cast<const char*>(text), size};
}

std::span<const std::uint8_t> Statement::Blob(int column) const {
  const void* blob = sqlite3_column_blob(statement_.get(), column);
  if (blob == nullptr) return {};
  const auto size = static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column));
  return {static_cast<const std::uint8_t*>(blob), size};
}

std::optional<std::int64_t> Statement::OptionalInteger(int column) const {
  return IsNull(column) ? std::nullopt : std::optional(Integer(column));
}

std::optional<double> Statement::OptionalReal(int column) const {
  return IsNull(column) ? std::nullopt : std::optional(Real(column));
}

Status Statement::BindInteger(int index, std::int64_t value) {
  return Check(sqlite3_bind_int64(statement_.get(), index, value), "bind an integer");
}

Status Statement::BindReal(int index, double value) {
  return Check(sqlite3_bind_double(statement_.get(), index, value), "bind a number");
}

Status Statement::BindText(int index, std::string_view value) {
  // A null pointer would bind NULL; empty text is not NULL.
  const char* data = value.data() != nullptr ? value.data() : "";
  return Check(sqlite3_bind_text64(statement_.get(), index, data, value.size(), SQLITE_TRANSIENT, SQLITE_UTF8),
               "bind text");
}

Status Statement::BindBlob(int index, std::span<const std::uint8_t> value) {
  const void* data = value.data() != nullptr ? static_cast<const void*>(value.data()) : "";
  return Check(sqlite3_bind_blob64(statement_.get(), index, data, value.size(), SQLITE_TRANSIENT), "bind a blob");
}

Status Statement::BindNull(int index) { return Check(sqlite3_bind_null(statement_.get(), index), "bind NULL"); }

void Connection::Closer::operator()(sqlite3* connection) const { sqlite3_close_v2(connection); }

Result<Connection> Connection::Open(const std::string& path, Access access) {
  const std::string uri = FileUri(path, access == Access::kImmutable ? "?immutable=1" : "");
  sqlite3* raw = nullptr;
  const int code = sqlite3_open_v2(uri.c_str(), &raw, OpenFlags(access), nullptr);
  Connection connection;
  connection.connection_.reset(raw);
  if (code != SQLITE_OK) return ErrorOf(raw, code, "open " + path);
  constexpr int kBusyTimeoutMs = 5000;
  sqlite3_busy_timeout(raw, kBusyTimeoutMs);
  // The file may come from anywhere: its schema must not reach functions with effects, nor corrupt what reads it.
  sqlite3_db_config(raw, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_db_config(raw, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(raw, SQLITE_DBCONFIG_ENABLE_FKEY, 1, nullptr);
  constexpr int kMaxValueBytes = 256 << 20;
  sqlite3_limit(raw, SQLITE_LIMIT_LENGTH, kMaxValueBytes);
  const bool read_only = access == Access::kReadOnly || access == Access::kImmutable;
  if (read_only) DRAFTMILL_RETURN_IF_ERROR(connection.Execute("PRAGMA query_only = ON"));
  DRAFTMILL_RETURN_IF_ERROR(connection.Execute("PRAGMA cell_size_check = ON"));
  return connection;
}

Status Connection::Execute(const std::string& sql) {
  const int code = sqlite3_exec(connection_.get(), sql.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? OkStatus() : ErrorOf(connection_.get(), code, sql.substr(0, 200));
}

Result<Statement> Connection::Prepare(std::string_view sql) {
  sqlite3_stmt* raw = nullptr;
  const int code = sqlite3_prepare_v3(connection_.get(), sql.data(), static_cast<int>(sql.size()),
                                      SQLITE_PREPARE_PERSISTENT, &raw, nullptr);
  if (code != SQLITE_OK) return ErrorOf(connection_.get(), code, sql);
  if (raw == nullptr) return Internal("SQLite: no statement in: " + std::string(sql));
  return Statement(raw);
}

Result<Statement*> Connection::Cached(std::string_view sql) {
  const auto found = cache_.find(sql);
  if (found != cache_.end()) return found->second.get();
  DRAFTMILL_ASSIGN_OR_RETURN(Statement statement, Prepare(sql));
  auto& kept = cache_[std::string(sql)];
  kept = std::make_unique<Statement>(std::move(statement));
  return kept.get();
}

Result<std::int64_t> Connection::QueryInteger(std::string_view sql) {
  DRAFTMILL_ASSIGN_OR_RETURN(Statement statement, Prepare(sql));
  DRAFTMILL_ASSIGN_OR_RETURN(const bool found, statement.Step());
  if (!found) return NotFound("SQLite: no row: " + std::string(sql));
  return statement.Integer(0);
}

Result<std::string> Connection::QueryText(std::string_view sql) {
  DRAFTMILL_ASSIGN_OR_RETURN(Statement statement, Prepare(sql));
  DRAFTMILL_ASSIGN_OR_RETURN(const bool found, statement.Step());
  if (!found) return NotFound("SQLite: no row: " + std::string(sql));
  return statement.Text(0);
}

std::int64_t Connection::changes() const { return sqlite3_changes64(connection_.get()); }
std::int64_t Connection::last_insert_row() const { return sqlite3_last_insert_rowid(connection_.get()); }

Result<Transaction> Transaction::Begin(Connection& connection) {
  DRAFTMILL_RETURN_IF_ERROR(connection.Run("BEGIN IMMEDIATE"));
  return Transaction(connection);
}

Transaction::Transaction(Transaction&& other) noexcept : connection_(std::exchange(other.connection_, nullptr)) {}

Transaction::~Transaction() { Rollback(); }

void Transaction::Rollback() {
  Connection* connection = std::exchange(connection_, nullptr);
  // Fails where SQLite has rolled back on its own (full disk), which is what was wanted.
  if (connection != nullptr) static_cast<void>(connection->Run("ROLLBACK"));
}

Status Transaction::Commit() {
  const Status status = connection_->Run("COMMIT");
  if (status.ok()) {
    connection_ = nullptr;
  } else {
    Rollback();
  }
  return status;
}

}  // namespace draftmill::sqlite

// SQLite's C interface in RAII and Status: nothing more, so that the SQL stays visible where it is used.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(sqlite::Connection db, sqlite::Connection::Open(path, sqlite::Access::kReadOnly));
//   DRAFTMILL_ASSIGN_OR_RETURN(sqlite::Statement * query, db.Cached("SELECT rows FROM chunks WHERE chunk = ?"));
//   DRAFTMILL_RETURN_IF_ERROR(query->Bind(chunk));
//   DRAFTMILL_ASSIGN_OR_RETURN(const bool found, query->Step());
//
// Threads: a connection and its statements belong to one thread at a time. Errors: a full disk is kDiskFull, a file
// that is no database or a damaged one kCorrupt, a lock held by somebody else kConflict, the rest kIo or kInternal
// (wrong SQL).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/status.h"

struct sqlite3;
struct sqlite3_stmt;

namespace draftmill::sqlite {

/// Ends the message about a damaged database, after "... is damaged (finding".
inline constexpr std::string_view kDamagedAdvice =
    "). The shards and the other files of the work folder are not touched by this. `draftmill state TARGET rebuild` "
    "moves it "
    "aside and makes it again from them; then run again: shards that are whole and right are kept";

/// kCorrupt for a database that is damaged itself: `finding` says how, in a few words.
Status Damaged(std::string_view path, std::string_view finding);

/// How a database is opened.
enum class Access : std::uint8_t {
  kReadOnly,   ///< sees what others commit; never changes the file
  kImmutable,  ///< read-only, and the file is promised not to change: needs no write permission beside it
  kCreate,     ///< for writing; made where it is missing
};

/// A compiled statement. Parameters are numbered from 1, columns from 0.
class Statement {
 public:
  Statement() = default;
  explicit Statement(sqlite3_stmt* statement) : statement_(statement) {}

  /// Binds all parameters in order and makes the statement ready to run again. Text and blobs are copied.
  /// Accepts integers, double, text (std::string_view), blobs (std::span<const std::uint8_t>), nullptr, and
  /// std::optional of these, where nothing stands for NULL.
  template <typename... Values>
  Status Bind(const Values&... values) {
    DRAFTMILL_RETURN_IF_ERROR(Reset());
    int index = 0;
    Status status;
    static_cast<void>(((status = BindAny(++index, values)).ok() && ...));
    return status;
  }
  /// Binds, runs to the end, and resets; for statements that return nothing.
  template <typename... Values>
  Status Run(const Values&... values) {
    DRAFTMILL_RETURN_IF_ERROR(Bind(values...));
    return Finish();
  }

  /// Goes to the next row; false after the last one, when the statement is ready to be bound again.
  Result<bool> Step();
  /// Steps to the end and resets.
  Status Finish();
  /// Ends the current execution, which also ends its read transaction.
  Status Reset();

  int columns() const;
  std::string ColumnName(int column) const;
  bool IsNull(int column) const;
  std::int64_t Integer(int column) const;
  double Real(int column) const;
  std::string Text(int column) const;
  /// Valid until the next Step or Reset.
  std::span<const std::uint8_t> Blob(int column) const;
  /// Nothing where the column is NULL.
  std::optional<std::int64_t> OptionalInteger(int column) const;
  std::optional<double> OptionalReal(int column) const;

 private:
  Status BindInteger(int index, std::int64_t value);
  Status BindReal(int index, double value);
  Status BindText(int index, std::string_view value);
  Status BindBlob(int index, std::span<const std::uint8_t> value);
  Status BindNull(int index);

  template <typename Value>
  Status BindAny(int index, const Value& value) {
    if constexpr (std::is_same_v<Value, std::nullptr_t>) {
      return BindNull(index);
    } else if constexpr (std::is_integral_v<Value>) {
      return BindInteger(index, static_cast<std::int64_t>(value));
    } else if constexpr (std::is_floating_point_v<Value>) {
      return BindReal(index, value);
    } else if constexpr (std::is_convertible_v<const Value&, std::string_view>) {
      return BindText(index, value);
    } else if constexpr (std::is_convertible_v<const Value&, std::span<const std::uint8_t>>) {
      return BindBlob(index, value);
    } else {
      return value.has_value() ? BindAny(index, *value) : BindNull(index);
    }
  }
  Status Check(int code, std::string_view what) const;

  struct Finalizer {
    void operator()(sqlite3_stmt* statement) const;
  };
  std::unique_ptr<sqlite3_stmt, Finalizer> statement_;
};

/// An open database. Opening sets what every connection of draftmill has: foreign keys, a busy timeout of 5 s, no
/// trust in functions that the file's schema names, no memory mapping.
class Connection {
 public:
  static Result<Connection> Open(const std::string& path, Access access);

  /// Runs statements that return nothing, one or several.
  Status Execute(const std::string& sql);
  Result<Statement> Prepare(std::string_view sql);
  /// The statement of this SQL, compiled at its first use and kept. Used by one caller at a time.
  Result<Statement*> Cached(std::string_view sql);
  /// Runs cached SQL that returns nothing.
  template <typename... Values>
  Status Run(std::string_view sql, const Values&... values) {
    DRAFTMILL_ASSIGN_OR_RETURN(Statement * statement, Cached(sql));
    return statement->Run(values...);
  }
  /// The first column of the first row; kNotFound where there is no row.
  Result<std::int64_t> QueryInteger(std::string_view sql);
  Result<std::string> QueryText(std::string_view sql);

  /// Rows that the last INSERT, UPDATE or DELETE changed.
  std::int64_t changes() const;
  std::int64_t last_insert_row() const;

 private:
  struct Closer {
    void operator()(sqlite3* connection) const;
  };

  std::unique_ptr<sqlite3, Closer> connection_;
  /// Declared after the connection: statements go first.
  std::map<std::string, std::unique_ptr<Statement>, std::less<>> cache_;
};

/// BEGIN IMMEDIATE until Commit; rolled back where Commit was not reached.
class Transaction {
 public:
  static Result<Transaction> Begin(Connection& connection);
  Transaction(Transaction&& other) noexcept;
  Transaction& operator=(Transaction&&) = delete;
  ~Transaction();

  /// On failure everything is rolled back.
  Status Commit();

 private:
  explicit Transaction(Connection& connection) : connection_(&connection) {}
  void Rollback();

  Connection* connection_;
};

}  // namespace draftmill::sqlite

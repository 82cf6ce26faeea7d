// Status and Result<T>: how every function of draftmill that can fail says so.
//
//   Result<Bytes> ReadAll(const std::string& path);
//   DRAFTMILL_ASSIGN_OR_RETURN(Bytes bytes, ReadAll(path));
//   DRAFTMILL_RETURN_IF_ERROR(Check(bytes).WithContext("file=" + path));
//
// No exception crosses a module boundary. An exception of a library (yaml-cpp, std, torch) is caught in the function
// that calls the library and becomes a Status there. Values of these types may be moved between threads freely; one
// value is not safe for concurrent use.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace draftmill {

/// What kind of failure it is. Each code fixes what the run does about it and with which exit status it ends.
enum class StatusCode : std::uint8_t {
  kOk = 0,
  kInvalidInput,   ///< a row, file or argument from outside is wrong: the row is quarantined, or the file refused
  kInvalidConfig,  ///< the pipeline file is wrong: nothing is started (exit 2)
  kNotFound,       ///< a file, key or sample is not there
  kIo,             ///< the operating system refused a read or write
  kCorrupt,        ///< bytes that draftmill wrote itself do not match their checksum or their description
  kConflict,       ///< another run holds the lock, or a fingerprint differs (exit 2)
  kDiskFull,       ///< ENOSPC, EDQUOT: pause, then exit 75
  kOutOfMemory,    ///< a memory limit cannot be kept (exit 1)
  kDevice,         ///< an accelerator failed (exit 75)
  kCancelled,      ///< stopped on request (exit 75)
  kUnsupported,    ///< understood and refused by name: draftmill does not do this
  kInternal,       ///< a bug in draftmill (exit 1)
};

/// The name of a code as it stands in messages and in the database, e.g. "invalid input".
std::string_view StatusCodeName(StatusCode code);

/// Success, or a code with a message for people: what happened, where, what is safe, what to do next.
class [[nodiscard]] Status {
 public:
  /// Success.
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  /// The message without the code's name; empty on success.
  const std::string& message() const { return message_; }
  /// "invalid input: <message>", or "ok".
  std::string ToString() const;
  /// The same failure with `context` and ": " before its message; success stays success.
  Status WithContext(std::string_view context) const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status OkStatus() { return {}; }
Status InvalidInput(std::string message);
Status InvalidConfig(std::string message);
Status NotFound(std::string message);
Status IoError(std::string message);
Status Corrupt(std::string message);
Status Conflict(std::string message);
Status DiskFull(std::string message);
Status OutOfMemory(std::string message);
Status DeviceError(std::string message);
Status Cancelled(std::string message);
Status Unsupported(std::string message);
Status Internal(std::string message);

/// The failure that `error_number` (an errno value) stands for: ENOSPC and EDQUOT are kDiskFull, ENOENT kNotFound,
/// ENOMEM kOutOfMemory, the rest kIo. `what` says what was tried, with the path.
Status ErrnoStatus(int error_number, std::string_view what);

/// A value, or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}                                 // NOLINT(google-explicit-constructor)
  Result(Status status) : value_(tl::unexpected<Status>(std::move(status))) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return value_.has_value(); }
  /// The failure, or success where there is a value.
  Status status() const { return ok() ? Status() : value_.error(); }

  /// The value; only where ok().
  const T& value() const& { return *value_; }
  T& value() & { return *value_; }
  T&& value() && { return std::move(*value_); }
  const T& operator*() const& { return *value_; }
  T& operator*() & { return *value_; }
  T&& operator*() && { return std::move(*value_); }
  const T* operator->() const { return &*value_; }
  T* operator->() { return &*value_; }

  /// The same failure with more context, or the same value.
  Result WithContext(std::string_view context) && {
    if (ok()) return std::move(*this);
    return Result(value_.error().WithContext(context));
  }

 private:
  tl::expected<T, Status> value_;
};

/// Prints `message` with its place and aborts. For DRAFTMILL_CHECK only.
[[noreturn]] void AbortOnBug(const char* file, int line, const char* condition, const std::string& message);

}  // namespace draftmill

#define DRAFTMILL_CONCAT_INNER(a, b) a##b
#define DRAFTMILL_CONCAT(a, b) DRAFTMILL_CONCAT_INNER(a, b)

/// Returns from the calling function where `expression` (a Status) is a failure.
#define DRAFTMILL_RETURN_IF_ERROR(expression)            \
  do {                                                   \
    ::draftmill::Status draftmill_status = (expression); \
    if (!draftmill_status.ok()) return draftmill_status; \
  } while (false)

/// Declares `declaration` with the value of `expression` (a Result), or returns its failure.
#define DRAFTMILL_ASSIGN_OR_RETURN(declaration, expression) \
  DRAFTMILL_ASSIGN_OR_RETURN_INNER(DRAFTMILL_CONCAT(draftmill_result_, __LINE__), declaration, expression)
#define DRAFTMILL_ASSIGN_OR_RETURN_INNER(result, declaration, expression) \
  auto result = (expression);                                             \
  if (!result.ok()) return result.status();                               \
  declaration = std::move(result).value()

/// Aborts where `condition` is false. For bugs in draftmill only: nothing from outside may reach it.
#define DRAFTMILL_CHECK(condition, message)                                                          \
  do {                                                                                               \
    if (!(condition)) ::draftmill::AbortOnBug(__FILE__, __LINE__, #condition, std::string(message)); \
  } while (false)

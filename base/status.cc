#include "base/status.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace draftmill {

std::string_view StatusCodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk: return "ok";
    case StatusCode::kInvalidInput: return "invalid input";
    case StatusCode::kInvalidConfig: return "invalid configuration";
    case StatusCode::kNotFound: return "not found";
    case StatusCode::kIo: return "I/O error";
    case StatusCode::kCorrupt: return "corrupt";
    case StatusCode::kConflict: return "conflict";
    case StatusCode::kDiskFull: return "disk full";
    case StatusCode::kOutOfMemory: return "out of memory";
    case StatusCode::kDevice: return "device error";
    case StatusCode::kCancelled: return "stopped";
    case StatusCode::kUnsupported: return "unsupported";
    case StatusCode::kInternal: return "internal error";
  }
  return "internal error";
}

std::string Status::ToString() const {
  if (ok()) return "ok";
  std::string text(StatusCodeName(code_));
  text += ": ";
  text += message_;
  return text;
}

Status Status::WithContext(std::string_view context) const {
  if (ok()) return *this;
  std::string message(context);
  message += ": ";
  message += message_;
  return {code_, std::move(message)};
}

Status InvalidInput(std::string message) { return {StatusCode::kInvalidInput, std::move(message)}; }
Status InvalidConfig(std::string message) { return {StatusCode::kInvalidConfig, std::move(message)}; }
Status NotFound(std::string message) { return {StatusCode::kNotFound, std::move(message)}; }
Status IoError(std::string message) { return {StatusCode::kIo, std::move(message)}; }
Status Corrupt(std::string message) { return {StatusCode::kCorrupt, std::move(message)}; }
Status Conflict(std::string message) { return {StatusCode::kConflict, std::move(message)}; }
Status DiskFull(std::string message) { return {StatusCode::kDiskFull, std::move(message)}; }
Status OutOfMemory(std::string message) { return {StatusCode::kOutOfMemory, std::move(message)}; }
Status DeviceError(std::string message) { return {StatusCode::kDevice, std::move(message)}; }
Status Cancelled(std::string message) { return {StatusCode::kCancelled, std::move(message)}; }
Status Unsupported(std::string message) { return {StatusCode::kUnsupported, std::move(message)}; }
Status Internal(std::string message) { return {StatusCode::kInternal, std::move(message)}; }

Status ErrnoStatus(int error_number, std::string_view what) {
  std::string message(what);
  message += ": ";
  message += std::strerror(error_number);
  if (error_number == EACCES || error_number == EPERM) {
    message += ". Give the user who runs draftmill the right to it, or name another path";
  }
  switch (error_number) {
    case ENOSPC:
    case EDQUOT: return DiskFull(std::move(message));
    case ENOENT: return NotFound(std::move(message));
    case ENOMEM: return OutOfMemory(std::move(message));
    default: return IoError(std::move(message));
  }
}

void AbortOnBug(const char* file, int line, const char* condition, const std::string& message) {
  std::fprintf(stderr, "draftmill: bug at %s:%d: %s does not hold: %s\n", file, line, condition, message.c_str());
  std::abort();
}

}  // namespace draftmill

// Files that an export writes beside its samples, in a folder that is published as a whole.
//
//   DRAFTMILL_RETURN_IF_ERROR(files.Write("state.json", text));
//   DRAFTMILL_ASSIGN_OR_RETURN(std::unique_ptr<OutputStream> rows, files.Open("rows.jsonl"));
//   DRAFTMILL_RETURN_IF_ERROR(rows->Append(line));
//   DRAFTMILL_RETURN_IF_ERROR(rows->Close());      // synced
//
// Nothing here is atomic on its own: what a killed export left is written again. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "state/file_system.h"

namespace draftmill {

/// A file that is written from its beginning to its end.
class OutputStream {
 public:
  OutputStream(std::unique_ptr<WritableFile> file, std::int64_t* written) : file_(std::move(file)), written_(written) {}

  Status Append(std::string_view bytes);
  Status Close();

 private:
  Status Flush();

  std::unique_ptr<WritableFile> file_;
  std::int64_t* written_;
  std::string buffer_;
  std::int64_t offset_ = 0;
};

class OutputFiles {
 public:
  OutputFiles(FileSystem& file_system, std::string folder) : file_system_(file_system), folder_(std::move(folder)) {}

  /// Makes the folder that the file is to stand in where it is missing.
  Result<std::unique_ptr<OutputStream>> Open(const std::string& path);
  Status Write(const std::string& path, std::string_view content);
  /// Bytes that were appended to all files so far.
  std::int64_t written() const { return written_; }

 private:
  FileSystem& file_system_;
  const std::string folder_;
  std::int64_t written_ = 0;
};

}  // namespace draftmill

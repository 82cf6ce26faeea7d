// The rows that ingest refused: ingested/rejected.jsonl.zst, in the order of the sources, one a line:
// {"reason", "message", "file", "source", "row", "line", "byte_offset", "raw"}, where `raw` is the row itself if it is
// valid UTF-8 and at most 64 KiB long. The file is there even if nothing was refused. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/status.h"
#include "formats/records.h"
#include "state/file_system.h"

namespace draftmill {

/// `work_folder`/ingested/rejected.jsonl.zst
std::string RejectedRowsPath(std::string_view work_folder);

/// Writes the file as rows come, in bounded memory.
class RejectedRowsWriter {
 public:
  static Result<RejectedRowsWriter> Create(FileSystem& file_system, const std::string& work_folder);
  ~RejectedRowsWriter();
  RejectedRowsWriter(RejectedRowsWriter&&) noexcept;
  RejectedRowsWriter& operator=(RejectedRowsWriter&&) noexcept;

  /// `file`: the source as it is named in what is written, so that no byte depends on where it lies. `raw`: the row as it stands there, empty where it was not held.
  Status Add(const Failure& failure, std::string_view file, std::string_view raw);
  /// Publishes the file durably; nothing may be added after it.
  Status Finish();

 private:
  struct State;
  explicit RejectedRowsWriter(std::unique_ptr<State> state);
  Status Pack(std::string_view text, bool is_last);
  std::unique_ptr<State> state_;
};

/// Hands on each line of the file as JSON, in order.
Status ForEachRejectedRow(FileSystem& file_system, const std::string& work_folder,
                          const std::function<Status(const json::Value& row)>& visit);

}  // namespace draftmill

// The first pass of ingest: reads all sources in order, parses their rows on several threads, and hands the good ones
// on in source order, whatever the threads. Refused rows go to the sink and to rejected.jsonl.zst. One thread calls.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/status.h"
#include "stages/ingest/ingest.h"
#include "stages/ingest/ordered_workers.h"
#include "stages/ingest/rejected_rows.h"
#include "stages/ingest/row_batch.h"

namespace draftmill {

class Intake {
 public:
  /// A good row that is taken, in source order; the views are valid during the call.
  using RowVisitor =
      std::function<Status(const RowPlace& place, const Hash128& content_hash, std::string_view conversation)>;

  Intake(const IngestOptions& options, FileSystem& file_system, const std::vector<SourceFile>& files,
         std::vector<SourceSummary>& summaries, RejectedRowsWriter& rejected, IngestSink& sink,
         const std::function<bool()>& should_stop, IngestProgress& progress, RowVisitor visit);

  Status Run();

 private:
  Status ReadFile(std::size_t file);
  bool ReadBatch(RowReader& reader, RowBatch& batch);
  Status Submit(std::unique_ptr<RowBatch> batch);
  Status ConsumeOldest();
  Status Consume(const RowBatch& batch);
  Status ConsumeRow(const RowBatch& batch, const BatchRow& row);
  Status Refuse(const RowBatch& batch, const BatchRow& row);
  bool IsChosen(const SourceSpec& spec, const Hash128& content_hash) const;
  bool IsComplete(std::size_t file) const;

  const IngestOptions& options_;
  FileSystem& file_system_;
  const std::vector<SourceFile>& files_;
  std::vector<SourceSummary>& summaries_;
  RejectedRowsWriter& rejected_;
  IngestSink& sink_;
  const std::function<bool()>& should_stop_;
  IngestProgress& progress_;
  RowVisitor visit_;
  std::vector<std::int64_t> taken_;            ///< per entry of ingest.sources
  std::vector<std::optional<RowForm>> forms_;  ///< per file: the one form of its rows; kAuto where they differ
  std::vector<Failure> failures_;              ///< of the batch that is consumed
  std::int64_t bytes_in_flight_ = 0;
  std::int64_t bytes_before_file_ = 0;
  OrderedWorkers<RowBatch> workers_;  ///< last, so that it stops before what its work uses goes
};

}  // namespace draftmill

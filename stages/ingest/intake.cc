#include "stages/ingest/intake.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace draftmill {
namespace {

constexpr std::size_t kBatchRows = 2048;
constexpr std::size_t kBatchBytes = std::size_t{1} << 19;
/// Raw text under way; a batch that is larger alone passes when nothing else is.
constexpr std::int64_t kBytesInFlight = std::int64_t{24} << 20;

/// What was read must be what the run was begun with: a file that somebody writes to gives rows of no one content.
Status CheckContent(const SourceFile& file, const Hash128& content) {
  if (!file.content || *file.content == content) return OkStatus();
  return Conflict(
      file.path + " changed while it was read: its content is no longer what this run was begun with (" +
      ToHex(*file.content) + " -> " + ToHex(content) +
      "). Nothing was made of it, and what was there before stands. When nothing writes to it any more, run "
      "again with --accept-changes");
}

}  // namespace

Intake::Intake(const IngestOptions& options, FileSystem& file_system, const std::vector<SourceFile>& files,
               std::vector<SourceSummary>& summaries, RejectedRowsWriter& rejected, IngestSink& sink,
               const std::function<bool()>& should_stop, IngestProgress& progress, RowVisitor visit)
    : options_(options),
      file_system_(file_system),
      files_(files),
      summaries_(summaries),
      rejected_(rejected),
      sink_(sink),
      should_stop_(should_stop),
      progress_(progress),
      visit_(std::move(visit)),
      taken_(options.sources.size()),
      forms_(files.size()),
      workers_(options.threads, [normalize = options.normalize, max_row_bytes = options.max_row_bytes](
                                    RowBatch& batch) { ParseBatch(batch, normalize, max_row_bytes); }) {
  for (const SourceFile& file : files) progress_.bytes_total += file.info.size_bytes;
}

Status Intake::Run() {
  for (std::size_t file = 0; file < files_.size(); ++file) DRAFTMILL_RETURN_IF_ERROR(ReadFile(file));
  while (workers_.in_flight() > 0) DRAFTMILL_RETURN_IF_ERROR(ConsumeOldest());
  for (std::size_t file = 0; file < files_.size(); ++file) {
    if (forms_[file]) summaries_[file].format = *forms_[file] == RowForm::kAuto ? "mixed" : RowFormName(*forms_[file]);
  }
  return OkStatus();
}

/// Whether the entry of the file has all the rows that it asks for. Known late where workers are behind: what was read
/// beyond is passed over when it comes.
bool Intake::IsComplete(std::size_t file) const {
  const std::size_t spec = files_[file].spec;
  const std::optional<std::int64_t>& wanted = options_.sources[spec].take_rows;
  return wanted && taken_[spec] >= *wanted;
}

Status Intake::ReadFile(std::size_t file) {
  DRAFTMILL_ASSIGN_OR_RETURN(std::unique_ptr<ByteStream> stream, ByteStream::Open(file_system_, files_[file].path));
  RowReader reader(std::move(stream), files_[file].layout, options_.max_row_bytes);
  bool has_more = true;
  while (has_more) {
    if (should_stop_()) return Cancelled("ingest was stopped; run again to start it anew");
    auto batch = std::make_unique<RowBatch>();
    batch->file = file;
    batch->form = options_.sources[files_[file].spec].form;
    has_more = !IsComplete(file) && ReadBatch(reader, *batch);
    if (!has_more) {
      batch->ends_file = true;
      DRAFTMILL_ASSIGN_OR_RETURN(batch->file_hash, reader.HashWholeFile());
    }
    batch->packed_bytes = reader.packed_bytes();
    DRAFTMILL_RETURN_IF_ERROR(Submit(std::move(batch)));
  }
  return OkStatus();
}

/// Fills the batch; false where the file has ended or cannot be read on.
bool Intake::ReadBatch(RowReader& reader, RowBatch& batch) {
  RawRow raw;
  while (batch.rows.size() < kBatchRows && batch.raw_text.size() < kBatchBytes) {
    const Result<bool> more = reader.Next(raw);
    if (!more.ok()) batch.read_status = more.status();
    if (!more.ok() || !*more) return false;
    BatchRow row;
    row.place = {static_cast<std::int32_t>(batch.file), raw.row, raw.line, raw.byte_offset};
    row.size_bytes = raw.size_bytes;
    row.is_too_long = raw.is_too_long;
    row.fault = raw.fault;
    row.raw = {batch.raw_text.size(), raw.text.size()};
    batch.raw_text += raw.text;
    batch.rows.push_back(std::move(row));
  }
  return true;
}

Status Intake::Submit(std::unique_ptr<RowBatch> batch) {
  const auto bytes = static_cast<std::int64_t>(batch->raw_text.size());
  const auto most = static_cast<std::size_t>(2 * std::max(options_.threads, 1));
  while (workers_.in_flight() > 0 && (workers_.in_flight() >= most || bytes_in_flight_ + bytes > kBytesInFlight)) {
    DRAFTMILL_RETURN_IF_ERROR(ConsumeOldest());
  }
  bytes_in_flight_ += bytes;
  workers_.Submit(std::move(batch));
  return OkStatus();
}

Status Intake::ConsumeOldest() {
  const std::unique_ptr<RowBatch> batch = workers_.TakeOldest();
  bytes_in_flight_ -= static_cast<std::int64_t>(batch->raw_text.size());
  return Consume(*batch);
}

Status Intake::Consume(const RowBatch& batch) {
  DRAFTMILL_RETURN_IF_ERROR(sink_.BeforeWriting());
  for (const BatchRow& row : batch.rows) {
    if (IsComplete(batch.file)) break;
    DRAFTMILL_RETURN_IF_ERROR(ConsumeRow(batch, row));
  }
  if (!failures_.empty()) DRAFTMILL_RETURN_IF_ERROR(sink_.AddFailures(std::exchange(failures_, {})));
  if (!IsComplete(batch.file)) DRAFTMILL_RETURN_IF_ERROR(batch.read_status);
  progress_.bytes_read = bytes_before_file_ + batch.packed_bytes;
  if (batch.ends_file) {
    DRAFTMILL_RETURN_IF_ERROR(CheckContent(files_[batch.file], batch.file_hash));
    summaries_[batch.file].content_hash = batch.file_hash;
    bytes_before_file_ += batch.packed_bytes;
    if (summaries_[batch.file].rows == 0 && !IsComplete(batch.file)) {
      return InvalidInput(files_[batch.file].path +
                          ": the file holds no rows. Take it out of ingest.sources, or write it again");
    }
  }
  sink_.ReportProgress(progress_);
  return OkStatus();
}

Status Intake::ConsumeRow(const RowBatch& batch, const BatchRow& row) {
  SourceSummary& summary = summaries_[batch.file];
  ++summary.rows;
  ++progress_.rows_read;
  if (!row.reason.empty()) return Refuse(batch, row);
  std::optional<RowForm>& form = forms_[batch.file];
  form = form && *form != row.form ? RowForm::kAuto : row.form;
  const SourceSpec& spec = options_.sources[files_[batch.file].spec];
  if (!IsChosen(spec, row.content_hash)) {
    ++summary.not_taken;
    return OkStatus();
  }
  ++taken_[files_[batch.file].spec];
  return visit_(row.place, row.content_hash, batch.Conversation(row));
}

Status Intake::Refuse(const RowBatch& batch, const BatchRow& row) {
  ++summaries_[batch.file].rejected;
  ++progress_.rows_rejected;
  Failure failure;
  failure.stage = "ingest";
  failure.reason = row.reason;
  failure.message = row.message;
  failure.place = row.place;
  DRAFTMILL_RETURN_IF_ERROR(rejected_.Add(failure, summaries_[batch.file].path, batch.RawText(row)));
  failures_.push_back(std::move(failure));
  return OkStatus();
}

/// A fraction is taken by content, so that it does not depend on where a row stands. The hash is not the one that
/// shuffles: else the rows taken would all come early.
bool Intake::IsChosen(const SourceSpec& spec, const Hash128& content_hash) const {
  if (!spec.take_fraction) return true;
  std::string content = "take:";
  content.append(reinterpret_cast<const char*>(content_hash.bytes.data()), content_hash.bytes.size());
  const std::uint64_t hash = HashBytes64(content, options_.shuffle_seed.value_or(0));
  return std::ldexp(static_cast<double>(hash >> 11), -53) < *spec.take_fraction;
}

}  // namespace draftmill

#include "stages/ingest/chunk_output.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace draftmill {
namespace {

/// Text of chunks under way; a larger chunk passes when no other is.
constexpr std::int64_t kBytesInFlight = std::int64_t{32} << 20;

}  // namespace

ChunkOutput::ChunkOutput(const IngestOptions& options, FileSystem& file_system, std::string work_folder,
                         IngestSink& sink, const std::function<bool()>& should_stop,
                         std::vector<IngestedChunkFacts>& chunks, IngestProgress& progress)
    : options_(options),
      sink_(sink),
      should_stop_(should_stop),
      chunks_(chunks),
      progress_(progress),
      workers_(options.threads, [&file_system, folder = std::move(work_folder)](Job& job) {
        job.facts = job.text.WriteFile(file_system, folder);
      }) {}

Status ChunkOutput::Add(std::int32_t epoch, const RowPlace& place, const Hash128& content_hash,
                        std::string_view conversation) {
  const bool is_full =
      job_ != nullptr && (job_->text.epoch() != epoch || job_->text.rows() >= options_.chunk_rows ||
                          job_->text.bytes() + static_cast<std::int64_t>(conversation.size()) > options_.chunk_bytes);
  if (is_full) DRAFTMILL_RETURN_IF_ERROR(SubmitChunk());
  if (job_ == nullptr) {
    if (next_chunk_ == std::numeric_limits<std::int32_t>::max()) return Unsupported("more than 2^31 chunks");
    job_ = std::make_unique<Job>(Job{IngestedChunkText(next_chunk_++, next_sample_, epoch), {}});
  }
  job_->text.Add(content_hash, place, conversation);
  job_->conversations.push_back({next_sample_++, job_->text.chunk(), place, content_hash});
  return OkStatus();
}

Status ChunkOutput::Finish() {
  if (job_ != nullptr) DRAFTMILL_RETURN_IF_ERROR(SubmitChunk());
  while (workers_.in_flight() > 0) DRAFTMILL_RETURN_IF_ERROR(TakeOldest());
  return OkStatus();
}

Status ChunkOutput::SubmitChunk() {
  if (should_stop_()) return Cancelled("ingest was stopped; run again to start it anew");
  DRAFTMILL_RETURN_IF_ERROR(sink_.BeforeWriting());
  const std::int64_t bytes = job_->text.bytes();
  const auto most = static_cast<std::size_t>(2 * std::max(options_.threads, 1));
  while (workers_.in_flight() > 0 && (workers_.in_flight() >= most || bytes_in_flight_ + bytes > kBytesInFlight)) {
    DRAFTMILL_RETURN_IF_ERROR(TakeOldest());
  }
  bytes_in_flight_ += bytes;
  workers_.Submit(std::move(job_));
  return OkStatus();
}

Status ChunkOutput::TakeOldest() {
  std::unique_ptr<Job> job = workers_.TakeOldest();
  bytes_in_flight_ -= job->text.bytes();
  DRAFTMILL_ASSIGN_OR_RETURN(const IngestedChunkFacts facts, std::move(job->facts));
  chunks_.push_back(facts);
  progress_.rows_written += facts.rows;
  DRAFTMILL_RETURN_IF_ERROR(sink_.AddChunk(facts, std::move(job->conversations)));
  sink_.ReportProgress(progress_);
  return OkStatus();
}

}  // namespace draftmill

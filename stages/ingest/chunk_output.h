// The second pass of ingest: cuts rows that come in their global order into chunks, packs and writes them on several
// threads, and reports them in order. One thread calls.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "stages/ingest/ingest.h"
#include "stages/ingest/ordered_workers.h"

namespace draftmill {

class ChunkOutput {
 public:
  ChunkOutput(const IngestOptions& options, FileSystem& file_system, std::string work_folder, IngestSink& sink,
              const std::function<bool()>& should_stop, std::vector<IngestedChunkFacts>& chunks,
              IngestProgress& progress);

  /// The next row in global order; its epoch is that of the row before, or a later one.
  Status Add(std::int32_t epoch, const RowPlace& place, const Hash128& content_hash, std::string_view conversation);
  /// Writes what is left; nothing may be added after it.
  Status Finish();

 private:
  struct Job {
    IngestedChunkText text;
    std::vector<ConversationPlace> conversations;
    Result<IngestedChunkFacts> facts = Internal("not written");
  };

  Status SubmitChunk();
  Status TakeOldest();

  const IngestOptions& options_;
  IngestSink& sink_;
  const std::function<bool()>& should_stop_;
  std::vector<IngestedChunkFacts>& chunks_;
  IngestProgress& progress_;
  std::unique_ptr<Job> job_;  ///< the chunk that is filled
  std::int32_t next_chunk_ = 0;
  std::int64_t next_sample_ = 0;
  std::int64_t bytes_in_flight_ = 0;
  OrderedWorkers<Job> workers_;  ///< last, so that it stops before what its work uses goes
};

}  // namespace draftmill

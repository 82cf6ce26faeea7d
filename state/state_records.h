// What goes into state.db and comes out of it, as plain values: one struct for each kind of row.
//
// Stages know none of these: the pipeline translates. Members carry the names and units of the columns (docs/state.md).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "state/fingerprint.h"

namespace draftmill {

/// One start of the pipeline on a work folder.
struct RunRecord {
  std::int64_t run = 0;  ///< given by the database
  std::string name{};    ///< "tidy-heron"; made up where BeginRun finds it empty
  std::string program_version{};
  std::string parameters{};  ///< resolved, JSON
  std::string host{};
  std::string boot_id{};
  std::int64_t pid = 0;
  std::int64_t started_ms = 0;  ///< the writer's clock where 0
  std::optional<std::int64_t> finished_ms{};
  std::optional<std::int64_t> exit_status{};
  std::string summary{};  ///< JSON, or empty
};

enum class StageState : std::uint8_t {
  kPending,  ///< nothing was done
  kRunning,  ///< begun, not complete; also after a kill
  kDone,     ///< complete under the stored fingerprint
  kStale,    ///< was done, must be redone
};
std::string_view StageStateName(StageState state);

struct StageRecord {
  std::string stage{};
  StageState state = StageState::kPending;
  std::int64_t version = 1;
  Fingerprint fingerprint{};  ///< empty where none is stored
};

/// A source file of ingest. rows = kept + duplicates + rejected + not_taken.
struct SourceRecord {
  std::int64_t source = 0;
  std::int64_t epoch = 0;
  std::string path{};  ///< as configured, relative to the pipeline file
  std::string format{};
  std::int64_t bytes = 0;
  std::string content_hash{};
  std::int64_t modified_ns = 0;
  std::uint64_t inode = 0;
  std::int64_t rows = 0;
  std::int64_t kept = 0;
  std::int64_t duplicates = 0;
  std::int64_t rejected = 0;
  std::int64_t not_taken = 0;
};

struct ConversationRecord {
  std::int64_t sample_id = 0;
  std::int64_t chunk = 0;
  std::int64_t source = 0;
  std::int64_t row = 0;
  std::int64_t line = 0;
  std::int64_t byte_offset = 0;
  Hash128 content_hash{};
};

/// A chunk as ingest cut it.
struct IngestedChunkRecord {
  std::int64_t chunk = 0;
  std::int64_t epoch = 0;
  std::int64_t first_sample = 0;
  std::int64_t rows = 0;
  std::int64_t bytes = 0;
  std::string digest{};
};

/// A row or sample in quarantine.
struct FailureRecord {
  std::int64_t failure = 0;  ///< given by the database; the key for paging
  std::string stage{};
  std::string reason{};
  std::string message{};
  std::int64_t source = 0;
  std::int64_t row = 0;
  std::int64_t line = 0;
  std::int64_t byte_offset = 0;
  std::int64_t sample_id = -1;  ///< -1 where the row never got a number
  std::int64_t variant = 0;
  std::int64_t chunk = -1;  ///< -1 where it belongs to none
};

/// A chunk after tokenization, its corpus file being durable.
struct TokenizedChunkRecord {
  std::int64_t chunk = 0;
  std::int64_t samples = 0;
  std::int64_t tokens = 0;
  std::int64_t supervised_tokens = 0;
  std::int64_t failed = 0;  ///< rows that gave no sample
  std::string corpus_digest{};
  std::int64_t corpus_bytes = 0;
  std::string report = "{}";  ///< what the stage counted: a JSON object of integers
  std::vector<FailureRecord> failures{};
};

/// A counter of the tokenize stage, summed over all tokenized chunks.
struct ReportCounter {
  std::string counter{};
  std::int64_t count = 0;
};

struct SampleRecord {
  std::int64_t sample_id = 0;
  std::int64_t variant = 0;
  std::int64_t batch = 0;
  std::int64_t position = 0;  ///< in the chunk's packed order
  std::int64_t tokens = 0;
  std::int64_t supervised_tokens = 0;
  std::int64_t turn = 0;
  std::int64_t source = 0;
};

/// A batch as planned, and what became of it.
struct BatchRecord {
  std::int64_t batch = 0;
  std::int64_t block = 0;
  std::int64_t shard = 0;
  std::int64_t samples = 0;
  std::int64_t tokens = 0;
  std::int64_t bytes = 0;  ///< of its hidden states
  bool written = false;
  std::string digest{};  ///< of those bytes, once written
  std::int64_t quarantined = 0;
  double seconds = 0;
};

enum class ShardState : std::uint8_t {
  kPlanned,    ///< not published; a .partial may exist
  kPublished,  ///< the file is complete and durable
  kDiscarded,  ///< it was published, and its file deleted on purpose: nothing is to be done, and nothing is there
  kDamaged,    ///< published once, some of its batches must be written again
  kStale,      ///< published under another fingerprint; stays until it is replaced
};
std::string_view ShardStateName(ShardState state);
/// Whether all was done for a shard, its file being there or deleted on purpose.
bool CountsAsPublished(ShardState state);

/// A shard as planned, and what became of it.
struct ShardRecord {
  std::int64_t shard = 0;
  std::int64_t first_batch = 0;
  std::int64_t batches = 0;
  std::int64_t samples = 0;
  std::int64_t tokens = 0;
  ShardState state = ShardState::kPlanned;
  std::string file{};  ///< relative to the work folder; this and the rest once published, also where it is discarded
  std::int64_t bytes = 0;
  std::string digest{};
  std::int64_t quarantined = 0;
  std::string fingerprint{};  ///< of extract
  std::string numerics{};     ///< environment it was computed in
  std::optional<std::int64_t> published_ms{};
};

/// The plan of a chunk with all rows that follow from it.
struct ChunkPlanRecord {
  std::int64_t chunk = 0;
  std::string plan_hash{};
  std::vector<std::uint8_t> plan{};     ///< in whatever form the pipeline reads back
  std::vector<BatchRecord> batches{};   ///< numbered 0, 1, ...
  std::vector<ShardRecord> shards{};    ///< numbered 0, 1, ...
  std::vector<SampleRecord> samples{};  ///< ascending (sample_id, variant) is quickest
};

/// A batch whose bytes are durable in its shard's .partial.
struct WrittenBatchRecord {
  std::int64_t chunk = 0;
  std::int64_t batch = 0;
  std::string digest{};
  double seconds = 0;
  std::int64_t quarantined = 0;
  std::vector<FailureRecord> failures{};
};

/// A shard whose file is durable under its final name.
struct PublishedShardRecord {
  std::int64_t chunk = 0;
  std::int64_t shard = 0;
  std::string file{};
  std::int64_t bytes = 0;
  std::string digest{};
  std::int64_t quarantined = 0;
  std::string fingerprint{};
  std::string numerics{};
  bool is_discarded = false;  ///< its file is deleted next
};

enum class EventLevel : std::uint8_t { kInfo, kWarning, kError };
std::string_view EventLevelName(EventLevel level);

struct EventRecord {
  std::int64_t event = 0;  ///< given by the database; the key for paging
  std::int64_t run = 0;
  std::int64_t at_ms = 0;
  EventLevel level = EventLevel::kInfo;
  std::string text{};
};

/// What a stage did in the span that ended at at_ms. Samples are rows for ingest and tokenize.
struct ThroughputRecord {
  std::int64_t run = 0;
  std::string stage{};
  std::int64_t at_ms = 0;
  std::int64_t span_ms = 0;
  std::int64_t samples = 0;
  std::int64_t tokens = 0;
  std::int64_t bytes = 0;
};

/// Everything that stands about a chunk itself.
struct ChunkRecord {
  std::int64_t chunk = 0;
  std::int64_t epoch = 0;
  std::int64_t first_sample = 0;
  std::int64_t rows = 0;
  std::int64_t bytes = 0;
  std::string ingested_digest{};
  bool ingested = false;
  bool tokenized = false;
  std::int64_t samples = 0;
  std::int64_t tokens = 0;
  std::int64_t supervised_tokens = 0;
  std::int64_t tokenize_failed = 0;
  std::string corpus_digest{};
  std::int64_t corpus_bytes = 0;
  std::string plan_hash{};  ///< empty until planned
  std::int64_t batches = 0;
  std::int64_t shards = 0;
  std::int64_t extracted_batches = 0;
  std::int64_t extracted_samples = 0;
  std::int64_t extracted_tokens = 0;
  std::int64_t extracted_bytes = 0;
  std::int64_t quarantined = 0;
  std::int64_t published_shards = 0;
  std::int64_t published_samples = 0;
  std::int64_t published_tokens = 0;
  std::int64_t published_bytes = 0;
};

/// One row of the view `progress`.
struct ProgressRecord {
  std::string stage{};
  std::string state{};
  std::string unit{};
  std::int64_t total = 0;
  std::int64_t done = 0;
  std::int64_t failed = 0;
  double percent = 0;
  std::optional<double> samples_per_second{};
  std::optional<double> tokens_per_second{};
  std::int64_t bytes = 0;
  std::optional<std::int64_t> eta_seconds{};
};

/// One row of the view `sample_stage`: where a sample stands.
struct SamplePlace {
  std::int64_t sample_id = 0;
  std::int64_t variant = 0;
  std::string stage{};  ///< ingested, tokenized, planned, extracted, written, discarded, failed, quarantined
  std::int64_t chunk = 0;
  std::optional<std::int64_t> batch{};
  std::optional<std::int64_t> block{};
  std::optional<std::int64_t> shard{};
  std::optional<std::int64_t> position{};
  std::optional<std::int64_t> tokens{};
  std::optional<std::int64_t> supervised_tokens{};
  std::optional<std::int64_t> turn{};
  std::string file{};  ///< of the published shard, or empty
  std::string failed_in{};
  std::string reason{};
  std::int64_t source = 0;
  std::int64_t row = 0;
  std::int64_t line = 0;
  std::int64_t byte_offset = 0;
};

/// One row of the view `failures_by_reason`.
struct FailureCount {
  std::string stage{};
  std::string reason{};
  std::int64_t failures = 0;
  std::string example{};
};

/// One row of the view `shards_by_state`.
struct ShardStateCount {
  ShardState state = ShardState::kPlanned;
  std::int64_t shards = 0;
  std::int64_t samples = 0;
  std::int64_t tokens = 0;
  std::int64_t bytes = 0;
};

}  // namespace draftmill

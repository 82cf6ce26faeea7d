// Everything that a run reads from outside before it starts anything: the configuration as typed options, the model's
// description, tokenizer and template, the source files with their hashes. Nothing is written; no weight is read.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "pipeline/config/config.h"
#include "stages/extract/extractor.h"
#include "stages/extract/plan.h"
#include "stages/ingest/ingest.h"
#include "stages/tokenize/tokenize_stage.h"
#include "stages/vocab_map/vocab_import.h"
#include "state/file_system.h"
#include "state/fingerprint.h"
#include "state/state_records.h"

namespace draftmill {

/// How `limits.memory` is shared out.
struct MemoryShares {
  std::int64_t ingest_bytes = 0;        ///< sorting in ingest, which runs alone
  std::int64_t chunk_credit_bytes = 0;  ///< rows and tokens in flight
  std::int64_t states_queue_bytes = 0;  ///< captured states between engine and writer
  std::int64_t engine_bytes = 0;        ///< weights, activations and captured states in the engine
};

/// What was resolved at the first start and stored: `auto` means this value ever after.
struct StoredSizes {
  std::optional<std::int64_t> batch_tokens;
  std::optional<std::int64_t> block_tokens;
};

/// What the work folder knows of the run from before (pipeline/run/stored_facts.h reads it); empty at a first start.
struct KnownRun {
  std::vector<SourceRecord> sources;
  StoredSizes sizes;
  Fingerprint ingest;        ///< as it was accepted last
  bool is_ingested = false;  ///< ingest was complete, so files that are added begin an epoch
};

struct RunInputs {
  IngestOptions ingest;
  ExtractOptions extract;
  PlanParameters plan;                        ///< resolved; bytes_per_token 0 where the model has no weights here
  std::int64_t vocab_size = 0;                ///< `vocab_map.size`
  std::vector<std::string> forced_tokens;     ///< `vocab_map.forced_tokens`
  std::optional<ImportedVocab> vocab_import;  ///< `vocab_map.import`
  MemoryShares memory;
  int threads = 1;
  std::int64_t min_free_disk_bytes = 0;
  std::int64_t disk_wait_ms = 0;
  double max_bad_fraction = 0;
  bool discards_shards = false;  ///< `write.discard_after_publish`

  ModelDescription model;
  std::unique_ptr<const TokenizeStage> tokenize;
  /// In the order of ingest with their epochs (pipeline/run/source_epochs.h); empty where `missing_sources` says why.
  std::vector<SourceFile> source_files;
  std::vector<std::string>
      source_names;                    ///< as source_files: paths relative to the pipeline file, for files and messages
  std::vector<Hash128> source_hashes;  ///< as source_names
  std::vector<std::int64_t> epoch_sizes;  ///< how many of them each epoch has
  /// What is missing of the sources, where they were ingested before and are not all there any more. Only ingest needs
  /// them: everything after it reads ingested/. Names and hashes are then those that the database knows.
  std::string missing_sources;
};

/// Called once the device is settled, before anything is planned from its free memory.
using TakeDevices = std::function<Status(ExtractOptions&)>;

/// Reads and checks all of it. A source file that is known with the same size, time and inode is not hashed again. Errors
/// name the file and the parameter; nothing was started.
///
/// Sources that are not there are no error where the database knows them: see `missing_sources`.
Result<RunInputs> LoadRunInputs(const Config& config, FileSystem& files, const KnownRun& known,
                                const TakeDevices& take_devices = {});

/// The part of `write` for `write.discard_after_publish`: there only where it is on, so that runs which were begun before
/// there was such a switch go on.
inline constexpr std::string_view kDiscardPart = "write.discard_after_publish";

/// The fingerprint of each stage under these inputs, by the stage's name. Each has the code version, the declared
/// parameters that change bytes, and the hashes of what it reads from outside. What a stage reads from the stage before is
/// compared chunk by chunk, by content: a changed source redoes only the chunks that come out otherwise.
std::map<std::string, Fingerprint> MakeFingerprints(const Config& config, const RunInputs& inputs);

/// A path of the configuration as it stands relative to the folder of the pipeline file, whatever the current folder is.
std::string PortablePath(const Config& config, const std::string& path);

/// What shards carry as their fingerprint: hidden states depend on the model and on what extract declares.
std::string StatesFingerprint(const std::map<std::string, Fingerprint>& fingerprints);

/// LoadRunInputs and MakeFingerprints with what the work folder knows.
Result<std::map<std::string, Fingerprint>> CurrentFingerprints(const Config& config);

}  // namespace draftmill

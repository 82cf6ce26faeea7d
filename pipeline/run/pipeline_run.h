// The class behind RunPipeline (run.h), shared by the files that hold its functions: run.cc (the frame and the report),
// run_start.cc (all that is checked and settled before anything is started) and run_work.cc (the stages' work).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/shard.h"
#include "pipeline/config/config.h"
#include "pipeline/flow/chunk_flow.h"
#include "pipeline/flow/disk_guard.h"
#include "pipeline/progress/progress.h"
#include "pipeline/progress/stop_signal.h"
#include "pipeline/run/run.h"
#include "pipeline/run/run_inputs.h"
#include "pipeline/run/run_monitor.h"
#include "pipeline/run/stage_changes.h"
#include "pipeline/run/vocab_step.h"
#include "stages/extract/extractor.h"
#include "state/run_lock.h"
#include "state/state_records.h"
#include "state/store.h"

namespace draftmill {

/// One run from the first check to the report. Members are filled in the order of the functions.
class PipelineRun {
 public:
  PipelineRun(const Config& config, const RunRequest& request, ProgressSink& progress,
              const RunEnvironment& environment)
      : config_(config),
        request_(request),
        progress_(progress),
        files_(*environment.files),
        clock_(*environment.clock),
        make_extractor_(environment.make_extractor),
        work_(config.work_folder()) {
    engine_is_built_in_ = !make_extractor_ && ExtractorIsBuilt();
    if (engine_is_built_in_) make_extractor_ = &Extractor::Create;
  }

  RunReport Execute();

 private:
  Status Prepare();
  Status CheckRequest() const;
  Status TakeWorkFolder();
  Status ReadKnown();
  Status CheckThatStateAgrees();
  Status SettleChanges();
  Status CheckThatSourcesAreThere(const std::vector<StageChange>& changes) const;
  Status CheckDisk();
  Status Begin();
  Status Work();
  Status KeepFinalNorm();
  /// Before what is no hidden state is written.
  Status WaitForSpace();
  Status IngestWhereNeeded();
  Status PassChunks();
  std::vector<ChunkRecord> WantedChunks() const;
  bool StatesAreWanted(const std::vector<ChunkRecord>& wanted) const;
  bool StatesMayBeWanted() const;
  Status PrepareEngine(ExtractOptions& options);
  Status OpenExtractor();
  Status CheckNumerics();
  Status CheckWeights();
  Status MakeVocab();
  Status CheckThatSamplesExist();
  Status FinishStages();
  Result<bool> ManifestStands();
  Status PublishManifest();
  RunReport ReportOf(const Status& status);
  RunReport Report(const Status& status, bool was_started);
  Status ShowProgress();

  Result<std::vector<ChunkRecord>> ReadChunks();
  bool IsComplete(const ChunkRecord& chunk) const;
  /// Whether all states are asked to be computed again: they lie only in shards, so writing again means that too.
  bool RerunsStates() const { return request_.rerun_stage == "extract" || request_.rerun_stage == "write"; }
  bool Reaches(std::string_view stage) const;
  std::function<bool()> ShouldStop() const {
    return [] { return StopSignal::Requested(); };
  }

  const Config& config_;
  const RunRequest& request_;
  ProgressSink& progress_;
  FileSystem& files_;
  Clock& clock_;
  std::function<Result<std::unique_ptr<Extractor>>(const ExtractOptions&)> make_extractor_;
  bool engine_is_built_in_ = false;
  const std::string work_;
  const std::int64_t start_ns_ = clock_.MonotonicNs();

  std::optional<RunLock> lock_;
  KnownRun known_;
  RunInputs inputs_;
  std::map<std::string, Fingerprint> fingerprints_;
  std::unique_ptr<StateWriter> state_;
  std::unique_ptr<RunMonitor> monitor_;
  std::unique_ptr<DiskGuard> disk_;
  std::vector<StageRecord> stages_;
  std::vector<SourceRecord> sources_;
  std::vector<ChunkRecord> chunks_;
  std::int64_t discarded_tokens_ = 0;  ///< of shards that were discarded before this start
  bool vocab_wanted_ = false;
  bool did_work_ = false;
  std::unique_ptr<Extractor> extractor_;
  ShardConvention convention_;
  std::optional<VocabCounter> vocab_counter_;
  ChunkFlowPeaks peaks_;
};

}  // namespace draftmill

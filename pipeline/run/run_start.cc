// Before anything is started: what can be checked is checked, what has changed is settled, the run begins.
#include <fmt/format.h>

#include <utility>

#include "base/start_threads.h"
#include "formats/manifest.h"
#include "pipeline/progress/format_units.h"
#include "pipeline/run/forecast.h"
#include "pipeline/run/new_work_folder.h"
#include "pipeline/run/pipeline_run.h"
#include "pipeline/run/run_files.h"
#include "pipeline/run/run_report.h"
#include "pipeline/run/stored_facts.h"
#include "stages/stage_spec.h"
#include "state/consistency.h"
#include "state/schema.h"
#include "state/state_place.h"
#include "state/state_reader.h"

namespace draftmill {
namespace {

/// Of the state database, the extraction, the writer, and one for what else there is at a time.
constexpr int kThreadsBesideTheGraph = 4;

}  // namespace

Status PipelineRun::Prepare() {
  DRAFTMILL_RETURN_IF_ERROR(CheckRequest());
  DRAFTMILL_RETURN_IF_ERROR(CheckThatWorkFolderMayBeUsed(files_, config_));
  if (files_.Exists(work_)) DRAFTMILL_RETURN_IF_ERROR(TakeWorkFolder());
  DRAFTMILL_RETURN_IF_ERROR(ReadKnown());
  TakeDevices take_devices;
  if (StatesMayBeWanted()) take_devices = [this](ExtractOptions& options) { return PrepareEngine(options); };
  DRAFTMILL_ASSIGN_OR_RETURN(inputs_, LoadRunInputs(config_, files_, known_, take_devices));
  fingerprints_ = MakeFingerprints(config_, inputs_);
  if (StopSignal::Requested()) return Cancelled("stopped on request before anything was started");
  if (inputs_.vocab_import) {
    DRAFTMILL_RETURN_IF_ERROR(CheckBinding(*inputs_.vocab_import, fingerprints_.at("tokenize").hash(), ""));
  }
  // TBB starts its threads itself and cannot say that it was given none.
  DRAFTMILL_RETURN_IF_ERROR(CheckThatThreadsStart(inputs_.threads + kThreadsBesideTheGraph));
  DRAFTMILL_RETURN_IF_ERROR(files_.MakeFolder(work_));
  if (!lock_) DRAFTMILL_RETURN_IF_ERROR(TakeWorkFolder());
  DRAFTMILL_RETURN_IF_ERROR(PlaceState(files_, work_, request_.state_folder));
  disk_ = std::make_unique<DiskGuard>(files_, clock_, FoldersWrittenTo(files_, work_), inputs_.min_free_disk_bytes,
                                      inputs_.disk_wait_ms);
  DRAFTMILL_RETURN_IF_ERROR(CheckDisk());
  DRAFTMILL_ASSIGN_OR_RETURN(state_, StateWriter::Open(work_, {.create = true, .files = &files_, .clock = &clock_}));
  monitor_ = std::make_unique<RunMonitor>(progress_, *state_, clock_);
  std::vector<std::string> names;
  for (const StageSpec* spec : AllStages()) names.push_back(spec->name);
  DRAFTMILL_RETURN_IF_ERROR(state_->Wait(state_->DeclareStages(names)));
  DRAFTMILL_RETURN_IF_ERROR(CheckThatStateAgrees());
  DRAFTMILL_RETURN_IF_ERROR(CheckThatFilesStand(files_, work_));
  DRAFTMILL_RETURN_IF_ERROR(SettleChanges());
  return Begin();
}

/// As far as the database tells: a finished run claims no GPU.
bool PipelineRun::StatesMayBeWanted() const {
  if (!Reaches("extract")) return false;
  return chunks_.empty() || RerunsStates() || StatesAreWanted(chunks_);
}

Status PipelineRun::PrepareEngine(ExtractOptions& options) {
  options.say = [this](const std::string& text) { progress_.Line(text); };
  options.should_stop = ShouldStop();
  if (engine_is_built_in_) DRAFTMILL_RETURN_IF_ERROR(LoadEngineLibraries(options));
  return ClaimDevices(options);
}

Status PipelineRun::CheckRequest() const {
  if (Reaches("extract") && !make_extractor_) {
    return Unsupported(
        "this draftmill was built without torch, so it cannot run `extract`. Nothing was started. `draftmill run "
        "TARGET "
        "--until vocab_map` makes corpus/ and vocab/; for the states use a build with torch (cmake --preset release)");
  }
  return OkStatus();
}

Status PipelineRun::TakeWorkFolder() {
  Result<RunLock> lock = RunLock::Acquire(work_, clock_);
  if (!lock.ok()) return lock.status();
  lock_.emplace(std::move(lock).value());
  return OkStatus();
}

Status PipelineRun::ReadKnown() {
  DRAFTMILL_ASSIGN_OR_RETURN(known_, ReadKnownRun(files_, work_));
  Result<StateReader> state = StateReader::Open(work_, files_);
  if (!state.ok()) return state.status().code() == StatusCode::kNotFound ? OkStatus() : state.status();
  DRAFTMILL_ASSIGN_OR_RETURN(chunks_, state->Chunks());
  DRAFTMILL_ASSIGN_OR_RETURN(const ShardStateCount discarded, state->DiscardedShards());
  discarded_tokens_ = discarded.tokens;
  return OkStatus();
}

Status PipelineRun::CheckDisk() {
  DRAFTMILL_RETURN_IF_ERROR(
      disk_->WaitForSpace(0, ShouldStop(), [this](const std::string& text) { progress_.Line(text); }));
  Forecast forecast = ForecastFromChunks(chunks_, inputs_, discarded_tokens_);
  if (forecast.tokens == 0) {
    DRAFTMILL_ASSIGN_OR_RETURN(forecast, ForecastFromSources(inputs_, files_));
  }
  const bool has_states = Reaches("write");
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<DiskDemand> demands,
                             DemandsOnDisks(forecast, has_states, files_, work_));
  const std::optional<DiskDemand> unmet = FirstUnmet(demands, inputs_.min_free_disk_bytes);
  if (!unmet) return OkStatus();
  return DiskFull(fmt::format(
      "about {} are to be written on the disk of {} (ingested rows {}, ids and masks {}, hidden states {}{}: {} tokens "
      "of {} each), and of {} free there limits.min_free_disk keeps {}. Nothing was started. Free space, take fewer "
      "rows "
      "(`take` of a source), store fewer layers (extract.layers), or name another work folder with --work DIR",
      FormatBytes(unmet->needed_bytes), unmet->folder, FormatBytes(forecast.ingested_bytes_left),
      FormatBytes(forecast.corpus_bytes_left), FormatBytes(has_states ? forecast.disk_bytes : 0),
      inputs_.discards_shards ? " before the first of them are deleted again" : "", FormatCount(forecast.tokens),
      FormatBytes(inputs_.plan.bytes_per_token), FormatBytes(unmet->free_bytes),
      FormatBytes(inputs_.min_free_disk_bytes)));
}

/// Of what a flipped bit or an edited row has left in contradiction nothing good can be made.
Status PipelineRun::CheckThatStateAgrees() {
  DRAFTMILL_ASSIGN_OR_RETURN(StateReader state, StateReader::Open(work_, files_));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string contradiction, FindContradiction(state.connection()));
  if (contradiction.empty()) return OkStatus();
  return sqlite::Damaged(StateDatabasePath(work_), "it contradicts itself " + contradiction);
}

Status PipelineRun::SettleChanges() {
  {
    DRAFTMILL_ASSIGN_OR_RETURN(StateReader state, StateReader::Open(work_, files_));
    DRAFTMILL_ASSIGN_OR_RETURN(stages_, state.Stages());
    DRAFTMILL_ASSIGN_OR_RETURN(chunks_, state.Chunks());
  }
  const std::vector<StageChange> changes = FindChanges(stages_, fingerprints_);
  if (NeedConsent(changes) && !request_.accept_changes) {
    return Conflict(
        "what this run depends on has changed since it was begun:\n" + Describe(changes, inputs_.source_names) +
        "Nothing was touched. Put it back as it was, or run again with --accept-changes, or name another work "
        "folder with --work DIR");
  }
  DRAFTMILL_RETURN_IF_ERROR(CheckThatSourcesAreThere(changes));
  if (!changes.empty()) {
    progress_.Line((NeedConsent(changes) ? "accepted changes:\n" : "what the run is made from has grown:\n") +
                   Describe(changes, inputs_.source_names));
  }
  // Before anything that the manifest lists is marked as work.
  if (!changes.empty() || (request_.rerun_stage && !RerunsStates()))
    DRAFTMILL_RETURN_IF_ERROR(RemoveManifest(files_, work_));
  DRAFTMILL_RETURN_IF_ERROR(AcceptChanges(changes, fingerprints_, chunks_, *state_));
  // States are marked only when the model has been loaded and found to be the right one.
  if (request_.rerun_stage && !RerunsStates()) MarkForRerun(*request_.rerun_stage, *state_);
  StoreSizes(*state_, inputs_.plan);
  return state_->Flush();
}

Status PipelineRun::CheckThatSourcesAreThere(const std::vector<StageChange>& changes) const {
  if (inputs_.missing_sources.empty()) return OkStatus();
  bool is_wanted = request_.rerun_stage == "ingest";
  for (const StageChange& change : changes) is_wanted = is_wanted || change.stage == "ingest";
  for (const StageRecord& stage : stages_)
    is_wanted = is_wanted || (stage.stage == "ingest" && stage.state != StageState::kDone);
  for (const ChunkRecord& chunk : chunks_) is_wanted = is_wanted || !chunk.ingested;
  if (!is_wanted) return OkStatus();
  return NotFound(
      "the sources are to be read again, but " + inputs_.missing_sources +
      ". Nothing was touched: what was ingested, and all that was made of it, stands. Put the sources back and "
      "run again");
}

Status PipelineRun::Begin() {
  DRAFTMILL_ASSIGN_OR_RETURN(StateReader state, StateReader::Open(work_, files_));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::optional<RunRecord> last, state.LastRun());
  RunRecord begun;
  if (last) begun.name = last->name;
  const LockOwner owner = ThisProcess(clock_);
  begun.host = owner.host;
  begun.boot_id = owner.boot_id;
  begun.pid = owner.pid;
  begun.program_version = request_.program_version;
  begun.parameters = config_.CanonicalJson();
  DRAFTMILL_ASSIGN_OR_RETURN(const RunRecord run, state_->BeginRun(std::move(begun)));
  DRAFTMILL_ASSIGN_OR_RETURN(stages_, state.Stages());
  DRAFTMILL_ASSIGN_OR_RETURN(chunks_, state.Chunks());
  if (!last) {
    monitor_->Say(EventLevel::kInfo, fmt::format("run {} in {}", run.name, work_));
  } else {
    monitor_->Say(EventLevel::kInfo, ResumeLine(run.name, chunks_, state_->after_unclean_end()));
  }
  if (inputs_.discards_shards) {
    monitor_->Say(EventLevel::kWarning,
                  "write.discard_after_publish is on: each shard is deleted once it is published. This is for "
                  "benchmarks: no hidden states will be left");
  }
  DRAFTMILL_RETURN_IF_ERROR(ShowProgress());
  if (request_.on_started) request_.on_started();
  return OkStatus();
}

/// Tells the monitor how far every stage is.
Status PipelineRun::ShowProgress() {
  DRAFTMILL_ASSIGN_OR_RETURN(StateReader state, StateReader::Open(work_, files_));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<ProgressRecord> rows, state.Progress());
  for (const ProgressRecord& row : rows) {
    if (!Reaches(row.stage)) continue;
    monitor_->Begin({.stage = row.stage,
                     .activity = row.state == "done" ? StageActivity::kDone : StageActivity::kWaiting,
                     .unit = row.unit,
                     .done = row.done,
                     .total = row.total > 0 ? row.total : -1,
                     .tokens = 0,
                     .bytes = row.bytes});
  }
  return OkStatus();
}

}  // namespace draftmill

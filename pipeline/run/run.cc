#include "pipeline/run/run.h"

#include <fmt/format.h>
#include <tbb/global_control.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "formats/manifest.h"
#include "pipeline/exit_status.h"
#include "pipeline/flow/disk_guard.h"
#include "pipeline/progress/format_units.h"
#include "pipeline/progress/stop_signal.h"
#include "pipeline/run/bad_rows.h"
#include "pipeline/run/chunk_pass.h"
#include "pipeline/run/forecast.h"
#include "pipeline/run/ingest_step.h"
#include "pipeline/run/run_files.h"
#include "pipeline/run/run_inputs.h"
#include "pipeline/run/run_monitor.h"
#include "pipeline/run/run_report.h"
#include "pipeline/run/self_check_step.h"
#include "pipeline/run/stage_changes.h"
#include "pipeline/run/stored_facts.h"
#include "pipeline/run/vocab_step.h"
#include "pipeline/verify/recorded_files.h"
#include "stages/extract/model/final_norm_weight.h"
#include "stages/stage_spec.h"
#include "stages/vocab_map/vocab_files.h"
#include "state/consistency.h"
#include "state/run_lock.h"
#include "state/schema.h"
#include "state/state_place.h"
#include "state/state_reader.h"
#include "state/store.h"

namespace draftmill {
namespace {

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
  bool vocab_wanted_ = false;
  bool did_work_ = false;
  std::unique_ptr<Extractor> extractor_;
  ShardConvention convention_;
  std::optional<VocabCounter> vocab_counter_;
  ChunkFlowPeaks peaks_;
};

// --- Before anything is started ----------------------------------------------------------------------------------------

RunReport PipelineRun::Execute() {
  const StopSignal signals;
  Status status = Prepare();
  if (!status.ok()) return Report(status, /*was_started=*/false);
  // The whole program's threads: the graph, the engine's arena and ingest share them.
  const tbb::global_control threads(tbb::global_control::max_allowed_parallelism,
                                    static_cast<std::size_t>(std::max(2, inputs_.threads)));
  status = Work();
  monitor_->Finish();
  return Report(status, /*was_started=*/true);
}

Status PipelineRun::Prepare() {
  DRAFTMILL_RETURN_IF_ERROR(CheckRequest());
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
  DRAFTMILL_RETURN_IF_ERROR(files_.MakeFolder(work_));
  if (!lock_) DRAFTMILL_RETURN_IF_ERROR(TakeWorkFolder());
  disk_ = std::make_unique<DiskGuard>(files_, clock_, work_, inputs_.min_free_disk_bytes, inputs_.disk_wait_ms);
  DRAFTMILL_RETURN_IF_ERROR(PlaceState(files_, work_, request_.state_folder));
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
  return OkStatus();
}

Status PipelineRun::CheckDisk() {
  DRAFTMILL_RETURN_IF_ERROR(
      disk_->WaitForSpace(0, ShouldStop(), [this](const std::string& text) { progress_.Line(text); }));
  if (!Reaches("write")) return OkStatus();
  Forecast forecast = ForecastFromChunks(chunks_, inputs_.plan.bytes_per_token);
  if (forecast.tokens == 0) {
    DRAFTMILL_ASSIGN_OR_RETURN(forecast, ForecastFromSources(inputs_, files_));
  }
  DRAFTMILL_ASSIGN_OR_RETURN(const DiskSpace space, files_.Space(work_));
  if (FitsOnDisk(forecast, space, inputs_.min_free_disk_bytes)) return OkStatus();
  return DiskFull(fmt::format(
      "about {} of hidden states are to be written ({} tokens of {} each), and of {} free on the disk of {} "
      "limits.min_free_disk keeps {}. Nothing was started. Free space, take fewer rows (`take` of a source), store "
      "fewer "
      "layers (extract.layers), or name another work folder with --work DIR",
      FormatBytes(forecast.states_bytes_left), FormatCount(forecast.tokens), FormatBytes(inputs_.plan.bytes_per_token),
      FormatBytes(space.free_bytes), work_, FormatBytes(inputs_.min_free_disk_bytes)));
}

/// Of what a flipped bit or an edited row has left in contradiction nothing good can be made.
Status PipelineRun::CheckThatStateAgrees() {
  DRAFTMILL_ASSIGN_OR_RETURN(StateReader state, StateReader::Open(work_, files_));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string contradiction, FindContradiction(state.connection()));
  if (contradiction.empty()) return OkStatus();
  return Corrupt(StateDatabasePath(work_) + " is damaged (it contradicts itself " + contradiction +
                 std::string(sqlite::kDamagedAdvice));
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

// --- The work ----------------------------------------------------------------------------------------------------------

bool PipelineRun::Reaches(std::string_view stage) const {
  if (!request_.until_stage) return true;
  for (const StageSpec* spec : AllStages()) {
    if (spec->name == stage) return true;
    if (spec->name == *request_.until_stage) return false;
  }
  return false;
}

Result<std::vector<ChunkRecord>> PipelineRun::ReadChunks() {
  DRAFTMILL_ASSIGN_OR_RETURN(StateReader state, StateReader::Open(work_, files_));
  return state.Chunks();
}

bool PipelineRun::IsComplete(const ChunkRecord& chunk) const {
  if (!chunk.ingested || !chunk.tokenized) return false;
  if (!Reaches("extract")) return true;
  return !chunk.plan_hash.empty() && chunk.published_shards == chunk.shards;
}

Status PipelineRun::Work() {
  DRAFTMILL_RETURN_IF_ERROR(WriteRunFiles(files_, config_, inputs_, fingerprints_));
  DRAFTMILL_RETURN_IF_ERROR(RecordFile(files_, work_, std::string(kRunFactsName), *state_));
  // A run from the copy itself has nothing to hold it against.
  if (config_.path() != JoinPath(work_, kPipelineCopyName)) {
    DRAFTMILL_RETURN_IF_ERROR(RecordFile(files_, work_, std::string(kPipelineCopyName), *state_));
  }
  if (Reaches("extract")) DRAFTMILL_RETURN_IF_ERROR(KeepFinalNorm());
  if (Reaches("vocab_map")) DRAFTMILL_RETURN_IF_ERROR(RecoverVocab(files_, work_));
  DRAFTMILL_RETURN_IF_ERROR(IngestWhereNeeded());
  DRAFTMILL_RETURN_IF_ERROR(RemoveOrphans(files_, work_, static_cast<std::int64_t>(chunks_.size())));
  if (!Reaches("tokenize")) return OkStatus();
  DRAFTMILL_RETURN_IF_ERROR(PassChunks());
  DRAFTMILL_RETURN_IF_ERROR(CheckThatSamplesExist());
  if (vocab_wanted_) DRAFTMILL_RETURN_IF_ERROR(MakeVocab());
  DRAFTMILL_RETURN_IF_ERROR(FinishStages());
  return Reaches("write") ? PublishManifest() : OkStatus();
}

/// Post-norm states can be derived from the shards for as long as the norm is known, also when the model is gone.
Status PipelineRun::KeepFinalNorm() {
  DRAFTMILL_ASSIGN_OR_RETURN(const FinalNorm norm, ReadFinalNormOfModel(inputs_.extract, inputs_.model));
  DRAFTMILL_RETURN_IF_ERROR(WriteFinalNorm(files_, work_, norm));
  return RecordFile(files_, work_, std::string(kFinalNormName), *state_);
}

Status PipelineRun::IngestWhereNeeded() {
  bool wanted = true;
  for (const StageRecord& stage : stages_) {
    if (stage.stage == "ingest" && stage.state == StageState::kDone) wanted = false;
  }
  for (const ChunkRecord& chunk : chunks_) wanted = wanted || !chunk.ingested;
  if (wanted) {
    did_work_ = true;
    DRAFTMILL_RETURN_IF_ERROR(RemoveManifest(files_, work_));
    const Result<IngestSummary> summary = RunIngest(inputs_.ingest, files_, work_, *state_, *monitor_, ShouldStop());
    if (!summary.ok()) return summary.status();
  }
  DRAFTMILL_ASSIGN_OR_RETURN(StateReader state, StateReader::Open(work_, files_));
  DRAFTMILL_ASSIGN_OR_RETURN(chunks_, state.Chunks());
  DRAFTMILL_ASSIGN_OR_RETURN(sources_, state.Sources());
  return ShowProgress();
}

Status PipelineRun::PassChunks() {
  DRAFTMILL_ASSIGN_OR_RETURN(const bool vocab_is_current, VocabIsCurrent(work_, files_, chunks_));
  vocab_wanted_ = Reaches("vocab_map") && !vocab_is_current;
  BadRowJudge judge = MakeBadRowJudge(sources_, chunks_, inputs_.max_bad_fraction);
  DRAFTMILL_RETURN_IF_ERROR(judge.JudgeChunkEnd());
  std::vector<ChunkRecord> wanted = WantedChunks();
  if (wanted.empty() && !RerunsStates()) return judge.JudgeEnd();
  did_work_ = true;
  if (!RerunsStates()) DRAFTMILL_RETURN_IF_ERROR(RemoveManifest(files_, work_));
  if (vocab_wanted_) {
    monitor_->Begin({.stage = "vocab_map", .unit = "samples"});
    vocab_counter_.emplace(inputs_.model.vocab_rows, static_cast<std::int32_t>(sources_.size()));
  }
  if (RerunsStates() || StatesAreWanted(wanted)) {
    DRAFTMILL_RETURN_IF_ERROR(OpenExtractor());
    DRAFTMILL_ASSIGN_OR_RETURN(chunks_, ReadChunks());
    wanted = WantedChunks();
  }
  ChunkPass pass({.files = &files_,
                  .work_folder = work_,
                  .state = state_.get(),
                  .monitor = monitor_.get(),
                  .tokenize = inputs_.tokenize.get(),
                  .tokenize_fingerprint = fingerprints_.at("tokenize").hash(),
                  .extractor = extractor_.get(),
                  .convention = &convention_,
                  .plan_parameters = inputs_.plan,
                  .states_fingerprint = StatesFingerprint(fingerprints_),
                  .vocab_counter = vocab_counter_ ? &*vocab_counter_ : nullptr,
                  .bad_rows = &judge,
                  .disk = disk_.get(),
                  .should_stop = ShouldStop()},
                 std::move(wanted));
  DRAFTMILL_RETURN_IF_ERROR(pass.Run({.threads = inputs_.threads,
                                      .chunk_credit_bytes = inputs_.memory.chunk_credit_bytes,
                                      .states_queue_bytes = inputs_.memory.states_queue_bytes},
                                     &peaks_));
  return judge.JudgeEnd();
}

std::vector<ChunkRecord> PipelineRun::WantedChunks() const {
  std::vector<ChunkRecord> wanted;
  for (const ChunkRecord& chunk : chunks_) {
    if (vocab_wanted_ || !IsComplete(chunk)) wanted.push_back(chunk);
  }
  return wanted;
}

bool PipelineRun::StatesAreWanted(const std::vector<ChunkRecord>& wanted) const {
  if (!Reaches("extract")) return false;
  return std::any_of(wanted.begin(), wanted.end(), [this](const ChunkRecord& chunk) { return !IsComplete(chunk); });
}

Status PipelineRun::OpenExtractor() {
  state_->SetStageState("extract", StageState::kRunning);
  state_->SetStageState("write", StageState::kRunning);
  monitor_->Say(EventLevel::kInfo,
                fmt::format("loading {} ({})", inputs_.extract.model_folder, FormatBytes(inputs_.model.weight_bytes)));
  inputs_.extract.say = [this](const std::string& text) { monitor_->Say(EventLevel::kInfo, text); };
  inputs_.extract.should_stop = ShouldStop();
  DRAFTMILL_RETURN_IF_ERROR(ClaimDevices(inputs_.extract));  // where nothing was wanted until now
  DRAFTMILL_ASSIGN_OR_RETURN(extractor_, make_extractor_(inputs_.extract));
  DRAFTMILL_RETURN_IF_ERROR(CheckNumerics());
  DRAFTMILL_RETURN_IF_ERROR(CheckWeights());
  if (RerunsStates()) {
    DRAFTMILL_RETURN_IF_ERROR(RemoveManifest(files_, work_));
    MarkForRerun("extract", *state_);
    DRAFTMILL_RETURN_IF_ERROR(state_->Flush());
    DRAFTMILL_RETURN_IF_ERROR(ShowProgress());
  }
  convention_ = {.layers = inputs_.model.layers,
                 .num_layers = inputs_.model.num_layers,
                 .hidden_size = inputs_.model.hidden_size,
                 .extract_fingerprint = StatesFingerprint(fingerprints_),
                 .model_fingerprint = inputs_.model.model_fingerprint,
                 .tokenizer_fingerprint = inputs_.tokenize->tokenizer_fingerprint(),
                 .template_fingerprint = inputs_.tokenize->template_fingerprint(),
                 .mask_rule = MaskRule(config_),
                 .numerics_environment = extractor_->numerics_environment()};
  return OkStatus();
}

Status PipelineRun::CheckNumerics() {
  const std::string environment = extractor_->numerics_environment();
  std::optional<std::string> before;
  {
    DRAFTMILL_ASSIGN_OR_RETURN(StateReader state, StateReader::Open(work_, files_));
    DRAFTMILL_ASSIGN_OR_RETURN(before, state.Fact(kFactNumerics));
  }
  if (before && *before != environment) {
    if (!request_.accept_changes) {
      return Conflict(
          fmt::format("this machine computes with other libraries or instructions than the run was begun with:\n  "
                      "extract: numerics "
                      "environment: {} -> {}\nPublished shards stay as they are with --accept-changes, and the rest is "
                      "computed here; "
                      "its last bits may differ. Nothing was touched",
                      *before, environment));
    }
    // Batches of open shards were computed there: a shard holds the states of one environment.
    DRAFTMILL_RETURN_IF_ERROR(RedoOpenShards(*state_, work_, files_, chunks_));
  }
  return state_->Wait(state_->SetFact(std::string(kFactNumerics), environment));
}

Status PipelineRun::CheckWeights() {
  const std::string digest = extractor_->weights_digest();
  std::optional<std::string> before;
  {
    DRAFTMILL_ASSIGN_OR_RETURN(StateReader state, StateReader::Open(work_, files_));
    DRAFTMILL_ASSIGN_OR_RETURN(before, state.Fact(kFactWeightsDigest));
  }
  if (before && *before != digest) {
    if (!request_.accept_changes) {
      return Conflict(fmt::format(
          "the weights of {} are not those that this run was begun with (digest {} -> {}), though their headers are. "
          "Nothing was published. Put the right files back, or run again with --accept-changes to compute all states "
          "again",
          inputs_.extract.model_folder, *before, digest));
    }
    DRAFTMILL_RETURN_IF_ERROR(state_->Wait(state_->RedoAllExtraction()));
    DRAFTMILL_RETURN_IF_ERROR(ShowProgress());
  }
  return state_->Wait(state_->SetFact(std::string(kFactWeightsDigest), digest));
}

Status PipelineRun::MakeVocab() {
  did_work_ = true;
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<ChunkRecord> chunks, ReadChunks());
  DRAFTMILL_ASSIGN_OR_RETURN(const bool is_current, VocabIsCurrent(work_, files_, chunks));
  if (is_current) return OkStatus();  // tokenized again, to the same bytes
  VocabStepInput input{.counter = &*vocab_counter_,
                       .tokenize = inputs_.tokenize.get(),
                       .size = inputs_.vocab_size,
                       .forced_tokens = inputs_.forced_tokens,
                       .sources = &sources_,
                       .corpus_digest = CorpusDigest(chunks),
                       .mask_rule = fingerprints_.at("tokenize").hash(),
                       .imported = inputs_.vocab_import ? &*inputs_.vocab_import : nullptr};
  DRAFTMILL_RETURN_IF_ERROR(RunVocabStep(input, files_, work_, *state_));
  monitor_->SetActivity("vocab_map", StageActivity::kDone);
  return OkStatus();
}

Status PipelineRun::CheckThatSamplesExist() {
  DRAFTMILL_ASSIGN_OR_RETURN(chunks_, ReadChunks());
  std::int64_t samples = 0;
  for (const ChunkRecord& chunk : chunks_) samples += chunk.samples;
  if (samples > 0) return OkStatus();
  if (chunks_.empty()) {
    return InvalidInput(
        "no row came out of the sources: they hold none that is good, or `take` lets none through. "
        "`draftmill status TARGET` counts what was read, refused and not taken");
  }
  return InvalidInput(
      "no row gave a sample. `draftmill quarantine TARGET list` shows each with its reason; mend the "
      "sources and run again");
}

Status PipelineRun::FinishStages() {
  state_->SetStageState("tokenize", StageState::kDone);
  monitor_->SetActivity("tokenize", StageActivity::kDone);
  if (Reaches("write")) {
    for (const std::string stage : {"extract", "write"}) {
      state_->SetStageState(stage, StageState::kDone);
      monitor_->SetActivity(stage, StageActivity::kDone);
    }
  }
  return state_->Flush();
}

/// Whether manifest.json is there with the bytes that were recorded.
Result<bool> PipelineRun::ManifestStands() {
  const std::string name = "manifest.json";
  DRAFTMILL_ASSIGN_OR_RETURN(StateReader state, StateReader::Open(work_, files_));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::optional<std::string> recorded,
                             state.Fact(std::string(kFactDigestPrefix) + name));
  const Result<PublishedFile> found = DigestFile(files_, work_, name);
  if (!found.ok() && found.status().code() != StatusCode::kNotFound) return found.status();
  return found.ok() && recorded && *recorded == ToHex(found->digest);
}

Status PipelineRun::PublishManifest() {
  DRAFTMILL_ASSIGN_OR_RETURN(const bool stands, ManifestStands());
  if (!did_work_ && stands) return OkStatus();
  DRAFTMILL_RETURN_IF_ERROR(RemoveManifest(files_, work_));
  // What somebody took away while the run was at work must not be listed.
  DRAFTMILL_RETURN_IF_ERROR(CheckThatFilesStand(files_, work_));
  DRAFTMILL_ASSIGN_OR_RETURN(const Manifest manifest, MakeManifest(files_, work_, config_, inputs_, fingerprints_));
  if (const json::Value* facts = manifest.facts.Find(kSelfCheckFact)) {
    for (const std::string& warning : SelfCheckWarnings(*facts)) monitor_->Say(EventLevel::kWarning, warning);
  }
  // Taken down before: a manifest that stands is then always the one that the database knows.
  const Hash128 digest = HashBytes128(ManifestText(manifest));
  DRAFTMILL_RETURN_IF_ERROR(
      state_->Wait(state_->SetFact(std::string(kFactDigestPrefix) + "manifest.json", ToHex(digest))));
  return WriteManifest(files_, work_, manifest);
}

// --- The end -----------------------------------------------------------------------------------------------------------

RunReport PipelineRun::ReportOf(const Status& status) {
  return MakeReport({.status = status,
                     .work_folder = work_,
                     .did_work = did_work_,
                     .until_stage = request_.until_stage,
                     .seconds = static_cast<double>(clock_.MonotonicNs() - start_ns_) / 1e9,
                     .peaks = peaks_,
                     .memory = inputs_.memory},
                    files_);
}

RunReport PipelineRun::Report(const Status& status, bool was_started) {
  RunReport report;
  if (!was_started) {
    report.exit_status = ExitStatusBeforeStart(status);
    report.summary = "draftmill: " + status.message();
    // Said by SQLite or by a system call, it names no way out.
    if (status.code() == StatusCode::kDiskFull && status.message().find("Free ") == std::string::npos) {
      report.summary +=
          fmt::format(". Nothing was started. Free space on the disk of {}, then run the same command again", work_);
    }
    report.facts = json::Object{{"exit_status", report.exit_status}, {"error", status.ToString()}};
    return report;
  }
  report = ReportOf(status);
  if (!status.ok()) state_->AddEvent(EventLevel::kError, status.ToString());
  state_->FinishRun(report.exit_status, json::Write(report.facts));
  const Status closed = state_->Close();
  // A reader that looks at this moment keeps the database in its other, equally whole, form.
  if (!closed.ok() && closed.code() != StatusCode::kConflict && status.ok()) return ReportOf(closed);
  return report;
}

}  // namespace

RunReport RunPipeline(const Config& config, const RunRequest& request, ProgressSink& progress,
                      const RunEnvironment& environment) {
  return PipelineRun(config, request, progress, environment).Execute();
}

}  // namespace draftmill

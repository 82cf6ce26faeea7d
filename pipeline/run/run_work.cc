// The stages' work, in step with the state database, up to the manifest.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/shell_word.h"
#include "formats/manifest.h"
#include "pipeline/progress/format_units.h"
#include "pipeline/run/bad_rows.h"
#include "pipeline/run/chunk_pass.h"
#include "pipeline/run/ingest_step.h"
#include "pipeline/run/pipeline_run.h"
#include "pipeline/run/run_files.h"
#include "pipeline/run/run_report.h"
#include "pipeline/run/self_check_step.h"
#include "pipeline/run/stored_facts.h"
#include "pipeline/verify/recorded_files.h"
#include "stages/extract/model/final_norm_weight.h"
#include "stages/stage_spec.h"
#include "stages/vocab_map/vocab_files.h"
#include "state/state_reader.h"

namespace draftmill {

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
  DRAFTMILL_RETURN_IF_ERROR(RemoveDiscarded(files_, work_));
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

Status PipelineRun::WaitForSpace() {
  return disk_->WaitForSpace(0, ShouldStop(),
                             [this](const std::string& text) { monitor_->Say(EventLevel::kWarning, text); });
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
    const Result<IngestSummary> summary =
        RunIngest(inputs_.ingest, {files_, work_, *state_, *monitor_, ShouldStop(), [this] { return WaitForSpace(); }});
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
                  .discards_shards = inputs_.discards_shards,
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
  DRAFTMILL_ASSIGN_OR_RETURN(const std::int64_t missing_rows, CountMissingIngestedFiles(files_, work_));
  if (missing_rows > 0) {
    monitor_->Say(
        EventLevel::kWarning,
        fmt::format("{} files of ingested/ are gone. What is published is whole without them; `draftmill verify "
                    "--repair {}` and one more run make them again",
                    missing_rows, ShellWord(work_)));
  }
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

}  // namespace draftmill

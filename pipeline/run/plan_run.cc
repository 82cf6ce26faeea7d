// PlanRun (pipeline/run/run.h): what a run would do and why, without doing it.
#include <fmt/format.h>

#include <utility>

#include "formats/manifest.h"
#include "pipeline/run/forecast.h"
#include "pipeline/run/new_work_folder.h"
#include "pipeline/run/run.h"
#include "pipeline/run/run_inputs.h"
#include "pipeline/run/stage_changes.h"
#include "pipeline/run/stored_facts.h"
#include "stages/extract/memory/device_policy.h"
#include "stages/stage_spec.h"
#include "state/state_reader.h"

namespace draftmill {
namespace {

/// What the work folder's database knows; empty where there is none.
struct Known {
  KnownRun run;
  std::vector<StageRecord> stages;
  std::vector<ChunkRecord> chunks;
  std::vector<ProgressRecord> progress;
  ShardStateCount discarded;
};

Result<Known> ReadKnown(const std::string& work_folder, FileSystem& files) {
  Known known;
  DRAFTMILL_ASSIGN_OR_RETURN(known.run, ReadKnownRun(files, work_folder));
  Result<StateReader> state = StateReader::Open(work_folder, files);
  if (!state.ok()) {
    if (state.status().code() == StatusCode::kNotFound) return known;
    return state.status();
  }
  DRAFTMILL_ASSIGN_OR_RETURN(known.stages, state->Stages());
  DRAFTMILL_ASSIGN_OR_RETURN(known.chunks, state->Chunks());
  DRAFTMILL_ASSIGN_OR_RETURN(known.progress, state->Progress());
  DRAFTMILL_ASSIGN_OR_RETURN(known.discarded, state->DiscardedShards());
  return known;
}

const ProgressRecord* ProgressOf(const Known& known, const std::string& stage) {
  for (const ProgressRecord& row : known.progress) {
    if (row.stage == stage) return &row;
  }
  return nullptr;
}

/// Why a stage would run, or that it would not.
std::pair<std::string, std::string> ActionAndReason(const std::string& stage, const Known& known,
                                                    const std::vector<StageChange>& changes, bool input_may_change) {
  for (const StageChange& change : changes) {
    if (change.stage != stage) continue;
    if (change.is_extension) return {"run", change.consequence};
    std::string reason = "changed: ";
    for (const FingerprintChange& part : change.parts) reason += ToString(part) + "; ";
    return {"refuse", reason + "needs --accept-changes: " + change.consequence};
  }
  const ProgressRecord* row = ProgressOf(known, stage);
  if (row == nullptr || row->state == "pending") return {"run", "nothing of it was done yet"};
  if (row->state == "done" && input_may_change) {
    return {"compare", "of what a stage before makes otherwise, all is made again; the rest is kept"};
  }
  if (row->state == "done") return {"reuse", "up to date"};
  if (row->state == "stale") return {"run", "marked to be done again"};
  return {"continue", fmt::format("{} of {} {} are done", row->done, row->total, row->unit)};
}

/// The sizes of the plan; on GPUs also where the weights would live, and why.
json::Value PlanFacts(const RunInputs& inputs) {
  json::Object facts{{"batch_tokens", inputs.plan.batch_tokens},
                     {"block_tokens", inputs.plan.block_tokens},
                     {"shard_bytes", inputs.plan.shard_bytes},
                     {"discard_after_publish", inputs.discards_shards},
                     {"device", inputs.extract.device}};
  if (inputs.extract.device == "cuda") {
    const Result<DevicePlan> devices = PlanDevices(inputs.model, inputs.extract);
    facts.emplace_back("gpus", inputs.extract.device_count);
    facts.emplace_back("weights", devices.ok() ? devices->reason : devices.status().message());
  }
  return json::Value(std::move(facts));
}

/// The sources of which not one of the rows that were looked at can be used.
json::Array BarrenFacts(const std::vector<BarrenSource>& sources) {
  json::Array facts;
  for (const BarrenSource& source : sources) {
    facts.push_back(json::Object{{"path", source.path}, {"rows_looked_at", source.rows}, {"why", source.why}});
  }
  return facts;
}

}  // namespace

Result<json::Value> PlanRun(const Config& config) {
  FileSystem& files = RealFileSystem();
  const std::string& work = config.work_folder();
  DRAFTMILL_RETURN_IF_ERROR(CheckThatWorkFolderMayBeUsed(files, config));
  DRAFTMILL_ASSIGN_OR_RETURN(const Known known, ReadKnown(work, files));
  DRAFTMILL_ASSIGN_OR_RETURN(const RunInputs inputs, LoadRunInputs(config, files, known.run));
  const std::vector<StageChange> changes = FindChanges(known.stages, MakeFingerprints(config, inputs));

  Forecast forecast = ForecastFromChunks(known.chunks, inputs, known.discarded.tokens);
  if (!forecast.is_exact || known.chunks.empty()) {
    DRAFTMILL_ASSIGN_OR_RETURN(const Forecast sampled, ForecastFromSources(inputs, files));
    if (forecast.tokens == 0) forecast = sampled;
    forecast.barren = sampled.barren;
  }
  json::Array stages;
  bool input_may_change = false;
  for (const StageSpec* spec : AllStages()) {
    const auto [action, reason] = ActionAndReason(spec->name, known, changes, input_may_change);
    // No stage reads the vocabulary map.
    if (action != "reuse" && std::string_view(spec->name) != "vocab_map") input_may_change = true;
    stages.push_back(json::Object{{"stage", spec->name}, {"action", action}, {"why", reason}});
  }
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<DiskDemand> demands,
                             DemandsOnDisks(forecast, inputs.plan.bytes_per_token > 0, files, work));
  json::Object plan{
      {"work", work},
      {"stages", std::move(stages)},
      {"model", json::Object{{"family", inputs.model.family}, {"weight_bytes", inputs.model.weight_bytes}}},
      {"forecast", json::Object{{"exact", forecast.is_exact && !known.chunks.empty()},
                                {"rows", forecast.rows},
                                {"tokens", forecast.tokens},
                                {"bytes_per_token", inputs.plan.bytes_per_token},
                                {"ingested_bytes_left", forecast.ingested_bytes_left},
                                {"corpus_bytes_left", forecast.corpus_bytes_left},
                                {"states_bytes", forecast.states_bytes},
                                {"states_bytes_left", forecast.states_bytes_left},
                                {"disk_bytes", forecast.disk_bytes}}},
      {"plan", PlanFacts(inputs)},
      {"disk", json::Object{{"free_bytes", demands.front().free_bytes},
                            {"needed_bytes", demands.front().needed_bytes},
                            {"min_free_disk_bytes", inputs.min_free_disk_bytes},
                            {"holds_the_states", !FirstUnmet(demands, inputs.min_free_disk_bytes)}}}};
  if (known.discarded.shards > 0) plan.emplace_back("discarded_shards", DiscardedShardsNote(known.discarded.shards));
  if (!forecast.barren.empty()) plan.emplace_back("sources_without_samples", BarrenFacts(forecast.barren));
  return json::Value(std::move(plan));
}

}  // namespace draftmill

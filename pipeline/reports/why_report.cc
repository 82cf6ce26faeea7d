#include "pipeline/reports/why_report.h"

#include <utility>
#include <vector>

#include "formats/manifest.h"
#include "pipeline/run/source_epochs.h"
#include "state/state_reader.h"

namespace draftmill {
namespace {

json::Value ChangeFacts(const std::vector<FingerprintChange>& changes) {
  json::Array list;
  for (const FingerprintChange& change : changes) {
    json::Object facts = {{"part", change.name}};
    const bool added = change.kind == FingerprintChange::Kind::kAdded;
    const bool removed = change.kind == FingerprintChange::Kind::kRemoved;
    facts.emplace_back("old", added ? json::Value() : json::Value(change.old_value));
    facts.emplace_back("new", removed ? json::Value() : json::Value(change.new_value));
    list.push_back(json::Value(std::move(facts)));
  }
  return json::Value(std::move(list));
}

std::vector<FingerprintChange> ChangesOf(const StageRecord& stored, const FingerprintsByStage& current) {
  const auto now = current.find(stored.stage);
  if (stored.fingerprint.empty() || now == current.end()) return {};
  return Diff(stored.fingerprint, now->second);
}

std::string ReasonFor(const StageRecord& stage, const std::vector<FingerprintChange>& changes) {
  if (stage.fingerprint.empty()) return "it was never begun: it would run for the first time";
  if (stage.stage == "ingest" && IsExtension(changes)) {
    return "source files were added since it was made: a run appends their rows as a further epoch and keeps what is "
           "there";
  }
  if (!changes.empty()) {
    return "what its output depends on has changed since it was made: a run stops with status 2, and with "
           "--accept-changes does it again";
  }
  switch (stage.state) {
    case StageState::kPending: return "nothing of it was done yet";
    case StageState::kRunning: return "it was begun and is not complete: a run continues it";
    case StageState::kStale:
      return "it was marked to be done again: by rerun, by accepted changes, or by verify --repair";
    case StageState::kDone: break;
  }
  return "it is up to date: nothing that its output depends on has changed";
}

/// What the failure behind a sample that did not go on says; empty where there is none.
Result<std::string> FailureMessage(StateReader& state, const SamplePlace& place) {
  if (place.failed_in.empty()) return std::string();
  DRAFTMILL_ASSIGN_OR_RETURN(
      sqlite::Statement * query,
      state.connection().Cached("SELECT message FROM failures WHERE sample_id = ? ORDER BY failure LIMIT 1"));
  DRAFTMILL_RETURN_IF_ERROR(query->Bind(place.sample_id));
  DRAFTMILL_ASSIGN_OR_RETURN(const bool found, query->Step());
  std::string message = found ? query->Text(0) : std::string();
  DRAFTMILL_RETURN_IF_ERROR(query->Reset());
  return message;
}

std::string ReasonFor(const SamplePlace& place) {
  if (place.stage == "failed")
    return "its row gave no sample: stage " + place.failed_in + " refused it (" + place.reason + ")";
  if (place.stage == "quarantined") return "stage " + place.failed_in + " refused its states (" + place.reason + ")";
  if (place.stage == "ingested") return "its chunk is not tokenized yet";
  if (place.stage == "tokenized") return "its chunk is tokenized and not planned yet";
  if (place.stage == "planned") return "its batch is not computed yet";
  if (place.stage == "discarded") return "its states were computed and published; " + DiscardedShardsNote(1);
  if (place.stage == "extracted") return "its batch is written; its shard is not published yet";
  return "it is complete: its states lie in " + place.file;
}

}  // namespace

Result<json::Value> WhyStage(FileSystem& files, const std::string& work_folder, const std::string& stage,
                             const FingerprintsByStage& current) {
  if (current.find(stage) == current.end()) {
    std::string names;
    for (const auto& [name, fingerprint] : current) names += (names.empty() ? "" : ", ") + name;
    return InvalidConfig("`" + stage + "` is neither a stage (" + names + ") nor a sample (ID or ID/VARIANT)");
  }
  StageRecord record{.stage = stage};
  auto state = StateReader::Open(work_folder, files);
  if (!state.ok() && state.status().code() != StatusCode::kNotFound) return state.status();
  if (state.ok()) {
    auto stored = state->Stage(stage);
    if (!stored.ok() && stored.status().code() != StatusCode::kNotFound) return stored.status();
    if (stored.ok()) record = std::move(stored).value();
  }
  const std::vector<FingerprintChange> changes = ChangesOf(record, current);
  return json::Value(json::Object{{"stage", stage},
                                  {"state", StageStateName(record.state)},
                                  {"why", ReasonFor(record, changes)},
                                  {"changes", ChangeFacts(changes)}});
}

Result<json::Value> WhySample(FileSystem& files, const std::string& work_folder, const SampleName& name,
                              const FingerprintsByStage& current) {
  DRAFTMILL_ASSIGN_OR_RETURN(StateReader state, StateReader::Open(work_folder, files));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<SamplePlace> places, state.FindSample(name.sample_id));
  json::Array samples;
  for (const SamplePlace& place : places) {
    if (name.variant && place.variant != *name.variant) continue;
    json::Object facts = {
        {"sample_id", place.sample_id}, {"variant", place.variant}, {"stage", place.stage}, {"why", ReasonFor(place)}};
    DRAFTMILL_ASSIGN_OR_RETURN(std::string message, FailureMessage(state, place));
    if (!message.empty()) facts.emplace_back("message", std::move(message));
    samples.push_back(json::Value(std::move(facts)));
  }
  if (samples.empty()) return NotFound("conversation " + std::to_string(name.sample_id) + " has no such variant");
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<StageRecord> stages, state.Stages());
  json::Array changed;
  for (const StageRecord& stage : stages) {
    if (!ChangesOf(stage, current).empty()) changed.push_back(json::Value(stage.stage));
  }
  return json::Value(json::Object{{"samples", std::move(samples)}, {"changed_stages", std::move(changed)}});
}

}  // namespace draftmill

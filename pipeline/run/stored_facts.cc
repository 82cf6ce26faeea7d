#include "pipeline/run/stored_facts.h"

#include <charconv>
#include <string>
#include <utility>
#include <vector>

#include "pipeline/run/run_facts.h"

namespace draftmill {
namespace {

Result<std::optional<std::int64_t>> IntegerFact(StateReader& state, std::string_view name) {
  DRAFTMILL_ASSIGN_OR_RETURN(const std::optional<std::string> text, state.Fact(name));
  if (!text) return std::optional<std::int64_t>();
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || value <= 0) {
    return sqlite::Damaged("state.db", "the fact " + std::string(name) + " is no number from 1 but `" + *text + "`");
  }
  return std::optional<std::int64_t>(value);
}

/// Sizes that `auto` once stood for, and the epochs of the sources: with them a run without its database plans as before.
KnownRun KnownFromRunFile(FileSystem& files, const std::string& work_folder) {
  KnownRun known;
  const Result<RunFacts> facts = ReadRunFacts(files, work_folder);
  // A damaged run.json tells nothing; what it says is a help, not a condition.
  if (!facts.ok()) return known;
  if (facts->plan.batch_tokens > 0) known.sizes.batch_tokens = facts->plan.batch_tokens;
  if (facts->plan.block_tokens > 0) known.sizes.block_tokens = facts->plan.block_tokens;
  const auto ingest = facts->fingerprints.find("ingest");
  if (ingest != facts->fingerprints.end()) known.ingest = ingest->second;
  return known;
}

}  // namespace

Result<KnownRun> ReadKnownRun(FileSystem& files, const std::string& work_folder) {
  Result<StateReader> state = StateReader::Open(work_folder, files);
  if (state.status().code() == StatusCode::kNotFound) return KnownFromRunFile(files, work_folder);
  if (!state.ok()) return state.status();
  KnownRun known;
  DRAFTMILL_ASSIGN_OR_RETURN(known.sources, state->Sources());
  DRAFTMILL_ASSIGN_OR_RETURN(known.sizes.batch_tokens, IntegerFact(*state, kFactBatchTokens));
  DRAFTMILL_ASSIGN_OR_RETURN(known.sizes.block_tokens, IntegerFact(*state, kFactBlockTokens));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<StageRecord> stages, state->Stages());
  for (const StageRecord& stage : stages) {
    if (stage.stage != "ingest") continue;
    known.ingest = stage.fingerprint;
    // Marked to be done again it still is what the files are; begun and not ended it is nothing yet.
    const bool is_whole = stage.state == StageState::kDone || stage.state == StageState::kStale;
    known.is_ingested = is_whole && !known.sources.empty();
  }
  return known;
}

void StoreSizes(StateWriter& state, const PlanParameters& plan) {
  state.SetFact(std::string(kFactBatchTokens), std::to_string(plan.batch_tokens));
  state.SetFact(std::string(kFactBlockTokens), std::to_string(plan.block_tokens));
}

}  // namespace draftmill

#include "pipeline/run/stage_changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "pipeline/run/run_inputs.h"
#include "pipeline/run/source_epochs.h"
#include "stages/stage_spec.h"

namespace draftmill {
namespace {

/// What follows from files that are added.
constexpr std::string_view kExtension =
    "files were added: their rows follow as a further epoch, and nothing that is there is numbered or computed again";

std::string_view Consequence(std::string_view stage) {
  if (stage == "ingest") {
    return "the sources are read again; of chunks that come out otherwise everything is made again";
  }
  if (stage == "tokenize") {
    return "all rows are tokenized again; of chunks whose ids or masks change the states are computed again";
  }
  if (stage == "vocab_map") return "vocab/ is made again; no states are computed";
  if (stage == "extract") return "all states are computed again";
  return "the new sizes apply to chunks of which nothing is published; published shards stay";
}

bool IsOfDiscarding(const FingerprintChange& part) { return part.name == kDiscardPart; }

bool ChangesSizes(const StageChange& change) {
  return !std::all_of(change.parts.begin(), change.parts.end(), IsOfDiscarding);
}

std::string ConsequenceOf(const StageChange& change) {
  const auto discarding = std::find_if(change.parts.begin(), change.parts.end(), IsOfDiscarding);
  if (change.stage != "write" || discarding == change.parts.end()) return std::string(Consequence(change.stage));
  std::string text = discarding->kind == FingerprintChange::Kind::kRemoved
                         ? "states that were deleted are computed again, and shards stay from now on"
                         : "each shard is deleted once it is published; those that are published already stay";
  if (ChangesSizes(change)) text += "; " + std::string(Consequence(change.stage));
  return text;
}

int VersionOf(std::string_view stage) {
  for (const StageSpec* spec : AllStages()) {
    if (spec->name == stage) return spec->version;
  }
  return 0;
}

/// " (chat.jsonl)" for a part that stands for the content of a source file.
std::string SourceNote(const FingerprintChange& part, const std::vector<std::string>& source_paths) {
  for (std::size_t i = 0; i < source_paths.size(); ++i) {
    if (part.name == SourcePartName(i)) return fmt::format(" ({})", source_paths[i]);
  }
  return "";
}

void RedoUnpublished(const std::vector<ChunkRecord>& chunks, StateWriter& state) {
  for (const ChunkRecord& chunk : chunks) {
    if (!chunk.plan_hash.empty() && chunk.published_shards == 0) state.DropExtraction(chunk.chunk);
  }
}

}  // namespace

bool NeedConsent(const std::vector<StageChange>& changes) {
  return std::any_of(changes.begin(), changes.end(), [](const StageChange& change) { return !change.is_extension; });
}

std::vector<StageChange> FindChanges(const std::vector<StageRecord>& stored,
                                     const std::map<std::string, Fingerprint>& current) {
  std::vector<StageChange> changes;
  for (const StageRecord& record : stored) {
    const auto found = current.find(record.stage);
    if (record.fingerprint.empty() || found == current.end()) continue;
    if (record.fingerprint.hash() == found->second.hash()) continue;
    StageChange change;
    change.stage = record.stage;
    change.parts = Diff(record.fingerprint, found->second);
    change.is_extension = record.stage == "ingest" && IsExtension(change.parts);
    change.consequence = change.is_extension ? std::string(kExtension) : ConsequenceOf(change);
    changes.push_back(std::move(change));
  }
  return changes;
}

std::string Describe(const std::vector<StageChange>& changes, const std::vector<std::string>& source_paths) {
  std::string text;
  for (const StageChange& change : changes) {
    for (const FingerprintChange& part : change.parts) {
      text += fmt::format("  {}: {}{}\n", change.stage, ToString(part), SourceNote(part, source_paths));
    }
    text += fmt::format("    means: {}\n", change.consequence);
  }
  return text;
}

Status AcceptChanges(const std::vector<StageChange>& changes, const std::map<std::string, Fingerprint>& current,
                     const std::vector<ChunkRecord>& chunks, StateWriter& state) {
  for (const StageChange& change : changes) {
    if (change.stage == "write") {
      if (ChangesSizes(change)) RedoUnpublished(chunks, state);
      if (!current.at("write").Has(kDiscardPart)) state.RedoDiscardedShards();
      state.SetStageState("write", StageState::kStale);
    } else {
      MarkForRerun(change.stage, state);
    }
  }
  for (const auto& [stage, fingerprint] : current) state.SetFingerprint(stage, VersionOf(stage), fingerprint);
  return state.Flush();
}

void MarkForRerun(const std::string& stage, StateWriter& state) {
  if (stage == "tokenize") state.RedoAllTokenization();
  if (stage == "extract" || stage == "write") {
    // States exist only in shards: writing them again means computing them again.
    state.RedoAllExtraction();
    state.SetStageState("extract", StageState::kStale);
    state.SetStageState("write", StageState::kStale);
    return;
  }
  state.SetStageState(stage, StageState::kStale);
}

}  // namespace draftmill

// What has changed since a work folder's stages were made, and how it is accepted.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "state/fingerprint.h"
#include "state/state_records.h"
#include "state/store.h"

namespace draftmill {

/// A stage whose stored fingerprint is not the current one.
struct StageChange {
  std::string stage;
  std::vector<FingerprintChange> parts;
  std::string consequence;  ///< what accepting it redoes, in words
  /// Of ingest: files were added, and nothing else (pipeline/run/source_epochs.h). Needs no consent.
  bool is_extension = false;
};

/// Whether any of them takes back something that was made, which only --accept-changes allows.
bool NeedConsent(const std::vector<StageChange>& changes);

/// The stages that were begun under another fingerprint, in the order of the data.
std::vector<StageChange> FindChanges(const std::vector<StageRecord>& stored,
                                     const std::map<std::string, Fingerprint>& current);

/// "extract.numerics: "hf" -> "fused"" for each part, with the consequence, for people. `source_paths` names the files
/// that the parts "source N content" are about: a path is no part of a fingerprint.
std::string Describe(const std::vector<StageChange>& changes, const std::vector<std::string>& source_paths);

/// Marks in the database what the changes make stale, and stores the current fingerprints of all stages. What need not be
/// done again stays.
Status AcceptChanges(const std::vector<StageChange>& changes, const std::map<std::string, Fingerprint>& current,
                     const std::vector<ChunkRecord>& chunks, StateWriter& state);

/// Marks one stage as to be done again under its current parameters.
void MarkForRerun(const std::string& stage, StateWriter& state);

}  // namespace draftmill

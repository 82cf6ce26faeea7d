// Makes vocab/ from the counts of a pass, and tells whether the one that stands is still right.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "stages/tokenize/tokenize_stage.h"
#include "stages/vocab_map/vocab_import.h"
#include "stages/vocab_map/vocab_map.h"
#include "state/file_system.h"
#include "state/state_records.h"
#include "state/store.h"

namespace draftmill {

/// XXH3-128, hex, over the digests of all corpus chunks in their order: what a map is bound to.
std::string CorpusDigest(const std::vector<ChunkRecord>& chunks);

/// True where the stage is done, the map was made from this corpus and its files are whole.
Result<bool> VocabIsCurrent(const std::string& work_folder, FileSystem& files, const std::vector<ChunkRecord>& chunks);

struct VocabStepInput {
  const VocabCounter* counter = nullptr;
  const TokenizeStage* tokenize = nullptr;
  std::int64_t size = 0;
  std::vector<std::string> forced_tokens;
  const std::vector<SourceRecord>* sources = nullptr;
  std::string corpus_digest;
  std::string mask_rule;                    ///< fingerprint of tokenize
  const ImportedVocab* imported = nullptr;  ///< a map that is taken as it is
};

/// Chooses the map, exchanges the folder, records that it was done.
Status RunVocabStep(const VocabStepInput& input, FileSystem& files, const std::string& work_folder, StateWriter& state);

}  // namespace draftmill

#include "pipeline/run/vocab_step.h"

#include <optional>
#include <utility>

#include "base/hash.h"
#include "pipeline/run/stored_facts.h"
#include "pipeline/verify/recorded_files.h"
#include "stages/vocab_map/vocab_files.h"
#include "state/state_reader.h"

namespace draftmill {

std::string CorpusDigest(const std::vector<ChunkRecord>& chunks) {
  StreamingHash hash;
  for (const ChunkRecord& chunk : chunks) hash.Update(chunk.corpus_digest);
  return ToHex(hash.Digest128());
}

Result<bool> VocabIsCurrent(const std::string& work_folder, FileSystem& files, const std::vector<ChunkRecord>& chunks) {
  DRAFTMILL_ASSIGN_OR_RETURN(StateReader state, StateReader::Open(work_folder, files));
  DRAFTMILL_ASSIGN_OR_RETURN(const StageRecord stage, state.Stage("vocab_map"));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::optional<std::string> corpus, state.Fact(kFactVocabCorpus));
  if (stage.state != StageState::kDone || !corpus) return false;
  for (const ChunkRecord& chunk : chunks) {
    if (!chunk.tokenized) return false;
  }
  return *corpus == CorpusDigest(chunks) && ReadVocab(files, work_folder).ok();
}

Status RunVocabStep(const VocabStepInput& input, FileSystem& files, const std::string& work_folder,
                    StateWriter& state) {
  VocabMapRequest request;
  request.size = input.size;
  request.stop_tokens = input.tokenize->stop_tokens();
  for (const AddedToken& token : input.tokenize->tokenizer().added_tokens()) request.added_tokens.push_back(token.id);
  for (const std::string& content : input.forced_tokens) {
    const std::optional<std::int32_t> id = input.tokenize->tokenizer().TokenToId(content);
    if (!id) {
      return InvalidConfig(
          "vocab_map.forced_tokens names \"" + content +
          "\", which the model's tokenizer does not have. Nothing published was lost: mend the list and run again");
    }
    request.forced_tokens.push_back(*id);
  }
  for (const SourceRecord& source : *input.sources) request.source_names.push_back(source.path);
  request.corpus_digest = input.corpus_digest;
  request.mask_rule = input.mask_rule;
  if (input.imported != nullptr) {
    DRAFTMILL_RETURN_IF_ERROR(CheckBinding(*input.imported, input.mask_rule, input.corpus_digest));
    request.imported_d2t = input.imported->d2t;
  }
  DRAFTMILL_ASSIGN_OR_RETURN(const VocabMap map, BuildVocabMap(*input.counter, request));
  // While it is exchanged the folder is not what the database says of it.
  DRAFTMILL_RETURN_IF_ERROR(state.Wait(state.SetStageState("vocab_map", StageState::kRunning)));
  const Result<std::vector<PublishedFile>> written = WriteVocab(files, work_folder, map);
  if (!written.ok()) return written.status();
  for (const char* name : kVocabFiles) DRAFTMILL_RETURN_IF_ERROR(RecordFile(files, work_folder, name, state));
  state.SetFact(std::string(kFactVocabCorpus), input.corpus_digest);
  return state.Wait(state.SetStageState("vocab_map", StageState::kDone));
}

}  // namespace draftmill

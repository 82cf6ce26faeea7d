#include "stages/stage_spec.h"

namespace draftmill {

std::vector<const StageSpec*> AllStages() {
  return {
#ifdef DRAFTMILL_HAS_ingest
      &IngestSpec(),
#endif
#ifdef DRAFTMILL_HAS_tokenize
      &TokenizeSpec(),
#endif
#ifdef DRAFTMILL_HAS_vocab_map
      &VocabMapSpec(),
#endif
#ifdef DRAFTMILL_HAS_extract
      &ExtractSpec(),
#endif
#ifdef DRAFTMILL_HAS_write
      &WriteSpec(),
#endif
  };
}

}  // namespace draftmill

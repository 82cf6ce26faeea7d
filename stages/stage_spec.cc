#include "stages/stage_spec.h"

namespace draftmill {

std::vector<const StageSpec*> AllStages() {
  return {&IngestSpec(), &TokenizeSpec(), &VocabMapSpec(), &ExtractSpec(), &WriteSpec()};
}

}  // namespace draftmill

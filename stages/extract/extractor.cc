#include "stages/extract/extractor.h"

namespace draftmill {

Status Extractor::ExtractBlocks(const NextBlock& next, const std::function<Status(BatchStates)>& emit,
                                const std::function<bool()>& should_stop) {
  while (true) {
    DRAFTMILL_ASSIGN_OR_RETURN(const std::optional<BlockRequest> request, next());
    if (!request) return OkStatus();
    DRAFTMILL_RETURN_IF_ERROR(ExtractBlock(*request, emit, should_stop));
  }
}

}  // namespace draftmill

// A tokenized sample as JSON: a line of `draftmill tokenize`, and what the oracle tests compare.
//
//   a sample:           {"variant", "turn", "text", "input_ids", "loss_mask", "offsets": [[begin, end], ...]}
//   why there is none:  {"variant", "turn", "reason", "error"}
//
// "text_differs": true joins a pre-tokenized row whose ids are not those of its text.
// Pure function, safe from any thread.
#pragma once

#include "base/json.h"
#include "stages/tokenize/tokenize_stage.h"

namespace draftmill {

/// `reason` is the fixed word (docs/loss_mask.md lists them), `error` says it in full; offsets are bytes of `text`.
json::Object SampleAsJson(const TokenizedSample& sample);

}  // namespace draftmill

// The mask report: what the tokenize stage counted over a whole corpus, for `status` and for the final report.
//
// Counters are kept in state.db by chunk (docs/state.md, `mask_report`), so the report covers all chunks, whichever
// start of the run tokenized them. Pure functions, safe from any thread.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "stages/tokenize/tokenize_report.h"
#include "state/state_records.h"

namespace draftmill {

/// The counters of a chunk as state.db keeps them: a JSON object.
std::string MaskCountersAsJson(const TokenizeReport& report);

/// {"supervised_share": 0.62, "rows": ..., ...}: every counter by its name (docs/loss_mask.md); an empty object where
/// nothing is tokenized.
json::Value MaskFacts(const std::vector<ReportCounter>& counters);

/// The same in a few lines for people, without line breaks; none where nothing is tokenized.
std::vector<std::string> MaskLines(const std::vector<ReportCounter>& counters);

}  // namespace draftmill

// Runs a model over a few rows and says whether its states can be trusted: what `draftmill doctor model` does.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(ModelExamination result, ExamineModel({options, rows, reference_path}));
//
// Checked are NaN and infinity, that the head's choice agrees with the text as stored better than in any wrong reading
// (self_check.h), and, where a file of reference states is given (tools/reference_states.py makes one with
// transformers), the distance from it. With a reference its rows and layers are taken, else the given ones. Needs the
// engine: in builds without it this fails as Extractor::Create does.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "stages/extract/extractor.h"

namespace draftmill {

struct ExaminationRequest {
  ExtractOptions options;
  std::vector<std::vector<std::int32_t>> rows;
  std::string reference_path;  ///< empty for none
};

struct ModelExamination {
  bool sound = false;
  json::Value facts;  ///< verdict, figures by layer, agreement, environment
};

Result<ModelExamination> ExamineModel(const ExaminationRequest& request);

}  // namespace draftmill

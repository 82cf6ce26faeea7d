// `draftmill doctor model`: a model folder tried out on a few sentences, or against reference states.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(ModelExamination result, DoctorModel(options, reference_path));
//
// Without a reference a few sentences of several kinds are tokenized with the model's own tokenizer, a row each. A
// folder without a tokenizer, or a build without the engine, is told and counts as sound: nothing was found wrong.
#pragma once

#include <string>

#include "base/status.h"
#include "stages/extract/examine_model.h"

namespace draftmill {

/// Layers that `options` leaves open become the eagle3 default, or all of a model that is too short for it.
Result<ModelExamination> DoctorModel(ExtractOptions options, const std::string& reference_path);

}  // namespace draftmill

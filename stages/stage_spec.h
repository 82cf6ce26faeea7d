// What every stage declares about itself, and the register of all stages.
//
// A stage is a folder under stages/ with `<name>_spec.cc` that holds its StageSpec, and code that knows neither the flow
// graph nor SQLite. docs/adding_a_stage.md lists the steps. A stage whose spec is missing does not link (the pipeline names it).
#pragma once

#include <string>
#include <vector>

#include "stages/parameter.h"

namespace draftmill {

/// The declaration of a stage: what pipeline.yaml may say about it and what its fingerprint is made of.
struct StageSpec {
  std::string name = {};  ///< section name in pipeline.yaml and row name in state.db
  /// Raised by hand with every change of the code that changes output bytes.
  int version = 1;
  std::string doc = {};  ///< one paragraph for the reference page
  std::vector<std::string> inputs =
      {};  ///< names of the stages and model files whose bytes it reads, e.g. "ingest", "model.tokenizer"
  std::string output = {};  ///< what it leaves in the work folder, e.g. "corpus/"
  std::vector<ParameterSpec> parameters = {};
};

const StageSpec& IngestSpec();    ///< stages/ingest/ingest_spec.cc
const StageSpec& TokenizeSpec();  ///< stages/tokenize/tokenize_spec.cc
const StageSpec& VocabMapSpec();  ///< stages/vocab_map/vocab_map_spec.cc
const StageSpec& ExtractSpec();   ///< stages/extract/extract_spec.cc
const StageSpec& WriteSpec();     ///< stages/write/write_spec.cc

/// All stages in the order in which data passes them.
std::vector<const StageSpec*> AllStages();

}  // namespace draftmill

// What a pipeline file may say: the sections that belong to the run as a whole, and the list of all sections.
//
// Declared with the same ParameterSpec as the stages (stages/parameter.h), so that reading, `config show` and the
// reference page know one kind of declaration. The functions return values of the process, built once; safe from any
// thread.
#pragma once

#include <string>
#include <vector>

#include "stages/parameter.h"

namespace draftmill {

/// One section of a pipeline file. The section without a name holds the keys at the top level.
struct SectionSpec {
  std::string name;
  std::string doc;
  std::vector<ParameterSpec> parameters;
};

/// The top level, `model`, the stages in the order of the data, `limits`.
const std::vector<SectionSpec>& AllSections();

}  // namespace draftmill

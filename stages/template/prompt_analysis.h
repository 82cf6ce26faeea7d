// Whether a template's generation prompt is the same text after any messages, seen from its syntax alone.
// Then it needs to be rendered once, not once per assistant turn. Pure function.
#pragma once

#include "stages/template/ast.h"

namespace draftmill::jinja {

/// True where add_generation_prompt is read only by the last top-level statements, and these read nothing else that the
/// messages could have changed. False whenever in doubt.
bool PromptIsConstant(const ParsedTemplate& parsed);

}  // namespace draftmill::jinja

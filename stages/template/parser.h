// Reads a chat template: jinja2's grammar as far as real chat templates use it; everything else is refused by name and
// line.
//
// Followed source: jinja2 3.1 (parser.py, compiler.py) with the extensions that transformers loads: loop controls and
// {% generation %}. Nesting is bounded, so that no template can exhaust the stack. Pure function, safe from any thread.
#pragma once

#include <memory>
#include <string_view>

#include "base/status.h"
#include "stages/template/ast.h"

namespace draftmill::jinja {

/// Nested statements and brackets, and operands in a row, that are read; real templates stay below 30.
inline constexpr int kMaximumNesting = 100;
inline constexpr int kMaximumExpressionDepth = 500;

Result<std::unique_ptr<const ParsedTemplate>> Parse(std::string_view source);

}  // namespace draftmill::jinja

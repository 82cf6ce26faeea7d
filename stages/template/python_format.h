// Values as Python prints them: str(), repr() and json.dumps(). Text keeps its provenance.
//
// Everything that the template adds (quotes, brackets, numbers) is literal text of `owner`. Not safe for concurrent use
// of one builder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "stages/template/value.h"

namespace draftmill::jinja {

/// Appends str(value). False where the engine does not print such a value (a function, a generator); `reason` says so.
bool AppendStr(Arena& arena, const Value& value, Provenance literal, TextBuilder& out, std::string& reason);

/// Options of the tojson filter.
struct JsonOptions {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool has_indent = false;
  std::string indent;  ///< one level, e.g. two spaces
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

/// Appends json.dumps(value). False where Python raises; `reason` holds its message.
bool AppendJson(Arena& arena, const Value& value, const JsonOptions& options, Provenance literal, TextBuilder& out,
                std::string& reason);

}  // namespace draftmill::jinja

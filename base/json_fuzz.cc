// Any bytes as JSON: refused with a place inside the text, or a value that every style writes so that it reads back.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/utf8.h"

namespace {

namespace json = draftmill::json;

void CheckStyle(const json::Value& value, json::Style style) {
  const std::string written = json::Write(value, style);
  const auto again = json::Parse(written);
  if (!again.ok() || json::Write(*again, style) != written) std::abort();
  // Canonical form sorts keys, so that only its text is the same.
  if (style != json::Style::kCanonical && !(*again == value)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  json::ParseFailure failure;
  const auto value = json::Parse(text, {}, &failure);
  if (!value.ok()) {
    if (failure.byte > size || !draftmill::IsValidUtf8(value.status().message())) std::abort();
    return 0;
  }
  for (const json::Style style : {json::Style::kCompact, json::Style::kCanonical, json::Style::kPretty}) {
    CheckStyle(*value, style);
  }
  return 0;
}

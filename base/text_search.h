// Search for a text in a text in time that is linear whatever the two are. std::string_view::find compares from the
// start at every place: a template or a tokenizer.json that looks for "aaaa...b" in "aaaa..." could hold it for hours.
// Pure functions, safe from any thread.
#pragma once

#include <cstddef>
#include <string_view>

namespace draftmill {

/// Where `wanted` first stands in `text` at `from` or behind it, or npos; as std::string_view::find.
std::size_t FindSubstring(std::string_view text, std::string_view wanted, std::size_t from = 0);

/// Where it stands last, or npos; as std::string_view::rfind.
std::size_t FindLastSubstring(std::string_view text, std::string_view wanted);

}  // namespace draftmill

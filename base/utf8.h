// Strict UTF-8 (RFC 3629): no overlong forms, no surrogates, nothing above U+10FFFF. Pure functions, safe from any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace draftmill {

/// How many bytes from the start form whole valid characters; text.size() where all of it is valid.
std::size_t ValidUtf8Length(std::string_view text);

inline bool IsValidUtf8(std::string_view text) { return ValidUtf8Length(text) == text.size(); }

/// Appends the UTF-8 form of a code point, which must be no surrogate and at most U+10FFFF.
void AppendUtf8(std::uint32_t code_point, std::string& out);

/// The text with every byte that belongs to no valid character replaced by U+FFFD.
std::string RepairedUtf8(std::string_view text);

}  // namespace draftmill

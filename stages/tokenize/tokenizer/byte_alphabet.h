// GPT-2's printable stand-ins for the 256 bytes, in which byte-level vocabularies are written: "Ġthe" is " the".
//
// Pure functions, safe from any thread. Source: bytes_to_unicode() of GPT-2's encoder.py.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace draftmill {

/// The bytes that a token's content stands for, or nothing where it holds a character that is no stand-in.
std::optional<std::string> BytesOfByteLevel(std::string_view content);

/// The same into `bytes`, whose memory is used again; returns false where there is a character that is no stand-in.
bool DecodeByteLevel(std::string_view content, std::string& bytes);

/// The stand-ins of some bytes.
std::string ByteLevelOfBytes(std::string_view bytes);

}  // namespace draftmill

// SHA-1 (FIPS 180-4), because TorchSpec names its files by it. For names alone.
//
// Pure function, safe from any thread.
#pragma once

#include <string>
#include <string_view>

namespace draftmill {

/// 40 lower-case hexadecimal digits.
std::string Sha1Hex(std::string_view text);

}  // namespace draftmill

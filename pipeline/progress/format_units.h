// Numbers for people: "1.50 GiB", "12 m 05 s". For messages only; files and --json carry plain numbers.
#pragma once

#include <cstdint>
#include <string>

namespace draftmill {

/// "0 B", "512 B", "1.50 GiB".
std::string FormatBytes(std::int64_t bytes);
/// "3.2 s", "12 m 05 s", "3 h 07 m".
std::string FormatSeconds(double seconds);
/// "1,234,567".
std::string FormatCount(std::int64_t count);
/// Three digits: "0", "980", "5.35 k", "87.8 M".
std::string FormatRate(double per_second);

}  // namespace draftmill

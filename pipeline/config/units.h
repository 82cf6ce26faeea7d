// Sizes and durations as a pipeline file holds them: "256MiB", "90s". Strict and exact in both directions; what only
// people read is made by format_units.h. Pure functions, safe from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace draftmill {

/// A size: digits with an optional fraction and one of B, kB, KB, MB, GB, TB (powers of 1,000) or KiB, MiB, GiB, TiB
/// (powers of 1,024); without a unit a number of bytes. Refuses what is negative, no whole number of bytes, or above
/// int64.
Result<std::int64_t> ParseByteSize(std::string_view text);

/// A duration in milliseconds: digits with an optional fraction and ms, s, m, h or d. Only 0 may stand without a unit.
Result<std::int64_t> ParseDurationMs(std::string_view text);

/// The size in the largest unit that keeps it exact, as ParseByteSize reads it: "1GiB", "1500MB", "1537".
std::string FormatByteSizeExact(std::int64_t bytes);

/// The duration in the largest unit that keeps it exact, as ParseDurationMs reads it: "15m", "90s", "0s".
std::string FormatDurationExact(std::int64_t milliseconds);

}  // namespace draftmill

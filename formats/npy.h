// One-dimensional NumPy arrays of int64 and bool: byte for byte what numpy.save writes (format version 1.0), so that
// the files can be compared and hashed (numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
//
//   std::string bytes = NpyOfInt64(d2t);
//   DRAFTMILL_ASSIGN_OR_RETURN(std::vector<std::int64_t> d2t, ReadNpyInt64(bytes, "vocab/d2t.npy"));
//
// Reading takes only what is written here; anything else is kCorrupt. Pure functions, safe from any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace draftmill {

/// The file of an int64 array.
std::string NpyOfInt64(std::span<const std::int64_t> values);
/// The file of a bool array; values are 0 or 1.
std::string NpyOfBool(std::span<const std::uint8_t> values);

/// The values of a file that NpyOfInt64 wrote; `path` is for messages.
Result<std::vector<std::int64_t>> ReadNpyInt64(std::string_view file, std::string_view path);
/// The values of a file that NpyOfBool wrote.
Result<std::vector<std::uint8_t>> ReadNpyBool(std::string_view file, std::string_view path);

}  // namespace draftmill

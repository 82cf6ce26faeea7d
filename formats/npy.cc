#include "formats/npy.h"

#include <bit>
#include <cstring>

namespace draftmill {
namespace {

static_assert(std::endian::native == std::endian::little, "arrays are written in place, little-endian");

// The text of a header is short enough for any length that it always fills two blocks of 64.
constexpr std::size_t kHeaderBytes = 128;

std::string Header(std::string_view dtype, std::size_t count) {
  std::string header("\x93NUMPY\x01\x00\x76\x00", 10);
  header +=
      "{'descr': '" + std::string(dtype) + "', 'fortran_order': False, 'shape': (" + std::to_string(count) + ",), }";
  header.resize(kHeaderBytes - 1, ' ');
  header += '\n';
  return header;
}

template <typename T>
std::string Write(std::string_view dtype, std::span<const T> values) {
  std::string file = Header(dtype, values.size());
  if (!values.empty()) file.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  return file;
}

template <typename T>
Result<std::vector<T>> Read(std::string_view dtype, std::string_view file, std::string_view path) {
  const std::size_t bytes = file.size() < kHeaderBytes ? 0 : file.size() - kHeaderBytes;
  if (file.size() < kHeaderBytes || bytes % sizeof(T) != 0 ||
      file.substr(0, kHeaderBytes) != Header(dtype, bytes / sizeof(T))) {
    return Corrupt(std::string(path) + ": no one-dimensional array of " + std::string(dtype) + " in " +
                   std::to_string(file.size()) + " bytes");
  }
  std::vector<T> values(bytes / sizeof(T));
  if (bytes > 0) std::memcpy(values.data(), file.data() + kHeaderBytes, bytes);
  return values;
}

}  // namespace

std::string NpyOfInt64(std::span<const std::int64_t> values) { return Write("<i8", values); }

std::string NpyOfBool(std::span<const std::uint8_t> values) { return Write("|b1", values); }

Result<std::vector<std::int64_t>> ReadNpyInt64(std::string_view file, std::string_view path) {
  return Read<std::int64_t>("<i8", file, path);
}

Result<std::vector<std::uint8_t>> ReadNpyBool(std::string_view file, std::string_view path) {
  DRAFTMILL_ASSIGN_OR_RETURN(std::vector<std::uint8_t> values, Read<std::uint8_t>("|b1", file, path));
  for (const std::uint8_t value : values) {
    if (value > 1) return Corrupt(std::string(path) + ": a bool that is neither 0 nor 1");
  }
  return values;
}

}  // namespace draftmill

// write_torch_archive FILE BYTES ZIP64_FROM: a torch archive with a tensor of BYTES bytes and one behind it, for
// tests/torch_archive_test.py.
//
// {"large": uint8 [BYTES], zeros but for a last 7; "far": int64 [3], 10, 20, 30; "name": "x"}. Zeros are left out of the file,
// so that one of several GiB takes no disk. Sizes and offsets from ZIP64_FROM on stand in zip64 fields.
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <span>
#include <string>
#include <vector>

#include "formats/torch_archive.h"

namespace draftmill {
namespace {

using torch_archive::Dtype;

constexpr std::array<std::int64_t, 3> kFar = {10, 20, 30};
constexpr char kLast = 7;

std::uint32_t Crc32(std::uint32_t before, std::span<const std::byte> bytes) {
  return static_cast<std::uint32_t>(
      ::crc32_z(before, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));  // NOLINT: zlib's type
}

std::uint32_t Crc32OfLarge(std::int64_t bytes) {
  const std::vector<std::byte> zeros(std::size_t{16} << 20);
  std::uint32_t crc = 0;
  for (std::int64_t left = bytes - 1; left > 0; left -= std::min(left, static_cast<std::int64_t>(zeros.size()))) {
    crc = Crc32(
        crc, std::span(zeros).first(static_cast<std::size_t>(std::min(left, static_cast<std::int64_t>(zeros.size())))));
  }
  return Crc32(crc, std::as_bytes(std::span(&kLast, 1)));
}

int Write(const std::string& path, std::int64_t bytes, std::int64_t zip64_from) {
  torch_archive::Dict dict;
  dict.Add("large", torch_archive::Tensor{Dtype::kU8, {bytes}})
      .Add("far", torch_archive::Tensor{Dtype::kI64, {kFar.size()}});
  dict.Add("name", "x");
  const auto layout = torch_archive::Layout::Of(std::move(dict), zip64_from);
  if (!layout.ok()) {
    std::cerr << layout.status().ToString() << "\n";
    return 1;
  }
  std::ofstream file(path, std::ios::binary);
  const auto write = [&](std::int64_t offset, std::string_view piece) {
    file.seekp(offset);
    file.write(piece.data(), static_cast<std::streamsize>(piece.size()));
  };
  const auto far = std::as_bytes(std::span(kFar));
  write(layout->storage_offset(0) + bytes - 1, std::string_view(&kLast, 1));
  write(layout->storage_offset(1), {reinterpret_cast<const char*>(far.data()), far.size()});  // NOLINT: bytes as text
  const std::array<std::uint32_t, 2> crc32 = {Crc32OfLarge(bytes), Crc32(0, far)};
  for (const torch_archive::FramePiece& piece : layout->Frame(crc32)) write(piece.offset, piece.bytes);
  return file.flush() ? 0 : 1;
}

}  // namespace
}  // namespace draftmill

int main(int argc, char** argv) {
  const std::span<char*> arguments(argv, static_cast<std::size_t>(argc));
  if (arguments.size() != 4) {
    std::cerr << "usage: write_torch_archive FILE BYTES ZIP64_FROM\n";
    return 2;
  }
  return draftmill::Write(arguments[1], std::atoll(arguments[2]), std::atoll(arguments[3]));
}

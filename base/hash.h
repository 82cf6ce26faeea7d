// The one family of hashes that draftmill uses: XXH3 with seed 0, stored little-endian (docs/formats.md).
//
// Identity of content, never security. All functions are pure and safe from any thread.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace draftmill {

/// XXH3-128 as 16 bytes: the low 64 bits little-endian, then the high 64 bits little-endian.
struct Hash128 {
  std::array<std::uint8_t, 16> bytes{};

  friend bool operator==(const Hash128&, const Hash128&) = default;
  /// Order of the bytes, as memcmp.
  friend std::strong_ordering operator<=>(const Hash128&, const Hash128&) = default;
};

std::uint64_t HashBytes64(std::span<const std::byte> bytes, std::uint64_t seed = 0);
std::uint64_t HashBytes64(std::string_view bytes, std::uint64_t seed = 0);
Hash128 HashBytes128(std::span<const std::byte> bytes);
Hash128 HashBytes128(std::string_view bytes);

/// 32 lower-case hexadecimal digits, first byte first.
std::string ToHex(const Hash128& hash);
/// 16 lower-case hexadecimal digits of the number, most significant first.
std::string ToHex(std::uint64_t hash);
/// Reads back what ToHex wrote.
Result<Hash128> Hash128FromHex(std::string_view hex);

/// The hash of bytes that come in pieces; equal to that of their concatenation.
class StreamingHash {
 public:
  StreamingHash();
  ~StreamingHash();
  StreamingHash(StreamingHash&&) noexcept;
  StreamingHash& operator=(StreamingHash&&) noexcept;

  void Update(std::span<const std::byte> bytes);
  void Update(std::string_view bytes);
  /// The digests of all bytes so far; more may follow.
  std::uint64_t Digest64() const;
  Hash128 Digest128() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace draftmill

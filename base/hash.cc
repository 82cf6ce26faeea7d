#include "base/hash.h"

#include <cstring>

// Compiled into this file alone, so that the library's version is the only one in the program.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace draftmill {
namespace {

Hash128 FromXxh(XXH128_hash_t hash) {
  Hash128 result;
  for (int i = 0; i < 8; ++i) {
    result.bytes[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(hash.low64 >> (8 * i));
    result.bytes[static_cast<std::size_t>(i + 8)] = static_cast<std::uint8_t>(hash.high64 >> (8 * i));
  }
  return result;
}

constexpr char kHexDigits[] = "0123456789abcdef";

int HexValue(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  return -1;
}

}  // namespace

std::uint64_t HashBytes64(std::span<const std::byte> bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

std::uint64_t HashBytes64(std::string_view bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

Hash128 HashBytes128(std::span<const std::byte> bytes) { return FromXxh(XXH3_128bits(bytes.data(), bytes.size())); }

Hash128 HashBytes128(std::string_view bytes) { return FromXxh(XXH3_128bits(bytes.data(), bytes.size())); }

std::string ToHex(const Hash128& hash) {
  std::string hex;
  hex.reserve(32);
  for (std::uint8_t byte : hash.bytes) {
    hex += kHexDigits[byte >> 4];
    hex += kHexDigits[byte & 15];
  }
  return hex;
}

std::string ToHex(std::uint64_t hash) {
  std::string hex;
  hex.reserve(16);
  for (int shift = 60; shift >= 0; shift -= 4) hex += kHexDigits[(hash >> shift) & 15];
  return hex;
}

Result<Hash128> Hash128FromHex(std::string_view hex) {
  Hash128 hash;
  if (hex.size() != 32)
    return InvalidInput("a 128-bit hash has 32 hexadecimal digits, here are " + std::to_string(hex.size()));
  for (std::size_t i = 0; i < 16; ++i) {
    const int high = HexValue(hex[2 * i]);
    const int low = HexValue(hex[2 * i + 1]);
    if (high < 0 || low < 0) return InvalidInput("not a hexadecimal hash: " + std::string(hex));
    hash.bytes[i] = static_cast<std::uint8_t>(high * 16 + low);
  }
  return hash;
}

struct StreamingHash::State {
  XXH3_state_t xxh;
};

StreamingHash::StreamingHash() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->xxh); }
StreamingHash::~StreamingHash() = default;
StreamingHash::StreamingHash(StreamingHash&&) noexcept = default;
StreamingHash& StreamingHash::operator=(StreamingHash&&) noexcept = default;

void StreamingHash::Update(std::span<const std::byte> bytes) {
  XXH3_128bits_update(&state_->xxh, bytes.data(), bytes.size());
}

void StreamingHash::Update(std::string_view bytes) { XXH3_128bits_update(&state_->xxh, bytes.data(), bytes.size()); }

std::uint64_t StreamingHash::Digest64() const { return XXH3_64bits_digest(&state_->xxh); }

Hash128 StreamingHash::Digest128() const { return FromXxh(XXH3_128bits_digest(&state_->xxh)); }

}  // namespace draftmill

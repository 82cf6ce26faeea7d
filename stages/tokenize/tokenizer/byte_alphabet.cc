#include "stages/tokenize/tokenizer/byte_alphabet.h"

#include <array>
#include <utility>

#include "base/utf8.h"
#include "stages/tokenize/tokenizer/unicode_properties.h"

namespace draftmill {
namespace {

constexpr std::uint32_t kStandInLimit = 256 + 68;

bool StandsForItself(unsigned byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

struct Alphabet {
  std::array<std::uint32_t, 256> stand_in{};
  std::array<std::int16_t, kStandInLimit> byte{};
};

Alphabet MakeAlphabet() {
  Alphabet alphabet;
  alphabet.byte.fill(-1);
  std::uint32_t next = 256;
  for (unsigned byte = 0; byte < 256; ++byte) {
    alphabet.stand_in[byte] = StandsForItself(byte) ? byte : next++;
    alphabet.byte[alphabet.stand_in[byte]] = static_cast<std::int16_t>(byte);
  }
  return alphabet;
}

const Alphabet& TheAlphabet() {
  static const Alphabet kAlphabet = MakeAlphabet();
  return kAlphabet;
}

}  // namespace

bool DecodeByteLevel(std::string_view content, std::string& bytes) {
  const Alphabet& alphabet = TheAlphabet();
  bytes.clear();
  for (std::size_t at = 0; at < content.size();) {
    unsigned length = 0;
    const std::uint32_t code_point = DecodeUtf8(content, at, length);
    at += length;
    if (code_point >= kStandInLimit || alphabet.byte[code_point] < 0) return false;
    bytes.push_back(static_cast<char>(alphabet.byte[code_point]));
  }
  return true;
}

std::optional<std::string> BytesOfByteLevel(std::string_view content) {
  std::string bytes;
  return DecodeByteLevel(content, bytes) ? std::optional(std::move(bytes)) : std::nullopt;
}

std::string ByteLevelOfBytes(std::string_view bytes) {
  std::string content;
  for (const char byte : bytes) AppendUtf8(TheAlphabet().stand_in[static_cast<std::uint8_t>(byte)], content);
  return content;
}

}  // namespace draftmill

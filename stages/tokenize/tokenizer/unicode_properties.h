// What the tokenizers need to know of a code point: general category, script Han, word character, and the few classes
// that pre-tokenizer patterns are made of.
//
//   const UnicodeProperties& unicode = UnicodeProperties::Get();
//   if (unicode.Classes(code_point) & kClassLetter) ...
//
// The tables are those of the oracles (Unicode 16.0; unicode_tables.inc says how they are made), not of the libraries
// of the system, whose Unicode is older. Built at the first use (under a millisecond), then const: safe from any
// thread.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace draftmill {

inline constexpr std::uint32_t kCodePointLimit = 0x110000;

/// General categories, in the order of the generated table.
enum class GeneralCategory : std::uint8_t {
  kLu,
  kLl,
  kLt,
  kLm,
  kLo,
  kMn,
  kMc,
  kMe,
  kNd,
  kNl,
  kNo,
  kPc,
  kPd,
  kPs,
  kPe,
  kPi,
  kPf,
  kPo,
  kSm,
  kSc,
  kSk,
  kSo,
  kZs,
  kZl,
  kZp,
  kCc,
  kCf,
  kCo,
  kCn,
  kCs,
};
inline constexpr int kGeneralCategories = 30;

/// Classes of code points as pattern scanners test them; a code point may have several.
enum CharacterClass : std::uint8_t {
  kClassLetter = 1 << 0,       ///< \p{L}
  kClassNumber = 1 << 1,       ///< \p{N}
  kClassSpace = 1 << 2,        ///< \s: \p{Z}, U+0009 to U+000D, U+0085
  kClassMark = 1 << 3,         ///< \p{M}
  kClassPunctuation = 1 << 4,  ///< \p{P} or \p{S}
  kClassUpper = 1 << 5,        ///< Lu, Lt, Lm, Lo or M: what may start a word in the o200k pattern
  kClassLower = 1 << 6,        ///< Ll, Lm, Lo or M: what may follow
  kClassHan = 1 << 7,          ///< script Han
};

class UnicodeProperties {
 public:
  /// The one table of the process.
  static const UnicodeProperties& Get();

  GeneralCategory Category(std::uint32_t code_point) const {
    return static_cast<GeneralCategory>(properties_[code_point] & 31U);
  }
  bool IsHan(std::uint32_t code_point) const { return (properties_[code_point] & kHanBit) != 0; }
  /// `\w` of Oniguruma, as patterns mean it.
  bool IsWord(std::uint32_t code_point) const { return (properties_[code_point] & kWordBit) != 0; }
  /// `\w` of Rust's regex crate, as `single_word` of added tokens means it.
  bool IsRustWord(std::uint32_t code_point) const { return (properties_[code_point] & kRustWordBit) != 0; }
  /// True where the oracle's normal forms decompose or move this character; its Unicode version is 12, so that younger
  /// characters are left alone.
  bool NormalizationActive(std::uint32_t code_point) const { return normalization_active_[code_point]; }
  /// CharacterClass bits.
  std::uint8_t Classes(std::uint32_t code_point) const { return classes_[code_point]; }
  /// For each byte: the classes of an ASCII character, 0 for a byte of a longer one.
  const std::uint8_t* ascii_classes() const { return ascii_classes_.data(); }

 private:
  static constexpr std::uint8_t kHanBit = 32;
  static constexpr std::uint8_t kWordBit = 64;
  static constexpr std::uint8_t kRustWordBit = 128;

  UnicodeProperties();

  std::array<std::uint8_t, kCodePointLimit> properties_;
  std::array<std::uint8_t, kCodePointLimit> classes_;
  std::array<std::uint8_t, 256> ascii_classes_;
  std::bitset<kCodePointLimit> normalization_active_;
};

/// How many bytes the character has that starts with this byte, in valid UTF-8.
inline unsigned Utf8SequenceLength(std::uint8_t lead) {
  return lead < 0x80 ? 1U : lead < 0xE0 ? 2U : lead < 0xF0 ? 3U : 4U;
}

/// The code point at `bytes`, which must be the start of a character of valid UTF-8; `length` becomes its bytes.
inline std::uint32_t DecodeUtf8(const std::uint8_t* bytes, unsigned& length) {
  const std::uint32_t lead = bytes[0];
  if (lead < 0x80) {
    length = 1;
    return lead;
  }
  if (lead < 0xE0) {
    length = 2;
    return (lead & 0x1FU) << 6U | (bytes[1] & 0x3FU);
  }
  if (lead < 0xF0) {
    length = 3;
    return (lead & 0x0FU) << 12U | (bytes[1] & 0x3FU) << 6U | (bytes[2] & 0x3FU);
  }
  length = 4;
  return (lead & 0x07U) << 18U | (bytes[1] & 0x3FU) << 12U | (bytes[2] & 0x3FU) << 6U | (bytes[3] & 0x3FU);
}

inline std::uint32_t DecodeUtf8(std::string_view text, std::size_t position, unsigned& length) {
  return DecodeUtf8(reinterpret_cast<const std::uint8_t*>(text.data()) + position, length);
}

/// The first byte of the character that ends before `position` (> 0).
inline std::size_t PreviousCharacter(std::string_view text, std::size_t position) {
  do {
    --position;
  } while (position > 0 && (static_cast<std::uint8_t>(text[position]) & 0xC0U) == 0x80U);
  return position;
}

}  // namespace draftmill

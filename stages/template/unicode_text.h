// What Python's str knows about characters: white space, printability, letter case, and stepping through UTF-8.
// Input is valid UTF-8. Pure functions, safe from any thread. Character data: utf8proc (Unicode 15).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace draftmill::jinja {

struct DecodedCharacter {
  char32_t code = 0;
  std::size_t bytes = 1;
};

/// The character that begins at byte `at`.
DecodedCharacter DecodeAt(std::string_view text, std::size_t at);
/// The byte at which the character begins whose last byte is `end` - 1.
std::size_t CharacterBegin(std::string_view text, std::size_t end);
void AppendUtf8(char32_t code, std::string& out);

bool IsAscii(std::string_view text);
/// Code points in the text.
std::size_t CountCharacters(std::string_view text);
/// The byte at which character `index` begins; the size of the text where there are fewer.
std::size_t ByteOfCharacter(std::string_view text, std::size_t index);

/// str.isspace() of one character.
bool IsPythonSpace(char32_t code);
/// The text without white space at its start, as the number of bytes to leave out; likewise at its end.
std::size_t LeadingSpaceBytes(std::string_view text);
std::size_t TrailingSpaceBytes(std::string_view text);

/// Whether repr() writes the character as it is.
bool IsPrintable(char32_t code);
bool IsAlphabetic(char32_t code);
bool IsDecimalDigit(char32_t code);
/// str.isdigit(): decimal digits, and those of other forms such as superscripts.
bool IsDigit(char32_t code);
/// The categories of numbers; of str.isnumeric() ideographs are missing, which are letters.
bool IsNumeric(char32_t code);
bool IsUppercase(char32_t code);
bool IsLowercase(char32_t code);

/// str.upper() and str.title()'s first letter of one character, with the expansions of Unicode's SpecialCasing.
void AppendUpper(char32_t code, std::string& out);
void AppendTitle(char32_t code, std::string& out);
/// str.lower() of the character at byte `at` of `text`: a capital sigma depends on its neighbours.
void AppendLowerAt(std::string_view text, std::size_t at, std::string& out);

}  // namespace draftmill::jinja

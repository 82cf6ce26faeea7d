// Numbers as Python's format() and % operator write them. Pure functions, safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace draftmill::jinja {

/// What stands in a replacement field after the colon, or in a conversion after the percent sign.
struct FormatSpec {
  std::string fill = " ";  ///< one character
  char align = '\0';       ///< '<', '>', '^', '='; 0 where the value's type decides
  char sign = '-';
  char group = '\0';  ///< ',' or '_' between thousands
  char type = '\0';
  std::size_t width = 0;
  int precision = -1;  ///< -1: none
};

/// Wider fields and longer fractions are refused.
inline constexpr std::size_t kMaximumFormatWidth = 1'000;

/// Reads "[[fill]align][sign][0][width][grouping][.precision][type]"; std::nullopt for anything else.
std::optional<FormatSpec> ParseFormatSpec(std::string_view text);

/// The digits of a number with its sign, grouped, without padding; std::nullopt where Python refuses the type.
std::optional<std::string> FormatInteger(std::int64_t number, const FormatSpec& spec);
/// `repr` is how Python prints the number: what a field without a type and precision shows.
std::optional<std::string> FormatFloat(double number, std::string_view repr, const FormatSpec& spec);

/// What goes before and after `size` characters to fill the width; '=' stands for '>', its sign is the caller's matter.
struct Padding {
  std::string before;
  std::string after;
};
Padding PaddingOf(std::size_t size, char align, const FormatSpec& spec);

/// A number with its padding; with '=' that stands between the sign and the digits.
std::string PadNumber(std::string number, const FormatSpec& spec);

}  // namespace draftmill::jinja

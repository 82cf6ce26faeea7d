#include "stages/template/number_format.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "stages/template/unicode_text.h"

namespace draftmill::jinja {
namespace {

constexpr bool IsOneOf(char c, std::string_view set) { return set.find(c) != std::string_view::npos; }

/// Reads digits into `number`, which stays as it is where there are none. False where the number is too large.
template <typename Number>
bool TakeNumber(std::string_view& text, Number& number) {
  if (text.empty() || text.front() < '0' || text.front() > '9') return true;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return error == std::errc() && static_cast<std::size_t>(number) <= kMaximumFormatWidth;
}

/// Puts the separator between thousands of the digits that the text begins with.
std::string Grouped(std::string digits, char separator) {
  if (separator == '\0') return digits;
  const std::size_t end = std::min(digits.find_first_not_of("0123456789"), digits.size());
  for (std::size_t at = end; at > 3; at -= 3) digits.insert(at - 3, 1, separator);
  return digits;
}

std::string WithSign(bool negative, std::string magnitude, char sign) {
  if (negative) return "-" + magnitude;
  return sign == '-' ? magnitude : sign + magnitude;
}

std::string DigitsInBase(std::uint64_t number, unsigned base) {
  std::string digits;
  do {
    digits.insert(digits.begin(), "0123456789abcdef"[number % base]);
    number /= base;
  } while (number != 0);
  return digits;
}

std::string PrintFloat(double number, char type, int precision) {
  const char format[] = {'%', '.', '*', type, '\0'};
  char buffer[kMaximumFormatWidth + 400];
  const int size = std::snprintf(buffer, sizeof(buffer), format, precision, number);
  return {buffer, static_cast<std::size_t>(size)};
}

}  // namespace

std::optional<FormatSpec> ParseFormatSpec(std::string_view text) {
  FormatSpec spec;
  if (!text.empty()) {
    const std::size_t first = DecodeAt(text, 0).bytes;
    if (text.size() > first && IsOneOf(text[first], "<>^=")) {
      spec.fill = text.substr(0, first);
      spec.align = text[first];
      text.remove_prefix(first + 1);
    } else if (IsOneOf(text.front(), "<>^=")) {
      spec.align = text.front();
      text.remove_prefix(1);
    }
  }
  const auto take = [&text](std::string_view accepted, char& out) {
    if (text.empty() || !IsOneOf(text.front(), accepted)) return;
    out = text.front();
    text.remove_prefix(1);
  };
  take("+- ", spec.sign);
  char zero = '\0';
  take("0", zero);
  if (zero != '\0' && spec.align == '\0') {
    spec.fill = "0";
    spec.align = '=';
  }
  if (!TakeNumber(text, spec.width)) return std::nullopt;
  take(",_", spec.group);
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    if (text.empty() || text.front() < '0' || text.front() > '9' || !TakeNumber(text, spec.precision))
      return std::nullopt;
  }
  take("bdeEfFgGosxX%", spec.type);
  return text.empty() ? std::optional(spec) : std::nullopt;
}

std::optional<std::string> FormatInteger(std::int64_t number, const FormatSpec& spec) {
  if (IsOneOf(spec.type, "eEfFgG%") && spec.type != '\0') {
    return FormatFloat(static_cast<double>(number), "", spec);
  }
  if (spec.precision >= 0) return std::nullopt;
  const bool negative = number < 0;
  const std::uint64_t magnitude =
      negative ? ~static_cast<std::uint64_t>(number) + 1 : static_cast<std::uint64_t>(number);
  std::string digits;
  switch (spec.type) {
    case '\0':
    case 'd': digits = Grouped(std::to_string(magnitude), spec.group); break;
    case 'b': digits = DigitsInBase(magnitude, 2); break;
    case 'o': digits = DigitsInBase(magnitude, 8); break;
    case 'x':
    case 'X': digits = DigitsInBase(magnitude, 16); break;
    default: return std::nullopt;
  }
  if (spec.group != '\0' && IsOneOf(spec.type, "boxX") && spec.type != '\0') return std::nullopt;
  if (spec.type == 'X')
    std::transform(digits.begin(), digits.end(), digits.begin(),
                   [](char c) { return c >= 'a' ? static_cast<char>(c - 'a' + 'A') : c; });
  return WithSign(negative, std::move(digits), spec.sign);
}

std::optional<std::string> FormatFloat(double number, std::string_view repr, const FormatSpec& spec) {
  const bool negative = std::signbit(number) && !std::isnan(number);
  const double magnitude = std::fabs(number);
  const int precision = spec.precision < 0 ? 6 : spec.precision;
  std::string digits;
  switch (spec.type) {
    case '\0':
      if (spec.precision >= 0) return std::nullopt;
      digits = repr.starts_with('-') ? repr.substr(1) : repr;
      break;
    case 'e':
    case 'E':
    case 'f':
    case 'F': digits = PrintFloat(magnitude, spec.type, precision); break;
    case 'g':
    case 'G': digits = PrintFloat(magnitude, spec.type, precision == 0 ? 1 : precision); break;
    case '%': digits = PrintFloat(magnitude * 100, 'f', precision) + "%"; break;
    default: return std::nullopt;
  }
  return WithSign(negative, Grouped(std::move(digits), spec.group), spec.sign);
}

Padding PaddingOf(std::size_t size, char align, const FormatSpec& spec) {
  const std::size_t missing = spec.width > size ? spec.width - size : 0;
  const std::size_t before = align == '<' ? 0 : (align == '^' ? missing / 2 : missing);
  const auto repeat = [&spec](std::size_t count) {
    std::string text;
    for (std::size_t i = 0; i < count; ++i) text += spec.fill;
    return text;
  };
  return {repeat(before), repeat(missing - before)};
}

std::string PadNumber(std::string number, const FormatSpec& spec) {
  const char align = spec.align == '\0' ? '>' : spec.align;
  const Padding padding = PaddingOf(number.size(), align, spec);
  if (align != '=') return padding.before + number + padding.after;
  const bool has_sign = number.starts_with('-') || number.starts_with('+') || number.starts_with(' ');
  return number.insert(has_sign ? 1 : 0, padding.before);
}

}  // namespace draftmill::jinja

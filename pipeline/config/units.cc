#include "pipeline/config/units.h"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <span>

namespace draftmill {
namespace {

struct Unit {
  std::string_view name;
  std::int64_t factor;
};

// In the order in which an exact value is tried: largest first.
constexpr std::int64_t kKiB = 1024;
constexpr std::array<Unit, 8> kSizeUnits = {{{"TiB", kKiB* kKiB* kKiB* kKiB},
                                             {"TB", 1'000'000'000'000},
                                             {"GiB", kKiB* kKiB* kKiB},
                                             {"GB", 1'000'000'000},
                                             {"MiB", kKiB* kKiB},
                                             {"MB", 1'000'000},
                                             {"KiB", kKiB},
                                             {"kB", 1'000}}};
constexpr std::array<Unit, 5> kDurationUnits = {
    {{"d", 86'400'000}, {"h", 3'600'000}, {"m", 60'000}, {"s", 1'000}, {"ms", 1}}};

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

/// `digits.fraction * factor` where that is a whole number that fits.
Result<std::int64_t> ExactProduct(std::string_view digits, std::string_view fraction, std::int64_t factor) {
  __extension__ using Wide = __int128;  // 19 digits times 2^40 do not fit 64 bits
  constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
  if (digits.empty() || digits.size() > 19 || fraction.size() > 9) return InvalidInput("is out of range");
  Wide whole = 0;
  for (const char c : digits) whole = whole * 10 + (c - '0');
  Wide part = 0;
  Wide scale = 1;
  for (const char c : fraction) {
    part = part * 10 + (c - '0');
    scale *= 10;
  }
  if (part * factor % scale != 0) return InvalidInput("is no whole number of the smallest unit");
  const Wide product = whole * factor + part * factor / scale;
  if (product > kLargest) return InvalidInput("is out of range");
  return static_cast<std::int64_t>(product);
}

struct Quantity {
  std::string_view digits;
  std::string_view fraction;
  std::string_view unit;
};

Quantity SplitQuantity(std::string_view text) {
  std::size_t end = 0;
  while (end < text.size() && IsDigit(text[end])) ++end;
  Quantity quantity{.digits = text.substr(0, end), .fraction = {}, .unit = {}};
  if (end + 1 < text.size() && text[end] == '.' && IsDigit(text[end + 1])) {
    const std::size_t start = ++end;
    while (end < text.size() && IsDigit(text[end])) ++end;
    quantity.fraction = text.substr(start, end - start);
  }
  while (end < text.size() && text[end] == ' ') ++end;
  quantity.unit = text.substr(end);
  return quantity;
}

std::string FormatExact(std::int64_t value, std::span<const Unit> units, std::string_view base_unit) {
  for (const Unit& unit : units) {
    if (value >= unit.factor && value % unit.factor == 0) return fmt::format("{}{}", value / unit.factor, unit.name);
  }
  return fmt::format("{}{}", value, base_unit);
}

}  // namespace

Result<std::int64_t> ParseByteSize(std::string_view text) {
  const Quantity quantity = SplitQuantity(text);
  if (quantity.digits.empty()) return InvalidInput("is no size");
  if (quantity.unit.empty() || quantity.unit == "B") return ExactProduct(quantity.digits, quantity.fraction, 1);
  if (quantity.unit == "KB") return ExactProduct(quantity.digits, quantity.fraction, 1'000);
  for (const Unit& unit : kSizeUnits) {
    if (quantity.unit == unit.name) return ExactProduct(quantity.digits, quantity.fraction, unit.factor);
  }
  return InvalidInput("has an unknown unit; units of size are B, kB, MB, GB, TB, KiB, MiB, GiB, TiB");
}

Result<std::int64_t> ParseDurationMs(std::string_view text) {
  const Quantity quantity = SplitQuantity(text);
  if (quantity.digits.empty()) return InvalidInput("is no duration");
  if (quantity.unit.empty()) {
    if (quantity.digits == "0" && quantity.fraction.empty()) return std::int64_t{0};
    return InvalidInput("has no unit; units of time are ms, s, m, h, d");
  }
  for (const Unit& unit : kDurationUnits) {
    if (quantity.unit == unit.name) return ExactProduct(quantity.digits, quantity.fraction, unit.factor);
  }
  return InvalidInput("has an unknown unit; units of time are ms, s, m, h, d");
}

std::string FormatByteSizeExact(std::int64_t bytes) { return FormatExact(bytes, kSizeUnits, ""); }

std::string FormatDurationExact(std::int64_t milliseconds) {
  if (milliseconds == 0) return "0s";
  return FormatExact(milliseconds, kDurationUnits, "ms");
}

}  // namespace draftmill

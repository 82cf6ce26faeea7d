#include "pipeline/progress/format_units.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace draftmill {

std::string FormatBytes(std::int64_t bytes) {
  static constexpr std::array<const char*, 6> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (std::abs(value) >= 1024.0 && unit + 1 < kUnits.size()) {
    value /= 1024.0;
    ++unit;
  }
  if (unit == 0) return fmt::format("{} B", bytes);
  return fmt::format("{:.2f} {}", value, kUnits[unit]);
}

std::string FormatSeconds(double seconds) {
  if (seconds < 60) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{} m {:02d} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02d} m", whole / 3600, whole / 60 % 60);
}

std::string FormatCount(std::int64_t count) {
  std::string digits = std::to_string(count);
  const std::size_t first = count < 0 ? 1 : 0;
  for (std::size_t i = digits.size(); i > first + 3;) {
    i -= 3;
    digits.insert(i, ",");
  }
  return digits;
}

std::string FormatRate(double per_second) {
  static constexpr std::array<const char*, 4> kUnits = {"", " k", " M", " G"};
  std::size_t unit = 0;
  // 999.95 k would print as "1000 k".
  while (per_second >= 999.5 && unit + 1 < kUnits.size()) {
    per_second /= 1000.0;
    ++unit;
  }
  int decimals = 2;
  if (per_second >= 9.995) decimals = 1;
  if (per_second >= 99.95 || (unit == 0 && per_second == std::floor(per_second))) decimals = 0;
  return fmt::format("{:.{}f}{}", per_second, decimals, kUnits[unit]);
}

}  // namespace draftmill

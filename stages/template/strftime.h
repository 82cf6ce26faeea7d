// strftime as Python's datetime.strftime writes it in the C locale, for a fixed moment.
// Pure functions, safe from any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace draftmill::jinja {

/// A moment without a time zone.
struct DateTime {
  int year = 2025;
  int month = 1;  ///< 1..12
  int day = 1;    ///< 1..31
  int hour = 0;
  int minute = 0;
  int second = 0;
};

/// Reads "2025-03-09" or "2025-03-09T07:05:03".
Result<DateTime> ParseDateTime(std::string_view text);

/// Formats a moment. A conversion that is not known is refused by name.
Result<std::string> FormatDateTime(const DateTime& moment, std::string_view format);

}  // namespace draftmill::jinja

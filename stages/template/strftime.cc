#include "stages/template/strftime.h"

#include <array>
#include <charconv>

namespace draftmill::jinja {
namespace {

constexpr std::array<std::string_view, 7> kDays = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                   "Thursday", "Friday", "Saturday"};
constexpr std::array<std::string_view, 12> kMonths = {"January",   "February", "March",    "April",
                                                      "May",       "June",     "July",     "August",
                                                      "September", "October",  "November", "December"};
constexpr std::array<int, 12> kDaysBefore = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};

bool IsLeap(int year) { return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0; }

int DayOfYear(const DateTime& t) {
  return kDaysBefore[static_cast<std::size_t>(t.month - 1)] + t.day + (t.month > 2 && IsLeap(t.year) ? 1 : 0);
}

/// 0 is Sunday.
int Weekday(const DateTime& t) {
  const int before = t.year - 1;
  const int days = before * 365 + before / 4 - before / 100 + before / 400 + DayOfYear(t);
  return days % 7;
}

int DaysOfMonth(int year, int month) {
  if (month == 2) return IsLeap(year) ? 29 : 28;
  return month == 4 || month == 6 || month == 9 || month == 11 ? 30 : 31;
}

/// A number of at least `width` characters; flag '-' takes no padding, '_' spaces, '0' zeros.
std::string Number(int value, std::size_t width, char padding, char flag) {
  std::string digits = std::to_string(value);
  if (flag == '-') return digits;
  if (flag == '_') padding = ' ';
  if (flag == '0') padding = '0';
  if (digits.size() < width) digits.insert(0, width - digits.size(), padding);
  return digits;
}

/// Reads exactly `digits` digits and moves `text` past them.
bool TakeNumber(std::string_view& text, std::size_t digits, int& out) {
  if (text.size() < digits || text.substr(0, digits).find_first_not_of("0123456789") != std::string_view::npos)
    return false;
  std::from_chars(text.data(), text.data() + digits, out);
  text.remove_prefix(digits);
  return true;
}

bool TakeByte(std::string_view& text, std::string_view accepted) {
  if (text.empty() || accepted.find(text.front()) == std::string_view::npos) return false;
  text.remove_prefix(1);
  return true;
}

bool ReadDateTime(std::string_view text, DateTime& t) {
  if (!TakeNumber(text, 4, t.year) || !TakeByte(text, "-") || !TakeNumber(text, 2, t.month) || !TakeByte(text, "-") ||
      !TakeNumber(text, 2, t.day)) {
    return false;
  }
  if (!text.empty() && (!TakeByte(text, "T ") || !TakeNumber(text, 2, t.hour) || !TakeByte(text, ":") ||
                        !TakeNumber(text, 2, t.minute) || !TakeByte(text, ":") || !TakeNumber(text, 2, t.second))) {
    return false;
  }
  return text.empty() && t.year >= 1 && t.month >= 1 && t.month <= 12 && t.day >= 1 &&
         t.day <= DaysOfMonth(t.year, t.month) && t.hour <= 23 && t.minute <= 59 && t.second <= 59;
}

int TwelveHour(int hour) { return hour % 12 == 0 ? 12 : hour % 12; }

/// Appends one conversion; false where it is not known.
bool AppendConversion(const DateTime& t, char conversion, char flag, std::string& out) {
  const auto month = static_cast<std::size_t>(t.month - 1);
  const auto weekday = static_cast<std::size_t>(Weekday(t));
  switch (conversion) {
    case 'Y': out += Number(t.year, 1, '0', flag); return true;
    case 'y': out += Number(t.year % 100, 2, '0', flag); return true;
    case 'm': out += Number(t.month, 2, '0', flag); return true;
    case 'd': out += Number(t.day, 2, '0', flag); return true;
    case 'e': out += Number(t.day, 2, ' ', flag); return true;
    case 'H': out += Number(t.hour, 2, '0', flag); return true;
    case 'I': out += Number(TwelveHour(t.hour), 2, '0', flag); return true;
    case 'M': out += Number(t.minute, 2, '0', flag); return true;
    case 'S': out += Number(t.second, 2, '0', flag); return true;
    case 'j': out += Number(DayOfYear(t), 3, '0', flag); return true;
    case 'w': out += Number(Weekday(t), 1, '0', flag); return true;
    case 'u': out += Number(Weekday(t) == 0 ? 7 : Weekday(t), 1, '0', flag); return true;
    case 'f': out += "000000"; return flag == '\0';
    case 'p': out += t.hour < 12 ? "AM" : "PM"; return true;
    case 'B': out += kMonths[month]; return true;
    case 'b':
    case 'h': out += kMonths[month].substr(0, 3); return true;
    case 'A': out += kDays[weekday]; return true;
    case 'a': out += kDays[weekday].substr(0, 3); return true;
    case 'Z':
    case 'z': return true;  // a moment without a time zone has no name for it
    case 'n': out += '\n'; return true;
    case 't': out += '\t'; return true;
    case '%': out += '%'; return true;
    default: return false;
  }
}

/// The conversions that stand for several others.
std::string_view Expansion(char conversion) {
  switch (conversion) {
    case 'D':
    case 'x': return "%m/%d/%y";
    case 'F': return "%Y-%m-%d";
    case 'T':
    case 'X': return "%H:%M:%S";
    case 'R': return "%H:%M";
    case 'r': return "%I:%M:%S %p";
    case 'c': return "%a %b %e %H:%M:%S %Y";
    default: return {};
  }
}

}  // namespace

Result<DateTime> ParseDateTime(std::string_view text) {
  DateTime moment;
  if (ReadDateTime(text, moment)) return moment;
  return InvalidConfig("'" + std::string(text) + "' is no moment; write it as 2025-03-09T07:05:03");
}

Result<std::string> FormatDateTime(const DateTime& moment, std::string_view format) {
  std::string out;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out.push_back(format[i]);
      continue;
    }
    char flag = '\0';
    if (std::string_view("-_0").find(format[i + 1]) != std::string_view::npos && i + 2 < format.size())
      flag = format[++i];
    const char conversion = format[++i];
    if (const std::string_view expansion = Expansion(conversion); !expansion.empty() && flag == '\0') {
      DRAFTMILL_ASSIGN_OR_RETURN(const std::string expanded, FormatDateTime(moment, expansion));
      out += expanded;
    } else if (!AppendConversion(moment, conversion, flag, out)) {
      return Unsupported("strftime_now: the conversion %" + std::string(1, conversion) + " is not supported");
    }
  }
  return out;
}

}  // namespace draftmill::jinja

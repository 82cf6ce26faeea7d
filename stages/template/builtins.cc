#include "stages/template/builtins.h"

#include <algorithm>
#include <array>
#include <utility>

namespace draftmill::jinja {
namespace {

template <typename Id>
using Entry = std::pair<std::string_view, Id>;

constexpr std::array kFilters = std::to_array<Entry<FilterId>>({
    {"abs", FilterId::kAbs},
    {"batch", FilterId::kBatch},
    {"capitalize", FilterId::kCapitalize},
    {"center", FilterId::kCenter},
    {"count", FilterId::kLength},
    {"d", FilterId::kDefault},
    {"default", FilterId::kDefault},
    {"dictsort", FilterId::kDictsort},
    {"e", FilterId::kEscape},
    {"escape", FilterId::kEscape},
    {"first", FilterId::kFirst},
    {"float", FilterId::kFloat},
    {"forceescape", FilterId::kForceescape},
    {"format", FilterId::kFormat},
    {"groupby", FilterId::kGroupby},
    {"indent", FilterId::kIndent},
    {"int", FilterId::kInt},
    {"items", FilterId::kItems},
    {"join", FilterId::kJoin},
    {"last", FilterId::kLast},
    {"length", FilterId::kLength},
    {"list", FilterId::kList},
    {"lower", FilterId::kLower},
    {"map", FilterId::kMap},
    {"max", FilterId::kMax},
    {"min", FilterId::kMin},
    {"reject", FilterId::kReject},
    {"rejectattr", FilterId::kRejectattr},
    {"replace", FilterId::kReplace},
    {"reverse", FilterId::kReverse},
    {"round", FilterId::kRound},
    {"safe", FilterId::kSafe},
    {"select", FilterId::kSelect},
    {"selectattr", FilterId::kSelectattr},
    {"slice", FilterId::kSlice},
    {"sort", FilterId::kSort},
    {"string", FilterId::kString},
    {"sum", FilterId::kSum},
    {"title", FilterId::kTitle},
    {"tojson", FilterId::kTojson},
    {"trim", FilterId::kTrim},
    {"truncate", FilterId::kTruncate},
    {"unique", FilterId::kUnique},
    {"upper", FilterId::kUpper},
    {"wordcount", FilterId::kWordcount},
});

constexpr std::array kTests = std::to_array<Entry<TestId>>({
    {"!=", TestId::kNe},
    {"<", TestId::kLt},
    {"<=", TestId::kLe},
    {"==", TestId::kEq},
    {">", TestId::kGt},
    {">=", TestId::kGe},
    {"boolean", TestId::kBoolean},
    {"callable", TestId::kCallable},
    {"defined", TestId::kDefined},
    {"divisibleby", TestId::kDivisibleby},
    {"eq", TestId::kEq},
    {"equalto", TestId::kEq},
    {"even", TestId::kEven},
    {"false", TestId::kFalse},
    {"float", TestId::kFloat},
    {"ge", TestId::kGe},
    {"greaterthan", TestId::kGt},
    {"gt", TestId::kGt},
    {"in", TestId::kIn},
    {"integer", TestId::kInteger},
    {"iterable", TestId::kIterable},
    {"le", TestId::kLe},
    {"lessthan", TestId::kLt},
    {"lower", TestId::kLower},
    {"lt", TestId::kLt},
    {"mapping", TestId::kMapping},
    {"ne", TestId::kNe},
    {"none", TestId::kNull},
    {"number", TestId::kNumber},
    {"odd", TestId::kOdd},
    {"sameas", TestId::kSameas},
    {"sequence", TestId::kSequence},
    {"string", TestId::kString},
    {"true", TestId::kTrue},
    {"undefined", TestId::kUndefined},
    {"upper", TestId::kUpper},
});

constexpr std::array kMethods = std::to_array<Entry<MethodId>>({
    {"append", MethodId::kAppend},
    {"capitalize", MethodId::kCapitalize},
    {"center", MethodId::kCenter},
    {"changed", MethodId::kChanged},
    {"clear", MethodId::kClear},
    {"copy", MethodId::kCopy},
    {"count", MethodId::kCount},
    {"cycle", MethodId::kCycle},
    {"endswith", MethodId::kEndswith},
    {"extend", MethodId::kExtend},
    {"find", MethodId::kFind},
    {"format", MethodId::kFormat},
    {"get", MethodId::kGet},
    {"index", MethodId::kIndex},
    {"insert", MethodId::kInsert},
    {"isalnum", MethodId::kIsalnum},
    {"isalpha", MethodId::kIsalpha},
    {"isascii", MethodId::kIsascii},
    {"isdecimal", MethodId::kIsdecimal},
    {"isdigit", MethodId::kIsdigit},
    {"islower", MethodId::kIslower},
    {"isspace", MethodId::kIsspace},
    {"isupper", MethodId::kIsupper},
    {"items", MethodId::kItems},
    {"join", MethodId::kJoin},
    {"keys", MethodId::kKeys},
    {"ljust", MethodId::kLjust},
    {"lower", MethodId::kLower},
    {"lstrip", MethodId::kLstrip},
    {"partition", MethodId::kPartition},
    {"pop", MethodId::kPop},
    {"popitem", MethodId::kPopitem},
    {"remove", MethodId::kRemove},
    {"removeprefix", MethodId::kRemoveprefix},
    {"removesuffix", MethodId::kRemovesuffix},
    {"replace", MethodId::kReplace},
    {"reverse", MethodId::kReverse},
    {"rfind", MethodId::kRfind},
    {"rindex", MethodId::kRindex},
    {"rjust", MethodId::kRjust},
    {"rpartition", MethodId::kRpartition},
    {"rsplit", MethodId::kRsplit},
    {"rstrip", MethodId::kRstrip},
    {"setdefault", MethodId::kSetdefault},
    {"sort", MethodId::kSort},
    {"split", MethodId::kSplit},
    {"splitlines", MethodId::kSplitlines},
    {"startswith", MethodId::kStartswith},
    {"strip", MethodId::kStrip},
    {"title", MethodId::kTitle},
    {"update", MethodId::kUpdate},
    {"upper", MethodId::kUpper},
    {"values", MethodId::kValues},
    {"zfill", MethodId::kZfill},
});

/// Those of jinja2 3.1 that the engine does not have.
constexpr std::array kOtherFilters = std::to_array<std::string_view>({
    "attr",
    "filesizeformat",
    "pprint",
    "random",
    "striptags",
    "urlencode",
    "urlize",
    "wordwrap",
    "xmlattr",
});
constexpr std::array kOtherTests = std::to_array<std::string_view>({"escaped", "filter", "test"});

template <typename Id, std::size_t N>
Id Find(const std::array<Entry<Id>, N>& table, std::string_view name) {
  const auto found = std::lower_bound(table.begin(), table.end(), name,
                                      [](const Entry<Id>& entry, std::string_view key) { return entry.first < key; });
  return found != table.end() && found->first == name ? found->second : Id::kNone;
}

constexpr bool Between(MethodId method, MethodId first, MethodId last) { return method >= first && method <= last; }

}  // namespace

FilterId FindFilter(std::string_view name) { return Find(kFilters, name); }
TestId FindTest(std::string_view name) { return Find(kTests, name); }
MethodId FindMethod(std::string_view name) { return Find(kMethods, name); }

bool JinjaHasFilter(std::string_view name) {
  return FindFilter(name) != FilterId::kNone ||
         std::find(kOtherFilters.begin(), kOtherFilters.end(), name) != kOtherFilters.end();
}

bool JinjaHasTest(std::string_view name) {
  return FindTest(name) != TestId::kNone ||
         std::find(kOtherTests.begin(), kOtherTests.end(), name) != kOtherTests.end();
}

bool TextHasMethod(MethodId method) { return Between(method, MethodId::kCapitalize, MethodId::kUpper); }

bool ListHasMethod(MethodId method) {
  return ChangesList(method) || method == MethodId::kCopy || method == MethodId::kCount || method == MethodId::kIndex;
}

bool DictHasMethod(MethodId method) {
  return ChangesDict(method) || Between(method, MethodId::kCopy, MethodId::kValues);
}

bool ChangesList(MethodId method) {
  switch (method) {
    case MethodId::kAppend:
    case MethodId::kClear:
    case MethodId::kExtend:
    case MethodId::kInsert:
    case MethodId::kPop:
    case MethodId::kRemove:
    case MethodId::kReverse:
    case MethodId::kSort: return true;
    default: return false;
  }
}

bool ChangesDict(MethodId method) {
  switch (method) {
    case MethodId::kClear:
    case MethodId::kPop:
    case MethodId::kPopitem:
    case MethodId::kSetdefault:
    case MethodId::kUpdate: return true;
    default: return false;
  }
}

}  // namespace draftmill::jinja

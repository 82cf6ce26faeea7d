// The filters, tests and methods that the engine has, by name, and the ones it refuses by name when a template is
// loaded. Pure functions, safe from any thread.
#pragma once

#include <cstdint>
#include <string_view>

namespace draftmill::jinja {

enum class FilterId : std::uint8_t {
  kNone,
  kAbs,
  kBatch,
  kCapitalize,
  kCenter,
  kDefault,
  kDictsort,
  kEscape,
  kFirst,
  kFloat,
  kForceescape,
  kFormat,
  kGroupby,
  kIndent,
  kInt,
  kItems,
  kJoin,
  kLast,
  kLength,
  kList,
  kLower,
  kMap,
  kMax,
  kMin,
  kReject,
  kRejectattr,
  kReplace,
  kReverse,
  kRound,
  kSafe,
  kSelect,
  kSelectattr,
  kSlice,
  kSort,
  kString,
  kSum,
  kTitle,
  kTojson,
  kTrim,
  kTruncate,
  kUnique,
  kUpper,
  kWordcount
};

enum class TestId : std::uint8_t {
  kNone,
  kBoolean,
  kCallable,
  kDefined,
  kDivisibleby,
  kEq,
  kEven,
  kFalse,
  kFloat,
  kGe,
  kGt,
  kIn,
  kInteger,
  kIterable,
  kLe,
  kLower,
  kLt,
  kMapping,
  kNe,
  kNull,
  kNumber,
  kOdd,
  kSameas,
  kSequence,
  kString,
  kTrue,
  kUndefined,
  kUpper
};

enum class MethodId : std::uint8_t {
  kNone,
  // of text
  kCapitalize,
  kCenter,
  kCount,
  kEndswith,
  kFind,
  kFormat,
  kIndex,
  kIsalnum,
  kIsalpha,
  kIsascii,
  kIsdecimal,
  kIsdigit,
  kIslower,
  kIsspace,
  kIsupper,
  kJoin,
  kLjust,
  kLower,
  kLstrip,
  kPartition,
  kRemoveprefix,
  kRemovesuffix,
  kReplace,
  kRfind,
  kRindex,
  kRjust,
  kRpartition,
  kRsplit,
  kRstrip,
  kSplit,
  kSplitlines,
  kStartswith,
  kStrip,
  kTitle,
  kZfill,
  kUpper,
  // of dicts
  kCopy,
  kGet,
  kItems,
  kKeys,
  kValues,
  // that change a list or dict, which the sandbox forbids
  kAppend,
  kClear,
  kExtend,
  kInsert,
  kPop,
  kPopitem,
  kRemove,
  kReverse,
  kSetdefault,
  kSort,
  kUpdate,
  // of loop
  kChanged,
  kCycle
};

/// kNone where the engine does not have it.
FilterId FindFilter(std::string_view name);
TestId FindTest(std::string_view name);
MethodId FindMethod(std::string_view name);
/// Whether jinja2 itself knows a filter or test of that name.
bool JinjaHasFilter(std::string_view name);
bool JinjaHasTest(std::string_view name);

/// Whether Python's str, list or dict has the method: what `x.name` gives where x has no such key.
bool TextHasMethod(MethodId method);
bool ListHasMethod(MethodId method);
bool DictHasMethod(MethodId method);
/// Whether the sandbox forbids the method on a list or on a dict.
bool ChangesList(MethodId method);
bool ChangesDict(MethodId method);

}  // namespace draftmill::jinja

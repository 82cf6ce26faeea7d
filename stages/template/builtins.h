// The filters, tests and methods that the engine has, by name, and the ones it refuses by name when a template is
// loaded. Pure functions, safe from any thread.
#pragma once

#include <cstdint>
#include <string_view>

namespace draftmill::jinja {

enum class FilterId : std::uint8_t {
  kNone,
  kAbs,
  kCapitalize,
  kDefault,
  kDictsort,
  kFirst,
  kFloat,
  kIndent,
  kInt,
  kItems,
  kJoin,
  kLast,
  kLength,
  kList,
  kLower,
  kMap,
  kReject,
  kRejectattr,
  kReplace,
  kReverse,
  kSafe,
  kSelect,
  kSelectattr,
  kSort,
  kString,
  kTitle,
  kTojson,
  kTrim,
  kUnique,
  kUpper
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
  kCount,
  kEndswith,
  kFind,
  kIndex,
  kIsalnum,
  kIsalpha,
  kIsdigit,
  kIslower,
  kIsspace,
  kIsupper,
  kJoin,
  kLower,
  kLstrip,
  kPartition,
  kRemoveprefix,
  kRemovesuffix,
  kReplace,
  kRfind,
  kRpartition,
  kRsplit,
  kRstrip,
  kSplit,
  kSplitlines,
  kStartswith,
  kStrip,
  kTitle,
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

// The filters and tests of jinja2 that templates use, and transformers' own tojson.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "stages/template/evaluator.h"
#include "stages/template/python_format.h"
#include "stages/template/unicode_text.h"

namespace draftmill::jinja {
namespace {

/// The white space that int() and float() pass over.
std::string_view Trimmed(std::string_view text) {
  text.remove_prefix(LeadingSpaceBytes(text));
  text.remove_suffix(TrailingSpaceBytes(text));
  return text;
}

std::optional<std::int64_t> ParseInteger(std::string_view text) {
  text = Trimmed(text);
  const bool plus = text.starts_with('+');
  if (plus) text.remove_prefix(1);
  if (plus && text.starts_with('-')) return std::nullopt;
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<double> ParseFloat(std::string_view text) {
  text = Trimmed(text);
  const bool plus = text.starts_with('+');
  if (plus) text.remove_prefix(1);
  if (plus && text.starts_with('-')) return std::nullopt;
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

Value Truncate(double number, Value fallback) {
  if (!(std::fabs(number) < 9.2e18)) return fallback;
  return Value::Integer(static_cast<std::int64_t>(number));
}

CompareOperator OperatorOf(TestId test) {
  switch (test) {
    case TestId::kEq: return CompareOperator::kEqual;
    case TestId::kNe: return CompareOperator::kNotEqual;
    case TestId::kLt: return CompareOperator::kLess;
    case TestId::kLe: return CompareOperator::kLessEqual;
    case TestId::kGt: return CompareOperator::kGreater;
    case TestId::kGe: return CompareOperator::kGreaterEqual;
    default: return CompareOperator::kIn;
  }
}

/// Filters that may see text marked safe without escaping anything in it.
bool KeepsMarkupHarmless(FilterId filter) {
  switch (filter) {
    case FilterId::kSafe:
    case FilterId::kEscape:
    case FilterId::kString:
    case FilterId::kTojson:
    case FilterId::kLength:
    case FilterId::kDefault: return true;
    default: return false;
  }
}

}  // namespace

std::span<Value> Evaluator::Items(const Value& value) {
  const auto items = Iterate(arena_, value);
  if (!items) {
    FailType("cannot iterate over", value);
    return {};
  }
  Charge(items->size() * 16);
  return *items;
}

Value Evaluator::ApplyFilter(FilterId filter, const Value& input, const Arguments& arguments) {
  if (input.is_markup() && !KeepsMarkupHarmless(filter)) {
    return Fail("the filter '" + std::string(arguments.callee) + "' on text marked safe is not supported");
  }
  switch (filter) {
    case FilterId::kTojson: return FilterTojson(input, arguments);
    case FilterId::kDefault: return FilterDefault(input, arguments);
    case FilterId::kJoin: return FilterJoin(input, arguments);
    case FilterId::kIndent: return FilterIndent(input, arguments);
    case FilterId::kReplace: return FilterReplace(input, arguments);
    case FilterId::kMap: return FilterMap(input, arguments);
    case FilterId::kSelect:
    case FilterId::kReject:
    case FilterId::kSelectattr:
    case FilterId::kRejectattr: return FilterSelect(filter, input, arguments);
    case FilterId::kDictsort: return FilterDictsort(input, arguments);
    case FilterId::kSort: return FilterSort(input, arguments);
    case FilterId::kUnique: return FilterUnique(input, arguments);
    case FilterId::kInt: return FilterInt(input, arguments);
    case FilterId::kFloat: return FilterFloat(input, arguments);
    case FilterId::kTrim: return FilterTrim(input, arguments);
    case FilterId::kMin:
    case FilterId::kMax: return FilterMinMax(filter, input, arguments);
    case FilterId::kSum: return FilterSum(input, arguments);
    case FilterId::kRound: return FilterRound(input, arguments);
    case FilterId::kBatch: return FilterBatch(input, arguments);
    case FilterId::kSlice: return FilterSlice(input, arguments);
    case FilterId::kGroupby: return FilterGroupby(input, arguments);
    case FilterId::kCenter: return FilterCenter(input, arguments);
    case FilterId::kFormat: return FilterFormat(input, arguments);
    case FilterId::kTruncate: return FilterTruncate(input, arguments);
    default: break;
  }
  if (!arguments.positional.empty() || !arguments.named.empty()) {
    return Fail("the filter '" + std::string(arguments.callee) + "' takes no arguments");
  }
  switch (filter) {
    case FilterId::kLength: return FilterLength(input);
    case FilterId::kString: return ToText(input);
    case FilterId::kSafe: return failed() ? Value::None() : ToText(input).WithMarkup();
    case FilterId::kUpper:
    case FilterId::kLower:
    case FilterId::kCapitalize: {
      const Value text = ToText(input);
      if (failed()) return Value::None();
      return ChangeCase(text, filter == FilterId::kUpper   ? MethodId::kUpper
                              : filter == FilterId::kLower ? MethodId::kLower
                                                           : MethodId::kCapitalize);
    }
    case FilterId::kList: return MakeList(arena_, Items(input));
    case FilterId::kItems:
      if (input.is_undefined()) return MakeList(arena_, {}, ListKind::kGenerator);
      if (!input.is_dict()) return Fail("Can only get item pairs from a mapping.");
      return MakeList(arena_, DictView(*input.dict(), MethodId::kItems).list()->items, ListKind::kGenerator);
    case FilterId::kFirst: return FilterFirst(input);
    case FilterId::kLast: return FilterLast(input);
    case FilterId::kReverse: return FilterReverse(input);
    case FilterId::kAbs: return FilterAbs(input);
    case FilterId::kTitle: return FilterTitle(input);
    case FilterId::kWordcount: return FilterWordcount(input);
    case FilterId::kEscape:
    case FilterId::kForceescape: {
      if (input.is_markup()) return input;
      const Value text = ToText(input);
      return failed() ? Value::None() : EscapeHtml(text).WithMarkup();
    }
    default: return Fail("the filter '" + std::string(arguments.callee) + "' is not supported");
  }
}

Value Evaluator::FilterLength(const Value& input) {
  switch (input.kind()) {
    case ValueKind::kUndefined: return Value::Integer(0);
    case ValueKind::kText: return Value::Integer(static_cast<std::int64_t>(CountCharacters(ReadBytes(input))));
    case ValueKind::kDict: return Value::Integer(static_cast<std::int64_t>(input.dict()->entries.size()));
    case ValueKind::kLoop: return Value::Integer(static_cast<std::int64_t>(LoopLength(*input.loop())));
    case ValueKind::kList:
      if (input.list()->kind != ListKind::kGenerator)
        return Value::Integer(static_cast<std::int64_t>(input.list()->items.size()));
      return Fail("object of type 'generator' has no len()");
    default: return FailType("no len() of an object of type", input);
  }
}

Value Evaluator::FilterDefault(const Value& input, const Arguments& arguments) {
  static constexpr std::string_view kNames[] = {"default_value", "boolean"};
  const Value* given[2] = {nullptr, nullptr};
  if (!Bind(arguments, kNames, given)) return Value::None();
  const bool by_truth = given[1] != nullptr && Truth(*given[1]);
  if (!input.is_undefined() && !(by_truth && !Truth(input))) return input;
  return given[0] != nullptr ? *given[0] : ConstantText("");
}

Value Evaluator::FilterTojson(const Value& input, const Arguments& arguments) {
  static constexpr std::string_view kNames[] = {"ensure_ascii", "indent", "separators", "sort_keys"};
  const Value* given[4] = {nullptr, nullptr, nullptr, nullptr};
  if (!Bind(arguments, kNames, given)) return Value::None();
  JsonOptions options;
  options.ensure_ascii = given[0] != nullptr && Truth(*given[0]);
  options.sort_keys = given[3] != nullptr && Truth(*given[3]);
  if (given[1] != nullptr && !given[1]->is_none()) {
    options.has_indent = true;
    options.item_separator = ",";
    if (given[1]->is_text()) {
      options.indent = ReadBytes(*given[1]);
    } else if (given[1]->is_integral() && given[1]->integer() <= 64) {
      options.indent.assign(static_cast<std::size_t>(std::max<std::int64_t>(0, given[1]->integer())), ' ');
    } else {
      return Fail("tojson takes an indent of at most 64");
    }
    if (options.indent.size() > 256) return Fail("tojson takes an indent of at most 256 bytes");
  }
  if (given[2] != nullptr && !given[2]->is_none()) {
    const bool is_pair = given[2]->is_sequence() && given[2]->list()->items.size() == 2 &&
                         given[2]->list()->items[0].is_text() && given[2]->list()->items[1].is_text();
    if (!is_pair) return Fail("tojson takes separators as two texts");
    options.item_separator = ReadBytes(given[2]->list()->items[0]);
    options.key_separator = ReadBytes(given[2]->list()->items[1]);
  }
  std::string reason;
  builder_.Clear();
  if (!AppendJson(arena_, input, options, Literal(), builder_, reason)) return Fail(reason);
  Charge(builder_.size());
  if (!FitsText(builder_.size())) return Value::None();
  return builder_.Finish(arena_);
}

Value Evaluator::FilterJoin(const Value& input, const Arguments& arguments) {
  static constexpr std::string_view kNames[] = {"d", "attribute"};
  const Value* given[2] = {nullptr, nullptr};
  if (!Bind(arguments, kNames, given)) return Value::None();
  const Value separator = given[0] != nullptr ? ToText(*given[0]) : ConstantText("");
  const std::span<Value> items = Items(input);
  const std::span<Value> texts = arena_.MakeArray<Value>(items.size());
  for (std::size_t i = 0; i < items.size() && !failed(); ++i) {
    texts[i] = ToText(given[1] != nullptr && !given[1]->is_none() ? AttributePath(items[i], *given[1]) : items[i]);
  }
  return failed() ? Value::None() : JoinWith(separator, texts);
}

Value Evaluator::AttributePath(const Value& item, const Value& path) {
  if (path.is_integral()) return GetItem(item, path, nullptr);
  const Value text = ToText(path);
  if (failed()) return Value::None();
  const FlatText flat = Read(text);
  Value value = item;
  for (std::size_t begin = 0; begin <= flat.bytes.size() && !failed();) {
    const std::size_t end = std::min(flat.bytes.find('.', begin), flat.bytes.size());
    const std::string_view part = flat.bytes.substr(begin, end - begin);
    const bool is_number = !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
    const auto index = is_number ? ParseInteger(part) : std::nullopt;
    value = GetItem(value, index ? Value::Integer(*index) : TextOf(arena_, part, Literal()), nullptr);
    begin = end + 1;
  }
  return value;
}

Value Evaluator::FilterMap(const Value& input, const Arguments& arguments) {
  const std::span<Value> items = Truth(input) ? Items(input) : std::span<Value>();  // as jinja2: None gives nothing
  const std::span<Value> mapped = arena_.MakeArray<Value>(items.size());
  if (arguments.positional.empty()) {
    static constexpr std::string_view kNames[] = {"attribute", "default"};
    const Value* given[2] = {nullptr, nullptr};
    if (!Bind(arguments, kNames, given)) return Value::None();
    if (given[0] == nullptr) return Fail("map requires a filter argument");
    for (std::size_t i = 0; i < items.size() && Step(); ++i) {
      mapped[i] = AttributePath(items[i], *given[0]);
      if (mapped[i].is_undefined() && given[1] != nullptr) mapped[i] = *given[1];
    }
  } else {
    if (!arguments.positional[0].is_text()) return Fail("map takes the name of a filter");
    const std::string_view name = ReadBytes(arguments.positional[0]);
    const FilterId filter = FindFilter(name);
    if (filter == FilterId::kNone) return Fail("No filter named '" + std::string(name) + "'.");
    const Arguments rest{arguments.positional.subspan(1), arguments.named, name};
    for (std::size_t i = 0; i < items.size() && Step(); ++i) mapped[i] = ApplyFilter(filter, items[i], rest);
  }
  return failed() ? Value::None() : MakeList(arena_, mapped, ListKind::kGenerator);
}

Value Evaluator::FilterSelect(FilterId filter, const Value& input, const Arguments& arguments) {
  const bool by_attribute = filter == FilterId::kSelectattr || filter == FilterId::kRejectattr;
  const bool rejects = filter == FilterId::kReject || filter == FilterId::kRejectattr;
  std::span<const Value> given = arguments.positional;
  if (!arguments.named.empty()) return Fail(std::string(arguments.callee) + " takes no named arguments");
  if (by_attribute && given.empty()) return Fail("Missing parameter for attribute name");
  const Value* path = by_attribute ? &given[0] : nullptr;
  if (by_attribute) given = given.subspan(1);
  TestId test = TestId::kNone;
  std::string_view name;
  if (!given.empty()) {
    if (!given[0].is_text()) return Fail(std::string(arguments.callee) + " takes the name of a test");
    name = ReadBytes(given[0]);
    test = FindTest(name);
    if (test == TestId::kNone) return Fail("No test named '" + std::string(name) + "'.");
    given = given.subspan(1);
  }
  std::vector<Value> selected;
  for (const Value& item : Truth(input) ? Items(input) : std::span<Value>()) {
    if (!Step()) return Value::None();
    const Value subject = path != nullptr ? AttributePath(item, *path) : item;
    if (failed()) return Value::None();
    const bool passes = test == TestId::kNone ? Truth(subject) : ApplyTest(test, subject, {given, {}, name});
    if (passes != rejects) selected.push_back(item);
  }
  return MakeList(arena_, selected, ListKind::kGenerator);
}

/// What sort, unique and dictsort compare: an attribute of the item, in lower case unless case counts.
Value Evaluator::SortKey(const Value& item, const Value* path, bool case_sensitive) {
  const Value key = path != nullptr && !path->is_none() ? AttributePath(item, *path) : item;
  return key.is_text() && !case_sensitive && !failed() ? ChangeCase(key, MethodId::kLower) : key;
}

/// The items in the order of their keys, equal ones in their old order, as Python's sort does it.
std::span<Value> Evaluator::SortBy(std::span<const Value> items, std::span<const Value> keys, bool reverse) {
  for (std::size_t i = 1; i < keys.size() && !failed(); ++i) {
    if (!Compare(arena_, keys[i - 1], keys[i])) {
      Fail(std::string("'<' not supported between '") + TypeName(keys[i]) + "' and '" + TypeName(keys[i - 1]) + "'");
    }
  }
  std::vector<std::size_t> order(items.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::int64_t comparisons = 0;
  if (!failed()) {
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      ++comparisons;
      const int compared = Compare(arena_, keys[a], keys[b]).value_or(0);
      return reverse ? compared > 0 : compared < 0;
    });
  }
  steps_ += comparisons;
  const std::span<Value> sorted = arena_.MakeArray<Value>(items.size());
  for (std::size_t i = 0; i < order.size(); ++i) sorted[i] = items[order[i]];
  return sorted;
}

Value Evaluator::FilterDictsort(const Value& input, const Arguments& arguments) {
  static constexpr std::string_view kNames[] = {"case_sensitive", "by", "reverse"};
  const Value* given[3] = {nullptr, nullptr, nullptr};
  if (!Bind(arguments, kNames, given)) return Value::None();
  if (!input.is_dict()) return FailType("dictsort takes a dict, not", input);
  const std::string_view by = given[1] == nullptr || !given[1]->is_text() ? "key" : ReadBytes(*given[1]);
  if (by != "key" && by != "value") return Fail("You can only sort by either \"key\" or \"value\"");
  const bool case_sensitive = given[0] != nullptr && Truth(*given[0]);
  const Dict& dict = *input.dict();
  const std::span<Value> keys = arena_.MakeArray<Value>(dict.entries.size());
  for (std::size_t i = 0; i < keys.size() && !failed(); ++i) {
    keys[i] = SortKey(by == "key" ? dict.entries[i].key : dict.entries[i].value, nullptr, case_sensitive);
  }
  const std::span<Value> pairs = DictView(dict, MethodId::kItems).list()->items;
  return MakeList(arena_, SortBy(pairs, keys, given[2] != nullptr && Truth(*given[2])));
}

/// The names between the commas of a text.
std::vector<Value> Evaluator::SplitNames(const Value& names) {
  const FlatText text = Read(names);
  std::vector<Value> parts;
  for (std::size_t begin = 0; begin <= text.bytes.size();) {
    const std::size_t end = std::min(text.bytes.find(',', begin), text.bytes.size());
    parts.push_back(SliceText(arena_, text, begin, end));
    begin = end + 1;
  }
  return parts;
}

Value Evaluator::FilterSort(const Value& input, const Arguments& arguments) {
  static constexpr std::string_view kNames[] = {"reverse", "case_sensitive", "attribute"};
  const Value* given[3] = {nullptr, nullptr, nullptr};
  if (!Bind(arguments, kNames, given)) return Value::None();
  std::vector<Value> paths;
  if (given[2] != nullptr && !given[2]->is_none()) {
    if (given[2]->is_text())
      paths = SplitNames(*given[2]);
    else
      paths = {*given[2]};
  }
  const std::span<Value> items = Items(input);
  const std::span<Value> keys = arena_.MakeArray<Value>(items.size());
  for (std::size_t i = 0; i < items.size() && Step(); ++i) {
    const bool case_sensitive = given[1] != nullptr && Truth(*given[1]);
    std::vector<Value> parts;
    for (const Value& path : paths) parts.push_back(SortKey(items[i], &path, case_sensitive));
    keys[i] = parts.empty() ? SortKey(items[i], nullptr, case_sensitive) : MakeList(arena_, parts);
  }
  return MakeList(arena_, SortBy(items, keys, given[0] != nullptr && Truth(*given[0])));
}

Value Evaluator::FilterUnique(const Value& input, const Arguments& arguments) {
  static constexpr std::string_view kNames[] = {"case_sensitive", "attribute"};
  const Value* given[2] = {nullptr, nullptr};
  if (!Bind(arguments, kNames, given)) return Value::None();
  std::vector<Value> kept;
  std::vector<Value> seen;
  for (const Value& item : Items(input)) {
    const Value key = SortKey(item, given[1], given[0] != nullptr && Truth(*given[0]));
    if (key.is_dict() || key.is_list_of(ListKind::kList)) return FailType("unhashable type", key);
    Charge(seen.size() * 16);
    if (!Step()) return Value::None();
    if (std::any_of(seen.begin(), seen.end(), [&](const Value& other) { return Equal(arena_, other, key); })) continue;
    seen.push_back(key);
    kept.push_back(item);
  }
  return MakeList(arena_, kept, ListKind::kGenerator);
}

Value Evaluator::FilterFirst(const Value& input) {
  if (input.is_list_of(ListKind::kGenerator)) {
    List& list = *input.list();
    if (list.position >= list.items.size()) return Value::Undefined(nullptr);
    return list.items[list.position++];
  }
  const std::span<Value> items = Items(input);
  return items.empty() ? Value::Undefined(nullptr) : items.front();
}

Value Evaluator::FilterLast(const Value& input) {
  if (input.is_list_of(ListKind::kGenerator)) return Fail("'generator' object is not reversible");
  const std::span<Value> items = Items(input);
  return items.empty() ? Value::Undefined(nullptr) : items.back();
}

Value Evaluator::FilterReverse(const Value& input) {
  const std::span<Value> items = Items(input);
  const std::span<Value> reversed = arena_.MakeArray<Value>(items.size());
  std::copy(items.rbegin(), items.rend(), reversed.begin());
  if (input.is_text()) return failed() ? Value::None() : JoinWith(ConstantText(""), reversed);
  return MakeList(arena_, reversed, ListKind::kGenerator);
}

Value Evaluator::FilterInt(const Value& input, const Arguments& arguments) {
  static constexpr std::string_view kNames[] = {"default", "base"};
  const Value* given[2] = {nullptr, nullptr};
  if (!Bind(arguments, kNames, given)) return Value::None();
  if (given[1] != nullptr && !(given[1]->is_integral() && given[1]->integer() == 10))
    return Fail("int in another base than 10 is not supported");
  const Value fallback = given[0] != nullptr ? *given[0] : Value::Integer(0);
  if (input.is_integral()) return Value::Integer(input.integer());
  if (input.is_big_integer()) return input;
  if (input.is_float()) return Truncate(input.number(), fallback);
  if (input.is_undefined()) return FailUndefined(input);
  if (!input.is_text()) return fallback;
  const std::string_view text = ReadBytes(input);
  if (const auto number = ParseInteger(text)) return Value::Integer(*number);
  if (const auto number = ParseFloat(text)) return Truncate(*number, fallback);
  return fallback;
}

Value Evaluator::FilterFloat(const Value& input, const Arguments& arguments) {
  static constexpr std::string_view kNames[] = {"default"};
  const Value* fallback = nullptr;
  if (!Bind(arguments, kNames, {&fallback, 1})) return Value::None();
  if (input.is_integral() || input.is_float()) return Value::Float(input.number());
  if (input.is_undefined()) return FailUndefined(input);
  if (input.is_text()) {
    if (const auto number = ParseFloat(ReadBytes(input))) return Value::Float(*number);
  }
  return fallback != nullptr ? *fallback : Value::Float(0);
}

Value Evaluator::FilterAbs(const Value& input) {
  if (input.is_float()) return Value::Float(std::fabs(input.number()));
  if (!input.is_integral()) return FailType("bad operand type for abs():", input);
  if (input.integer() >= 0) return Value::Integer(input.integer());
  std::int64_t result = 0;
  if (__builtin_sub_overflow(std::int64_t{0}, input.integer(), &result)) return Fail("an integer leaves 64 bits");
  return Value::Integer(result);
}

// ---- tests ----------------------------------------------------------------------------------------------------------

bool Evaluator::ApplyTest(TestId test, const Value& input, const Arguments& arguments) {
  const bool takes_one = (test >= TestId::kEq && test <= TestId::kEq) || test == TestId::kDivisibleby ||
                         test == TestId::kGe || test == TestId::kGt || test == TestId::kIn || test == TestId::kLe ||
                         test == TestId::kLt || test == TestId::kNe || test == TestId::kSameas;
  if (arguments.positional.size() != (takes_one ? 1U : 0U)) {
    Fail("the test '" + std::string(arguments.callee) + "' takes " + (takes_one ? "one argument" : "no arguments"));
    return false;
  }
  switch (test) {
    case TestId::kDefined: return !input.is_undefined();
    case TestId::kUndefined: return input.is_undefined();
    case TestId::kNull: return input.is_none();
    case TestId::kBoolean: return input.is_bool();
    case TestId::kTrue: return input.is_bool() && input.boolean();
    case TestId::kFalse: return input.is_bool() && !input.boolean();
    case TestId::kString: return input.is_text();
    case TestId::kMapping: return input.is_dict();
    case TestId::kNumber: return input.is_number();
    case TestId::kInteger: return input.kind() == ValueKind::kInteger || input.is_big_integer();
    case TestId::kFloat: return input.is_float();
    case TestId::kIterable:
      return input.is_text() || input.is_list() || input.is_dict() || input.is_undefined() ||
             input.kind() == ValueKind::kLoop;
    case TestId::kSequence: return input.is_text() || input.is_sequence() || input.is_dict() || input.is_undefined();
    case TestId::kCallable:
      return input.kind() == ValueKind::kMacro || input.kind() == ValueKind::kMethod ||
             input.kind() == ValueKind::kFunction || input.is_undefined() || input.kind() == ValueKind::kLoop;
    case TestId::kLower:
    case TestId::kUpper: {
      const Value text = ToText(input);
      if (failed()) return false;
      return ClassifyText(text, test == TestId::kLower ? MethodId::kIslower : MethodId::kIsupper).boolean();
    }
    case TestId::kSameas: {
      const Value& other = arguments.positional[0];
      if (input.is_none() || input.is_bool()) return input.kind() == other.kind() && Equal(arena_, input, other);
      Fail("the test 'sameas' is supported for true, false and none only");
      return false;
    }
    default: return TestNumberOrOrder(test, input, arguments);
  }
}

bool Evaluator::TestNumberOrOrder(TestId test, const Value& input, const Arguments& arguments) {
  if (test != TestId::kOdd && test != TestId::kEven && test != TestId::kDivisibleby) {
    return CompareWith(OperatorOf(test), input, arguments.positional[0]);
  }
  const Value divisor = test == TestId::kDivisibleby ? arguments.positional[0] : Value::Integer(2);
  if (!input.is_number() || !divisor.is_number())
    return FailType("a test of divisibility takes numbers, not", input), false;
  const Value rest = Arithmetic(ExprKind::kModulo, input, divisor);
  if (failed()) return false;
  return rest.number() == (test == TestId::kOdd ? 1.0 : 0.0);
}

}  // namespace draftmill::jinja

// The filters of jinja2 that sum up, group or divide a list: min, max, sum, batch, slice, groupby, and round.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "stages/template/evaluator.h"

namespace draftmill::jinja {
namespace {

/// More digits than a double has are asked for by no template.
constexpr std::int64_t kMaximumPrecision = 15;
constexpr std::size_t kMaximumParts = 100'000;

/// A number of parts or of items in a part.
bool IsCount(const Value* value) {
  return value != nullptr && value->is_integral() && value->integer() > 0 &&
         value->integer() <= static_cast<std::int64_t>(kMaximumParts);
}

/// The decimal number nearest to the exact value, half to even, as Python's round() finds it.
double RoundDecimal(double number, int digits) {
  char buffer[512];
  std::snprintf(buffer, sizeof(buffer), "%.*f", digits, number);
  return std::strtod(buffer, nullptr);
}

}  // namespace

Value Evaluator::FilterMinMax(FilterId filter, const Value& input, const Arguments& arguments) {
  static constexpr std::string_view kNames[] = {"case_sensitive", "attribute"};
  const Value* given[2] = {nullptr, nullptr};
  if (!Bind(arguments, kNames, given)) return Value::None();
  const std::span<Value> items = Items(input);
  if (items.empty()) return Value::Undefined(nullptr);
  const bool case_sensitive = given[0] != nullptr && Truth(*given[0]);
  Value best = items.front();
  Value best_key = SortKey(best, given[1], case_sensitive);
  for (const Value& item : items.subspan(1)) {
    if (!Step()) return Value::None();
    const Value key = SortKey(item, given[1], case_sensitive);
    const bool better =
        CompareWith(filter == FilterId::kMin ? CompareOperator::kLess : CompareOperator::kGreater, key, best_key);
    if (failed()) return Value::None();
    if (!better) continue;
    best = item;
    best_key = key;
  }
  return best;
}

Value Evaluator::FilterSum(const Value& input, const Arguments& arguments) {
  static constexpr std::string_view kNames[] = {"attribute", "start"};
  const Value* given[2] = {nullptr, nullptr};
  if (!Bind(arguments, kNames, given)) return Value::None();
  Value sum = given[1] != nullptr ? *given[1] : Value::Integer(0);
  if (sum.is_text()) return Fail("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : Items(input)) {
    const Value term = given[0] != nullptr && !given[0]->is_none() ? AttributePath(item, *given[0]) : item;
    if (!Step()) return Value::None();
    sum = Operate(ExprKind::kAdd, sum, term);
  }
  return failed() ? Value::None() : sum;
}

Value Evaluator::FilterRound(const Value& input, const Arguments& arguments) {
  static constexpr std::string_view kNames[] = {"precision", "method"};
  const Value* given[2] = {nullptr, nullptr};
  if (!Bind(arguments, kNames, given)) return Value::None();
  const std::string_view method =
      given[1] == nullptr ? "common" : (given[1]->is_text() ? ReadBytes(*given[1]) : std::string_view());
  if (method != "common" && method != "ceil" && method != "floor") return Fail("method must be common, ceil or floor");
  const Value precision = given[0] != nullptr ? *given[0] : Value::Integer(0);
  if (!precision.is_integral() || precision.integer() < 0 || precision.integer() > kMaximumPrecision) {
    return Fail("round to other than 0 to 15 digits is not supported");
  }
  if (!input.is_integral() && !input.is_float()) return FailType("round takes a number, not", input);
  const int digits = static_cast<int>(precision.integer());
  if (method == "common") {
    if (input.is_integral()) return Value::Integer(input.integer());
    return Value::Float(std::isfinite(input.number()) ? RoundDecimal(input.number(), digits) : input.number());
  }
  const double power = std::pow(10.0, digits);
  const double scaled = input.number() * power;
  if (!std::isfinite(scaled)) return Fail("cannot round a number that is not finite");
  return Value::Float((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / power);
}

Value Evaluator::FilterBatch(const Value& input, const Arguments& arguments) {
  static constexpr std::string_view kNames[] = {"linecount", "fill_with"};
  const Value* given[2] = {nullptr, nullptr};
  if (!Bind(arguments, kNames, given)) return Value::None();
  if (!IsCount(given[0])) return Fail("batch takes a number of items from 1 to 100000");
  const auto count = static_cast<std::size_t>(given[0]->integer());
  const std::span<Value> items = Items(input);
  std::vector<Value> batches;
  for (std::size_t begin = 0; begin < items.size() && Step(); begin += count) {
    const std::span<Value> part = items.subspan(begin, std::min(count, items.size() - begin));
    std::vector<Value> batch(part.begin(), part.end());
    if (given[1] != nullptr && !given[1]->is_none()) batch.resize(count, *given[1]);
    batches.push_back(MakeList(arena_, batch));
  }
  return failed() ? Value::None() : CheckDepth(MakeList(arena_, batches, ListKind::kGenerator));
}

Value Evaluator::FilterSlice(const Value& input, const Arguments& arguments) {
  static constexpr std::string_view kNames[] = {"slices", "fill_with"};
  const Value* given[2] = {nullptr, nullptr};
  if (!Bind(arguments, kNames, given)) return Value::None();
  if (!IsCount(given[0])) return Fail("slice takes a number of slices from 1 to 100000");
  const auto count = static_cast<std::size_t>(given[0]->integer());
  const std::span<Value> items = Items(input);
  const std::size_t longer = items.size() % count;  // the first so many slices have one item more
  std::vector<Value> slices;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < count && Step(); ++i) {
    const std::size_t size = items.size() / count + (i < longer ? 1 : 0);
    const std::span<Value> part = items.subspan(begin, size);
    std::vector<Value> slice(part.begin(), part.end());
    if (given[1] != nullptr && !given[1]->is_none() && i >= longer) slice.push_back(*given[1]);
    slices.push_back(MakeList(arena_, slice));
    begin += size;
  }
  return failed() ? Value::None() : CheckDepth(MakeList(arena_, slices, ListKind::kGenerator));
}

/// Pairs of a value of the attribute and the items that have it, in the order of the values.
Value Evaluator::FilterGroupby(const Value& input, const Arguments& arguments) {
  static constexpr std::string_view kNames[] = {"attribute", "default", "case_sensitive"};
  const Value* given[3] = {nullptr, nullptr, nullptr};
  if (!Bind(arguments, kNames, given)) return Value::None();
  if (given[0] == nullptr) return Fail("groupby takes the name of an attribute");
  const bool case_sensitive = given[2] != nullptr && Truth(*given[2]);
  const std::span<Value> items = Items(input);
  const auto key_of = [&](const Value& item, bool as_it_is) {
    Value key = AttributePath(item, *given[0]);
    if (key.is_undefined() && given[1] != nullptr) key = *given[1];
    return as_it_is || failed() ? key : SortKey(key, nullptr, case_sensitive);
  };
  const std::span<Value> keys = arena_.MakeArray<Value>(items.size());
  for (std::size_t i = 0; i < items.size() && Step(); ++i) keys[i] = key_of(items[i], false);
  const std::span<Value> sorted = SortBy(items, keys, false);
  std::vector<Value> groups;
  for (std::size_t begin = 0; begin < sorted.size() && Step();) {
    const Value key = key_of(sorted[begin], false);
    std::size_t end = begin + 1;
    while (end < sorted.size() && Step() && Equal(arena_, key_of(sorted[end], false), key)) ++end;
    const Value pair[2] = {key_of(sorted[begin], true), MakeList(arena_, sorted.subspan(begin, end - begin))};
    const Value group = MakeList(arena_, pair, ListKind::kTuple);
    group.list()->type_name = kGroupTypeName;
    groups.push_back(group);
    begin = end;
  }
  return failed() ? Value::None() : CheckDepth(MakeList(arena_, groups));
}

}  // namespace draftmill::jinja

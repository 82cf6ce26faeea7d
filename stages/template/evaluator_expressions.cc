// Expressions: operators, attributes and items.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "base/text_search.h"
#include "stages/template/evaluator.h"
#include "stages/template/evaluator_guards.h"
#include "stages/template/unicode_text.h"

namespace draftmill::jinja {
namespace {

/// Values nested deeper than this are refused where they are built, so that printing and comparing them may recurse.
constexpr std::uint32_t kMaximumValueDepth = 400;

/// Python's slice.indices(): where a slice starts, stops and how many items it takes.
struct SliceRange {
  std::int64_t start = 0;
  std::int64_t count = 0;
  std::int64_t step = 1;
};

SliceRange ResolveSlice(std::int64_t size, std::optional<std::int64_t> start, std::optional<std::int64_t> stop,
                        std::int64_t step) {
  const std::int64_t lowest = step > 0 ? 0 : -1;
  const std::int64_t highest = step > 0 ? size : size - 1;
  const auto clamp = [&](std::optional<std::int64_t> bound, std::int64_t fallback) {
    if (!bound) return fallback;
    if (*bound < 0) return std::max(*bound + size, lowest);
    return std::min(*bound, highest);
  };
  const std::int64_t from = clamp(start, step > 0 ? lowest : highest);
  const std::int64_t to = clamp(stop, step > 0 ? highest : lowest);
  SliceRange range{from, 0, step};
  if (step > 0 && to > from) range.count = (to - from - 1) / step + 1;
  if (step < 0 && to < from) range.count = (from - to - 1) / -step + 1;
  return range;
}

std::int64_t FloorDivide(std::int64_t a, std::int64_t b) {
  const std::int64_t quotient = a / b;
  return quotient * b != a && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

/// A member of a pair that groupby made, by its name.
const Value* GroupMember(const List& list, std::string_view name) {
  if (std::string_view(list.type_name) != kGroupTypeName) return nullptr;
  if (name == "grouper") return &list.items[0];
  return name == "list" ? &list.items[1] : nullptr;
}

const char* OperatorName(ExprKind kind) {
  switch (kind) {
    case ExprKind::kAdd: return "+";
    case ExprKind::kSubtract: return "-";
    case ExprKind::kMultiply: return "*";
    case ExprKind::kDivide: return "/";
    case ExprKind::kFloorDivide: return "//";
    case ExprKind::kPower: return "** or pow()";
    default: return "%";
  }
}

}  // namespace

Value Evaluator::Eval(const Expr& expr) {
  if (!Step()) return Value::None();
  const DepthGuard depth(*this);
  if (failed()) return Value::None();
  switch (expr.kind) {
    case ExprKind::kConstant: return expr.constant;
    case ExprKind::kText: return expr.constant.WithTag(Literal());
    case ExprKind::kName: return Lookup(expr.name, &expr);
    case ExprKind::kAttribute: return EvalAttribute(expr);
    case ExprKind::kSubscript: return EvalSubscript(expr);
    case ExprKind::kSlice: return EvalSlice(expr);
    case ExprKind::kCall: return EvalCall(expr, nullptr);
    case ExprKind::kFilter: return EvalFilter(expr, Eval(*expr.a));
    case ExprKind::kTest: return EvalTest(expr);
    case ExprKind::kNot: return Value::Bool(!Truth(Eval(*expr.a)));
    case ExprKind::kNegate:
    case ExprKind::kPlus: return EvalUnary(expr);
    case ExprKind::kAdd:
    case ExprKind::kSubtract:
    case ExprKind::kMultiply:
    case ExprKind::kDivide:
    case ExprKind::kFloorDivide:
    case ExprKind::kModulo:
    case ExprKind::kPower: return EvalArithmetic(expr);
    case ExprKind::kConcat: return EvalConcat(expr);
    case ExprKind::kCompare: return EvalCompare(expr);
    case ExprKind::kAnd: {
      const Value left = Eval(*expr.a);
      return Truth(left) ? Eval(*expr.b) : left;
    }
    case ExprKind::kOr: {
      const Value left = Eval(*expr.a);
      return Truth(left) ? left : Eval(*expr.b);
    }
    case ExprKind::kConditional:
      if (Truth(Eval(*expr.a))) return Eval(*expr.b);
      return expr.c != nullptr ? Eval(*expr.c) : Value::Undefined(&expr);
    case ExprKind::kList:
    case ExprKind::kTuple: return EvalList(expr);
    case ExprKind::kDict: return EvalDict(expr);
  }
  return Value::None();
}

Value Evaluator::CheckDepth(Value value) {
  if (DepthOf(value) > kMaximumValueDepth) {
    return Fail("lists nested deeper than " + std::to_string(kMaximumValueDepth) + " levels");
  }
  return value;
}

std::span<const Value> Evaluator::EvalAll(const std::vector<const Expr*>& items) {
  const std::span<Value> values = arena_.MakeArray<Value>(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) values[i] = Eval(*items[i]);
  return values;
}

Value Evaluator::EvalList(const Expr& expr) {
  const bool is_tuple = expr.kind == ExprKind::kTuple;
  return CheckDepth(MakeList(arena_, EvalAll(expr.items), is_tuple ? ListKind::kTuple : ListKind::kList));
}

Value Evaluator::EvalDict(const Expr& expr) {
  std::vector<DictEntry> entries;
  entries.reserve(expr.items.size() / 2);
  for (std::size_t i = 0; i + 1 < expr.items.size(); i += 2) {
    const Value key = Eval(*expr.items[i]);
    const Value value = Eval(*expr.items[i + 1]);
    if (key.is_dict() || key.is_list_of(ListKind::kList)) return FailType("unhashable type", key);
    const auto known = std::find_if(entries.begin(), entries.end(),
                                    [&](const DictEntry& entry) { return Equal(arena_, entry.key, key); });
    if (known != entries.end())
      known->value = value;
    else
      entries.push_back({key, value});
  }
  const Value dict = MakeDict(arena_, entries);
  dict.dict()->message = owner_;  // a message that the template rewrites stays that message
  return CheckDepth(dict);
}

// ---- attributes and items -------------------------------------------------------------------------------------------

Value Evaluator::EvalAttribute(const Expr& expr) { return GetAttribute(Eval(*expr.a), expr); }

Value Evaluator::GetAttribute(const Value& object, const Expr& expr) {
  const auto method = static_cast<MethodId>(expr.function);
  switch (object.kind()) {
    case ValueKind::kUndefined: return FailUndefined(object);
    case ValueKind::kDict:
      if (method != MethodId::kNone && DictHasMethod(method)) return MethodValue(object, method, &expr);
      Charge(object.dict()->entries.size() * 8);
      if (const Value* value = FindKey(arena_, *object.dict(), std::string_view(expr.text))) return *value;
      return Value::Undefined(&expr);
    case ValueKind::kNamespace:
      for (std::uint32_t i = 0; i < object.names()->size; ++i) {
        if (object.names()->entries[i].name == expr.text) return object.names()->entries[i].value;
      }
      return Value::Undefined(&expr);
    case ValueKind::kLoop:
      if (method == MethodId::kCycle || method == MethodId::kChanged) return MethodValue(object, method, &expr);
      return LoopAttribute(*object.loop(), expr);
    case ValueKind::kList:
      if (const Value* member = GroupMember(*object.list(), expr.text)) return *member;
      [[fallthrough]];
    case ValueKind::kText: return MethodValue(object, method, &expr);
    default: return Value::Undefined(&expr);
  }
}

/// The method as a value; undefined where the object has none of that name.
Value Evaluator::MethodValue(const Value& object, MethodId method, const Expr* origin) {
  const bool exists = object.is_text()   ? TextHasMethod(method)
                      : object.is_dict() ? DictHasMethod(method)
                      : object.is_list() ? ListHasMethod(method)
                                         : method == MethodId::kCycle || method == MethodId::kChanged;
  if (!exists || (object.is_list() && !object.is_sequence())) return Value::Undefined(origin);
  if ((object.is_list() && ChangesList(method)) || (object.is_dict() && ChangesDict(method)))
    return Value::Unsafe(origin);
  return Value::Of(arena_.Make<BoundMethod>(object, method));
}

Value Evaluator::EvalSubscript(const Expr& expr) {
  const Value object = Eval(*expr.a);
  if (expr.b->kind != ExprKind::kText) return GetItem(object, Eval(*expr.b), &expr);
  if (object.is_dict()) {  // the usual message['content'], without a detour
    Charge(object.dict()->entries.size() * 8);
    if (const Value* value = FindKey(arena_, *object.dict(), std::string_view(expr.text))) return *value;
    return MethodValue(object, static_cast<MethodId>(expr.function), &expr);
  }
  return GetItem(object, expr.b->constant, &expr);
}

Value Evaluator::GetItem(const Value& object, const Value& key, const Expr* origin) {
  if (object.is_undefined()) return FailUndefined(object);
  if (object.is_dict()) {
    Charge(object.dict()->entries.size() * 8);
    if (const Value* value = FindKey(arena_, *object.dict(), key)) return *value;
  }
  if (key.is_integral()) {
    if (object.is_sequence()) {
      const std::span<Value> items = object.list()->items;
      const std::int64_t size = static_cast<std::int64_t>(items.size());
      const std::int64_t index = key.integer() < 0 ? key.integer() + size : key.integer();
      if (index >= 0 && index < size) return items[static_cast<std::size_t>(index)];
    } else if (object.is_text()) {
      const FlatText text = Read(object);
      const std::int64_t size = static_cast<std::int64_t>(CountCharacters(text.bytes));
      const std::int64_t index = key.integer() < 0 ? key.integer() + size : key.integer();
      if (index >= 0 && index < size) {
        const std::size_t begin = ByteOfCharacter(text.bytes, static_cast<std::size_t>(index));
        return SliceText(arena_, text, begin, begin + DecodeAt(text.bytes, begin).bytes);
      }
    }
    return Value::Undefined(origin);
  }
  if (!key.is_text()) return Value::Undefined(origin);
  const std::string_view name = ReadBytes(key);
  if (object.kind() == ValueKind::kNamespace) {
    for (std::uint32_t i = 0; i < object.names()->size; ++i) {
      if (object.names()->entries[i].name == name) return object.names()->entries[i].value;
    }
  } else if (object.kind() == ValueKind::kLoop) {
    Expr attribute;
    attribute.text = name;
    return LoopAttribute(*object.loop(), attribute);
  } else if (object.is_text() || object.is_list() || object.is_dict()) {
    const Value* member = object.is_list() ? GroupMember(*object.list(), name) : nullptr;
    if (member != nullptr) return *member;
    return MethodValue(object, FindMethod(name), origin);
  }
  return Value::Undefined(origin);
}

Value Evaluator::EvalSlice(const Expr& expr) {
  const Value object = Eval(*expr.a);
  std::optional<std::int64_t> bounds[3];
  const Expr* const parts[3] = {expr.b, expr.c, expr.d};
  for (int i = 0; i < 3; ++i) {
    if (parts[i] == nullptr) continue;
    const Value bound = Eval(*parts[i]);
    if (bound.is_none()) continue;
    if (!bound.is_integral()) return FailType("slice indices must be integers or None, not", bound);
    bounds[i] = bound.integer();
  }
  const std::int64_t step = bounds[2].value_or(1);
  if (step == 0) return Fail("slice step cannot be zero");
  if (step == std::numeric_limits<std::int64_t>::min()) return Fail("a slice step is too large");
  if (object.is_sequence()) {
    const std::span<Value> items = object.list()->items;
    const SliceRange range = ResolveSlice(static_cast<std::int64_t>(items.size()), bounds[0], bounds[1], step);
    Charge(static_cast<std::size_t>(range.count) * 16);
    const std::span<Value> taken = arena_.MakeArray<Value>(static_cast<std::size_t>(range.count));
    for (std::int64_t i = 0; i < range.count; ++i) {
      taken[static_cast<std::size_t>(i)] = items[static_cast<std::size_t>(range.start + i * range.step)];
    }
    List* list = arena_.Make<List>();
    list->items = taken;
    list->kind = object.list()->kind;
    list->depth = object.list()->depth;
    return Value::Of(list);
  }
  if (!object.is_text()) return FailType("cannot slice", object);
  const FlatText text = Read(object);
  const bool ascii = IsAscii(text.bytes);
  const std::int64_t size = static_cast<std::int64_t>(ascii ? text.bytes.size() : CountCharacters(text.bytes));
  const SliceRange range = ResolveSlice(size, bounds[0], bounds[1], step);
  if (range.count == 0) return ConstantText("");
  const auto byte_of = [&](std::int64_t character) {
    return ascii ? static_cast<std::size_t>(character)
                 : ByteOfCharacter(text.bytes, static_cast<std::size_t>(character));
  };
  if (step == 1) return SliceText(arena_, text, byte_of(range.start), byte_of(range.start + range.count));
  if (!ascii) Charge(text.bytes.size() * static_cast<std::size_t>(range.count));
  builder_.Clear();
  for (std::int64_t i = 0; i < range.count && Step(); ++i) {
    const std::size_t begin = byte_of(range.start + i * range.step);
    builder_.Append(text, begin, begin + DecodeAt(text.bytes, begin).bytes);
  }
  return builder_.Finish(arena_);
}

// ---- operators ------------------------------------------------------------------------------------------------------

Value Evaluator::EvalUnary(const Expr& expr) {
  const Value value = Eval(*expr.a);
  if (value.is_float()) return Value::Float(expr.kind == ExprKind::kNegate ? -value.number() : value.number());
  if (!value.is_integral()) return FailType("bad operand type for a sign:", value);
  if (expr.kind == ExprKind::kPlus) return Value::Integer(value.integer());
  std::int64_t negated = 0;
  if (__builtin_sub_overflow(std::int64_t{0}, value.integer(), &negated)) return Fail("an integer leaves 64 bits");
  return Value::Integer(negated);
}

Value Evaluator::EvalArithmetic(const Expr& expr) {
  const Value a = Eval(*expr.a);
  const Value b = Eval(*expr.b);
  return failed() ? Value::None() : Operate(expr.kind, a, b);
}

Value Evaluator::Operate(ExprKind kind, const Value& a, const Value& b) {
  if (kind == ExprKind::kModulo && a.is_text()) return FormatPercent(a, b);
  if (a.is_undefined()) return FailUndefined(a);
  if (b.is_undefined()) return FailUndefined(b);
  if (kind == ExprKind::kAdd && !a.is_number()) return Add(a, b);
  if (kind == ExprKind::kMultiply && !(a.is_number() && b.is_number())) return Multiply(a, b);
  if (!a.is_number() || !b.is_number()) {
    return Fail(std::string("unsupported operand types for ") + OperatorName(kind) + ": '" + TypeName(a) + "' and '" +
                TypeName(b) + "'");
  }
  return kind == ExprKind::kPower ? Power(a, b) : Arithmetic(kind, a, b);
}

Value Evaluator::Power(const Value& a, const Value& b) {
  if (a.is_big_integer() || b.is_big_integer())
    return Fail("arithmetic on an integer of more than 64 bits is not supported");
  if (a.is_float() || b.is_float() || b.integer() < 0) {
    if (a.number() == 0 && b.number() < 0) return Fail("0.0 cannot be raised to a negative power");
    const double result = std::pow(a.number(), b.number());
    if (std::isnan(result) && !std::isnan(a.number()) && !std::isnan(b.number()))
      return Fail("complex numbers are not supported");
    if (std::isinf(result) && std::isfinite(a.number()) && std::isfinite(b.number())) return Fail("Result too large");
    return Value::Float(result);
  }
  std::int64_t result = 1;
  std::int64_t factor = a.integer();
  // A larger exponent leaves 64 bits at once, but for 0 and 1, whose powers repeat.
  for (std::int64_t left = std::min<std::int64_t>(b.integer(), 64 + b.integer() % 2); left > 0; left /= 2) {
    if (left % 2 == 1 && __builtin_mul_overflow(result, factor, &result)) return Fail("an integer leaves 64 bits");
    if (left > 1 && __builtin_mul_overflow(factor, factor, &factor)) return Fail("an integer leaves 64 bits");
  }
  return Value::Integer(result);
}

Value Evaluator::Add(const Value& a, const Value& b) {
  if (a.is_text() && b.is_text()) {
    const bool markup = a.is_markup() || b.is_markup();  // text marked safe escapes what it is added to
    const Value both[2] = {markup && !a.is_markup() ? EscapeHtml(a) : a, markup && !b.is_markup() ? EscapeHtml(b) : b};
    if (failed() || !FitsText(std::size_t{both[0].text()->size} + both[1].text()->size)) return Value::None();
    const Value sum = JoinTexts(arena_, both);
    return markup ? sum.WithMarkup() : sum;
  }
  if (a.is_sequence() && b.is_sequence() && a.list()->kind == b.list()->kind) {
    const std::span<Value> items = arena_.MakeArray<Value>(a.list()->items.size() + b.list()->items.size());
    Charge(items.size() * 16);
    std::copy(b.list()->items.begin(), b.list()->items.end(),
              std::copy(a.list()->items.begin(), a.list()->items.end(), items.begin()));
    List* list = arena_.Make<List>();
    list->items = items;
    list->kind = a.list()->kind;
    list->depth = std::max(a.list()->depth, b.list()->depth);
    return Value::Of(list);
  }
  return Fail(std::string("can only concatenate values of one type, not '") + TypeName(a) + "' and '" + TypeName(b) +
              "'");
}

Value Evaluator::Multiply(const Value& a, const Value& b) {
  const Value& object = a.is_integral() ? b : a;
  const Value& factor = a.is_integral() ? a : b;
  if (!factor.is_integral() || (!object.is_text() && !object.is_sequence())) {
    return Fail(std::string("unsupported operand types for *: '") + TypeName(a) + "' and '" + TypeName(b) + "'");
  }
  const std::size_t size = object.is_text() ? object.text()->size : object.list()->items.size() * sizeof(Value);
  const std::size_t count = size == 0 || factor.integer() <= 0 ? 0 : static_cast<std::size_t>(factor.integer());
  if (count > kMaximumTextBytes || !FitsText(size * count)) {
    return Fail("the template repeats a value " + std::to_string(factor.integer()) + " times");
  }
  Charge(size * count * 4);
  if (object.is_text()) {
    const FlatText text = Read(object);
    builder_.Clear();
    if (!text.runs.empty()) {
      for (std::size_t i = 0; i < count; ++i) builder_.Append(text);
    } else {
      std::string bytes;
      bytes.reserve(size * count);
      for (std::size_t i = 0; i < count; ++i) bytes += text.bytes;
      builder_.Append(bytes, text.tag);
    }
    return builder_.Finish(arena_);
  }
  const std::span<Value> items = object.list()->items;
  List* list = arena_.Make<List>();
  list->items = arena_.MakeArray<Value>(items.size() * count);
  for (std::size_t i = 0; i < list->items.size(); ++i) list->items[i] = items[i % items.size()];
  list->kind = object.list()->kind;
  list->depth = object.list()->depth;
  return Value::Of(list);
}

Value Evaluator::Arithmetic(ExprKind kind, const Value& a, const Value& b) {
  if (a.is_big_integer() || b.is_big_integer())
    return Fail("arithmetic on an integer of more than 64 bits is not supported");
  const bool divides = kind == ExprKind::kDivide || kind == ExprKind::kFloorDivide || kind == ExprKind::kModulo;
  if (divides && b.number() == 0) return Fail("division by zero");
  if (kind == ExprKind::kDivide) return Value::Float(a.number() / b.number());
  if (a.is_float() || b.is_float()) {
    const double x = a.number();
    const double y = b.number();
    if (kind == ExprKind::kAdd) return Value::Float(x + y);
    if (kind == ExprKind::kSubtract) return Value::Float(x - y);
    if (kind == ExprKind::kMultiply) return Value::Float(x * y);
    if (kind == ExprKind::kFloorDivide) return Value::Float(std::floor(x / y));
    const double rest = std::fmod(x, y);
    return Value::Float(rest != 0 && (rest < 0) != (y < 0) ? rest + y : std::copysign(rest, rest == 0 ? y : rest));
  }
  std::int64_t result = 0;
  bool overflow = false;
  switch (kind) {
    case ExprKind::kAdd: overflow = __builtin_add_overflow(a.integer(), b.integer(), &result); break;
    case ExprKind::kSubtract: overflow = __builtin_sub_overflow(a.integer(), b.integer(), &result); break;
    case ExprKind::kMultiply: overflow = __builtin_mul_overflow(a.integer(), b.integer(), &result); break;
    default:
      if (b.integer() == -1) {  // the one division that overflows
        overflow = kind == ExprKind::kFloorDivide && __builtin_sub_overflow(std::int64_t{0}, a.integer(), &result);
        break;
      }
      result = FloorDivide(a.integer(), b.integer());
      if (kind == ExprKind::kModulo) result = a.integer() - result * b.integer();
  }
  if (overflow) return Fail("an integer leaves 64 bits");
  return Value::Integer(result);
}

Value Evaluator::EvalConcat(const Expr& expr) {
  const std::span<Value> texts = arena_.MakeArray<Value>(expr.items.size());
  std::size_t size = 0;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    texts[i] = ToText(Eval(*expr.items[i]));
    if (failed()) return Value::None();
    size += texts[i].text()->size;
  }
  if (!FitsText(size)) return Value::None();
  return JoinTexts(arena_, texts);
}

Value Evaluator::EvalCompare(const Expr& expr) {
  Value left = Eval(*expr.a);
  for (const Comparison& comparison : expr.comparisons) {
    const Value right = Eval(*comparison.operand);
    if (failed() || !CompareWith(comparison.op, left, right)) return Value::Bool(false);
    left = right;
  }
  return Value::Bool(true);
}

bool Evaluator::CompareWith(CompareOperator op, const Value& a, const Value& b) {
  if (a.is_text()) Charge(a.text()->size / 8);
  if (a.is_list()) Charge(a.list()->items.size() * 16);
  switch (op) {
    case CompareOperator::kEqual: return Equal(arena_, a, b);
    case CompareOperator::kNotEqual: return !Equal(arena_, a, b);
    case CompareOperator::kIn: return Contains(b, a);
    case CompareOperator::kNotIn: return !Contains(b, a);
    default: break;
  }
  if (a.is_undefined()) return FailUndefined(a), false;
  if (b.is_undefined()) return FailUndefined(b), false;
  const auto order = Compare(arena_, a, b);
  if (!order) {
    if (a.is_number() && b.is_number()) return false;  // nan
    Fail(std::string("'<' not supported between '") + TypeName(a) + "' and '" + TypeName(b) + "'");
    return false;
  }
  switch (op) {
    case CompareOperator::kLess: return *order < 0;
    case CompareOperator::kLessEqual: return *order <= 0;
    case CompareOperator::kGreater: return *order > 0;
    default: return *order >= 0;
  }
}

bool Evaluator::Contains(const Value& container, const Value& item) {
  if (container.is_text()) {
    if (!item.is_text()) return FailType("'in <string>' requires string as left operand, not", item), false;
    return FindSubstring(ReadBytes(container), ReadBytes(item)) != std::string_view::npos;
  }
  if (container.is_dict()) {
    if (item.is_dict() || item.is_list_of(ListKind::kList)) return FailType("unhashable type", item), false;
    Charge(container.dict()->entries.size() * 8);
    return FindKey(arena_, *container.dict(), item) != nullptr;
  }
  const auto items = Iterate(arena_, container);
  if (!items) return FailType("cannot search in", container), false;
  Charge(items->size() * 16);
  return std::any_of(items->begin(), items->end(),
                     [&](const Value& candidate) { return Equal(arena_, candidate, item); });
}

}  // namespace draftmill::jinja

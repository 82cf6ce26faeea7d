// Filters and tests as they stand in expressions, calls of macros, and the functions that every template has.
#include <algorithm>

#include "stages/template/evaluator.h"
#include "stages/template/evaluator_guards.h"

namespace draftmill::jinja {
namespace {

/// The sandbox of jinja2 blocks longer ranges.
constexpr std::int64_t kMaximumRange = 100'000;

}  // namespace

/// The arguments without a name, with those that * unpacks.
std::span<const Value> Evaluator::EvalPositional(const Expr& call) {
  const std::span<const Value> values = EvalAll(call.items);
  if (call.b == nullptr || failed()) return values;
  const std::span<const Value> unpacked = Items(Eval(*call.b));
  const std::span<Value> all = arena_.MakeArray<Value>(values.size() + unpacked.size());
  std::copy(unpacked.begin(), unpacked.end(), std::copy(values.begin(), values.end(), all.begin()));
  return all;
}

/// The arguments with a name, with those that ** unpacks.
std::span<const NamedValue> Evaluator::EvalNamed(const Expr& call) {
  std::vector<NamedValue> values;
  values.reserve(call.keywords.size());
  for (const Keyword& keyword : call.keywords) values.push_back({keyword.name, Eval(*keyword.value)});
  if (call.c != nullptr && !failed()) {
    const Value unpacked = Eval(*call.c);
    if (!unpacked.is_dict())
      return FailType("argument after ** must be a mapping, not", unpacked), std::span<NamedValue>();
    for (const DictEntry& entry : unpacked.dict()->entries) {
      if (!entry.key.is_text()) return FailType("keywords must be strings, not", entry.key), std::span<NamedValue>();
      const std::string_view name = ReadBytes(entry.key);
      const bool is_known =
          std::any_of(values.begin(), values.end(), [name](const NamedValue& v) { return v.name == name; });
      if (is_known)
        return Fail("got multiple values for keyword argument '" + std::string(name) + "'"), std::span<NamedValue>();
      values.push_back({name, entry.value});
    }
  }
  const std::span<NamedValue> kept = arena_.MakeArray<NamedValue>(values.size());
  std::copy(values.begin(), values.end(), kept.begin());
  return kept;
}

Value Evaluator::EvalFilter(const Expr& expr, const Value& input) {
  if (failed()) return Value::None();
  const Arguments arguments{EvalPositional(expr), EvalNamed(expr), expr.text};
  if (failed()) return Value::None();
  if (expr.function == 0) return Fail("No filter named '" + expr.text + "'.");
  return ApplyFilter(static_cast<FilterId>(expr.function), input, arguments);
}

/// A chain of filters whose first one has no operand: that of {% filter %} and {% set x | f %}.
Value Evaluator::EvalFilterChain(const Expr& expr, const Value& input) {
  const DepthGuard depth(*this);
  if (failed()) return Value::None();
  return EvalFilter(expr, expr.a == nullptr ? input : EvalFilterChain(*expr.a, input));
}

Value Evaluator::EvalTest(const Expr& expr) {
  const Value input = Eval(*expr.a);
  const Arguments arguments{EvalPositional(expr), {}, expr.text};
  if (failed()) return Value::None();
  if (expr.function == 0) return Fail("No test named '" + expr.text + "'.");
  return Value::Bool(ApplyTest(static_cast<TestId>(expr.function), input, arguments));
}

/// A call; `caller`, if there is one, goes along as a named argument, as {% call %} does it.
Value Evaluator::EvalCall(const Expr& expr, const Value* caller) {
  const auto named_arguments = [&] {
    const std::span<const NamedValue> named = EvalNamed(expr);
    if (caller == nullptr) return named;
    const std::span<NamedValue> all = arena_.MakeArray<NamedValue>(named.size() + 1);
    std::copy(named.begin(), named.end(), all.begin());
    all.back() = {"caller", *caller};
    return std::span<const NamedValue>(all);
  };
  const Expr& callee = *expr.a;
  if (callee.kind == ExprKind::kAttribute) {
    const Value object = Eval(*callee.a);
    const auto method = static_cast<MethodId>(callee.function);
    const bool direct = (object.is_dict() && DictHasMethod(method) && !ChangesDict(method)) ||
                        (object.is_text() && TextHasMethod(method));
    const Value function = direct ? Value::None() : GetAttribute(object, callee);
    const Arguments arguments{EvalPositional(expr), named_arguments(), callee.text};
    if (failed()) return Value::None();
    return direct ? CallMethod(object, method, arguments) : CallValue(function, arguments);
  }
  const Value function = Eval(callee);
  const Arguments arguments{EvalPositional(expr), named_arguments(), callee.text};
  if (failed()) return Value::None();
  line_ = expr.line;
  return CallValue(function, arguments);
}

Value Evaluator::CallValue(const Value& callee, const Arguments& arguments) {
  switch (callee.kind()) {
    case ValueKind::kMacro: return CallMacro(*callee.macro(), arguments);
    case ValueKind::kFunction: return CallFunction(callee.function(), arguments);
    case ValueKind::kLoop: return CallLoop(*callee.loop(), arguments);
    case ValueKind::kMethod: return CallMethod(callee.method()->object, callee.method()->method, arguments);
    default: return FailType("cannot call", callee);
  }
}

Value Evaluator::CallMacro(const Macro& macro, const Arguments& arguments) {
  const Stmt& stmt = *macro.stmt;
  if (macro.frame >= frames_.size() || frames_[macro.frame].serial != macro.serial) {
    return Fail("the macro '" + stmt.text + "' is called outside the scope that defines it");
  }
  const DepthGuard depth(*this);
  if (failed()) return Value::None();
  const std::int32_t outer_owner = owner_;
  const bool outer_anonymous = std::exchange(anonymous_iteration_, false);
  const std::size_t first_run = output_.size();
  const int line = line_;
  {
    const FrameGuard frame(*this, macro.frame);
    BindParameters(stmt, arguments);
    if (!failed()) Run(stmt.body);
  }
  owner_ = outer_owner;
  anonymous_iteration_ = outer_anonymous;
  line_ = failed() ? line_ : line;
  return Capture(first_run);
}

/// Gives the parameters of a macro their values in the present scope.
void Evaluator::BindParameters(const Stmt& macro, const Arguments& arguments) {
  const std::vector<Parameter>& parameters = macro.parameters;
  const std::size_t own = std::min(arguments.positional.size(), parameters.size());
  if (own < arguments.positional.size() && macro.varargs == kNoName) {
    Fail("macro '" + macro.text + "' takes not more than " + std::to_string(parameters.size()) + " argument(s)");
    return;
  }
  const std::span<bool> bound = arena_.MakeArray<bool>(parameters.size());
  std::fill(bound.begin(), bound.end(), false);
  for (std::size_t i = 0; i < own; ++i) {
    bound[i] = true;
    Assign(parameters[i].name, arguments.positional[i]);
    if (owner_ == Provenance::kNoMessage) owner_ = MessageOf(arguments.positional[i]);
  }
  std::vector<DictEntry> others;
  Value caller = Value::Undefined(nullptr);
  for (const NamedValue& named : arguments.named) {
    const auto parameter = std::find_if(parameters.begin(), parameters.end(),
                                        [&](const Parameter& candidate) { return candidate.text == named.name; });
    const auto index = static_cast<std::size_t>(parameter - parameters.begin());
    if (parameter != parameters.end() && !bound[index]) {
      bound[index] = true;
      Assign(parameter->name, named.value);
    } else if (named.name == "caller" && macro.caller != kNoName) {
      caller = named.value;
    } else if (macro.kwargs != kNoName) {
      others.push_back({ConstantText(named.name), named.value});
    } else {
      Fail("macro '" + macro.text + "' takes no keyword argument '" + std::string(named.name) + "'");
      return;
    }
  }
  if (macro.caller != kNoName) Assign(macro.caller, caller);
  if (macro.kwargs != kNoName) Assign(macro.kwargs, MakeDict(arena_, others));
  if (macro.varargs != kNoName)
    Assign(macro.varargs, MakeList(arena_, arguments.positional.subspan(own), ListKind::kTuple));
  for (std::size_t i = 0; i < parameters.size() && !failed(); ++i) {
    if (bound[i]) continue;
    const Parameter& parameter = parameters[i];
    Assign(parameter.name, parameter.fallback != nullptr ? Eval(*parameter.fallback) : Value::Undefined(nullptr));
  }
}

Value Evaluator::CallFunction(GlobalFunction function, const Arguments& arguments) {
  switch (function) {
    case GlobalFunction::kNamespace: return MakeNamespace(arguments);
    case GlobalFunction::kDict: return MakeDictFrom(arguments);
    case GlobalFunction::kRange: return Range(arguments);
    case GlobalFunction::kRaiseException: {
      const Value* message = nullptr;
      static constexpr std::string_view kNames[] = {"message"};
      if (!Bind(arguments, kNames, {&message, 1})) return Value::None();
      const Value text = message == nullptr ? ConstantText("") : ToText(*message);
      if (failed()) return Value::None();
      failure_ = InvalidInput("the template refuses the row: " + std::string(Bytes(arena_, text)));
      return Value::None();
    }
    case GlobalFunction::kStrftimeNow: {
      const Value* format = nullptr;
      static constexpr std::string_view kNames[] = {"format"};
      if (!Bind(arguments, kNames, {&format, 1})) return Value::None();
      if (format == nullptr || !format->is_text()) return Fail("strftime_now takes a format");
      const Result<std::string> text = FormatDateTime(now_, ReadBytes(*format));
      return text.ok() ? NewText(*text) : Fail(text.status().message());
    }
  }
  return Value::None();
}

Value Evaluator::MakeNamespace(const Arguments& arguments) {
  std::vector<NamespaceEntry> entries;
  for (const Value& value : arguments.positional) {
    if (!value.is_dict() || arguments.positional.size() > 1)
      return Fail("namespace takes one dict and keyword arguments");
    for (const DictEntry& entry : value.dict()->entries) {
      if (!entry.key.is_text()) return FailType("the name of an attribute must be text, not", entry.key);
      entries.push_back({ReadBytes(entry.key), entry.value});
    }
  }
  for (const NamedValue& named : arguments.named) {
    const auto known = std::find_if(entries.begin(), entries.end(),
                                    [&](const NamespaceEntry& entry) { return entry.name == named.name; });
    if (known != entries.end())
      known->value = named.value;
    else
      entries.push_back({named.name, named.value});
  }
  for (const NamespaceEntry& entry : entries) {
    if (entry.name.starts_with('_')) return Fail("an attribute of a namespace must not begin with '_'");
  }
  Namespace* names = arena_.Make<Namespace>();
  names->entries = arena_.MakeArray<NamespaceEntry>(entries.size());
  names->size = static_cast<std::uint32_t>(entries.size());
  std::copy(entries.begin(), entries.end(), names->entries.begin());
  return Value::Of(names);
}

Value Evaluator::MakeDictFrom(const Arguments& arguments) {
  std::vector<DictEntry> entries;
  for (const Value& value : arguments.positional) {
    if (!value.is_dict() || arguments.positional.size() > 1) return Fail("dict() takes one dict and keyword arguments");
    entries.assign(value.dict()->entries.begin(), value.dict()->entries.end());
  }
  for (const NamedValue& named : arguments.named) {
    const auto known = std::find_if(entries.begin(), entries.end(), [&](const DictEntry& entry) {
      return entry.key.is_text() && Bytes(arena_, entry.key) == named.name;
    });
    if (known != entries.end())
      known->value = named.value;
    else
      entries.push_back({ConstantText(named.name), named.value});
  }
  const Value dict = MakeDict(arena_, entries);
  dict.dict()->message = owner_;
  return CheckDepth(dict);
}

Value Evaluator::Range(const Arguments& arguments) {
  std::int64_t numbers[3] = {0, 0, 1};
  const std::size_t count = arguments.positional.size();
  if (count < 1 || count > 3 || !arguments.named.empty()) return Fail("range takes 1 to 3 numbers");
  for (std::size_t i = 0; i < count; ++i) {
    if (!arguments.positional[i].is_integral()) return FailType("range takes integers, not", arguments.positional[i]);
    numbers[i] = arguments.positional[i].integer();
  }
  if (count == 1) std::swap(numbers[0], numbers[1]);
  const auto [start, stop, step] = numbers;
  if (step == 0) return Fail("range() arg 3 must not be zero");
  const __int128 distance = step > 0 ? static_cast<__int128>(stop) - start : static_cast<__int128>(start) - stop;
  const __int128 width = step > 0 ? static_cast<__int128>(step) : -static_cast<__int128>(step);
  const __int128 size = distance <= 0 ? 0 : (distance - 1) / width + 1;
  if (size > kMaximumRange) return Fail("Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
  Charge(static_cast<std::size_t>(size) * 16);
  List* list = arena_.Make<List>();
  list->items = arena_.MakeArray<Value>(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < list->items.size(); ++i) {
    list->items[i] = Value::Integer(start + static_cast<std::int64_t>(i) * step);
  }
  list->kind = ListKind::kList;
  return Value::Of(list);
}

}  // namespace draftmill::jinja

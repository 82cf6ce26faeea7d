// Text with places for values: Python's % operator and the filter `format`, str.format(), and padding.
#include <algorithm>
#include <charconv>
#include <string>
#include <vector>

#include "base/json.h"
#include "stages/template/evaluator.h"
#include "stages/template/number_format.h"
#include "stages/template/python_format.h"
#include "stages/template/unicode_text.h"

namespace draftmill::jinja {
namespace {

/// One conversion of the % operator, from after its sign.
struct Conversion {
  std::string_view key;
  bool has_key = false;
  FormatSpec spec;
};

/// Reads "(key)[flags][width][.precision]type"; std::nullopt for what is not supported.
std::optional<Conversion> TakeConversion(std::string_view& text) {
  Conversion conversion;
  if (text.starts_with('(')) {
    const std::size_t close = text.find(')');
    if (close == std::string_view::npos) return std::nullopt;
    conversion.key = text.substr(1, close - 1);
    conversion.has_key = true;
    text.remove_prefix(close + 1);
  }
  const std::size_t end = text.find_first_not_of("-+ 0123456789.");
  if (end == std::string_view::npos) return std::nullopt;
  std::string_view flags = text.substr(0, end);
  bool left = false;
  std::string spec;
  for (;
       !flags.empty() && (flags.front() == '-' || flags.front() == '+' || flags.front() == ' ' || flags.front() == '0');
       flags.remove_prefix(1)) {
    left = left || flags.front() == '-';
    if (flags.front() != '-') spec += flags.front();
  }
  const char type = text[end];
  spec += flags;
  spec += type == 'i' || type == 'u' ? 'd' : (type == 'r' ? 's' : type);
  const std::optional<FormatSpec> parsed = ParseFormatSpec(spec);
  if (!parsed) return std::nullopt;
  conversion.spec = *parsed;
  conversion.spec.type = type == 'u' || type == 'i' ? 'd' : type;
  if (left) {
    conversion.spec.align = '<';
    conversion.spec.fill = " ";
  }
  text.remove_prefix(end + 1);
  return conversion;
}

/// The bytes of the first `count` characters.
std::size_t BytesOfCharacters(std::string_view text, int count) {
  return count < 0 ? text.size() : ByteOfCharacter(text, static_cast<std::size_t>(count));
}

void AppendPadded(const FlatText& text, std::size_t end, char align, const FormatSpec& spec, Provenance literal,
                  TextBuilder& out) {
  const Padding padding = PaddingOf(CountCharacters(text.bytes.substr(0, end)), align, spec);
  out.Append(padding.before, literal);
  out.Append(text, 0, end);
  out.Append(padding.after, literal);
}

}  // namespace

/// repr(value) as a value.
Value Evaluator::ToRepr(const Value& value) {
  const Value list = MakeList(arena_, {&value, 1});
  const Value text = ToText(list);
  if (failed()) return Value::None();
  const FlatText flat = Read(text);
  return SliceText(arena_, flat, 1, flat.bytes.size() - 1);  // without the brackets
}

// ---- the % operator -------------------------------------------------------------------------------------------------

Value Evaluator::FormatPercent(const Value& format, const Value& given) {
  const bool is_tuple = given.is_list_of(ListKind::kTuple);
  const std::span<const Value> values = is_tuple ? std::span<const Value>(given.list()->items) : std::span(&given, 1);
  const FlatText text = Read(format);
  TextBuilder out;
  std::size_t used = 0;
  std::size_t at = 0;
  while (Step()) {
    const std::size_t sign = std::min(text.bytes.find('%', at), text.bytes.size());
    out.Append(text, at, sign);
    if (sign == text.bytes.size()) break;
    std::string_view rest = text.bytes.substr(sign + 1);
    if (rest.starts_with('%')) {
      out.Append(text, sign, sign + 1);
      at = sign + 2;
      continue;
    }
    const auto conversion = TakeConversion(rest);
    if (!conversion) return Fail("a conversion of this form in a text before % is not supported");
    at = text.bytes.size() - rest.size();
    Value value;
    if (conversion->has_key) {
      if (!given.is_dict()) return Fail("format requires a mapping");
      const Value* member = FindKey(arena_, *given.dict(), conversion->key);
      if (member == nullptr) return Fail("the mapping has no key '" + std::string(conversion->key) + "'");
      value = *member;
      used = values.size();
    } else {
      if (used >= values.size()) return Fail("not enough arguments for format string");
      value = values[used++];
    }
    AppendConverted(value, conversion->spec, out);
    if (failed() || !FitsText(out.size())) return Value::None();
  }
  // Whatever has items may be left over, as in Python: it could have been asked for by keys.
  const bool has_items = given.is_dict() || (given.is_list() && !is_tuple) || given.is_undefined();
  if (used < values.size() && !has_items) return Fail("not all arguments converted during string formatting");
  return failed() ? Value::None() : out.Finish(arena_);
}

void Evaluator::AppendConverted(const Value& value, FormatSpec spec, TextBuilder& out) {
  if (spec.type == 's' || spec.type == 'r') {
    const Value text = spec.type == 'r' ? ToRepr(value) : ToText(value);
    if (failed()) return;
    const FlatText flat = Read(text);
    spec.fill = " ";
    return AppendPadded(flat, BytesOfCharacters(flat.bytes, spec.precision), spec.align == '<' ? '<' : '>', spec,
                        Literal(), out);
  }
  std::optional<std::string> number;
  const bool is_real = value.is_integral() || value.is_float();
  if (is_real && spec.type == 'd' && spec.precision < 0 && std::abs(value.number()) < 9.2e18) {
    number = FormatInteger(value.is_float() ? static_cast<std::int64_t>(value.number()) : value.integer(), spec);
  } else if (value.is_integral()) {
    number = FormatInteger(value.integer(), spec);
  } else if (value.is_float() && spec.type != 'd') {
    number = FormatFloat(value.number(), "", spec);
  }
  if (!number) {
    FailType(std::string("%") + spec.type + " of this form does not take", value);
    return;
  }
  out.Append(PadNumber(std::move(*number), spec), Literal());
}

// ---- str.format -----------------------------------------------------------------------------------------------------

Value Evaluator::FormatBraces(const Value& format, const Arguments& arguments) {
  const FlatText text = Read(format);
  TextBuilder out;
  FieldNumbers numbers;
  for (std::size_t at = 0; at < text.bytes.size() && Step();) {
    const std::size_t brace = std::min(text.bytes.find_first_of("{}", at), text.bytes.size());
    out.Append(text, at, brace);
    if (brace == text.bytes.size()) break;
    const char c = text.bytes[brace];
    if (brace + 1 < text.bytes.size() && text.bytes[brace + 1] == c) {
      out.Append(text, brace, brace + 1);
      at = brace + 2;
      continue;
    }
    if (c == '}') return Fail("Single '}' encountered in format string");
    const std::size_t close = text.bytes.find('}', brace);
    if (close == std::string_view::npos) return Fail("expected '}' before end of string");
    const std::string_view field = text.bytes.substr(brace + 1, close - brace - 1);
    if (field.find('{') != std::string_view::npos) return Fail("a field inside a field is not supported");
    AppendField(field, arguments, numbers, out);
    if (failed() || !FitsText(out.size())) return Value::None();
    at = close + 1;
  }
  return failed() ? Value::None() : out.Finish(arena_);
}

void Evaluator::AppendField(std::string_view field, const Arguments& arguments, FieldNumbers& numbers,
                            TextBuilder& out) {
  const std::size_t colon = field.find(':');
  const std::string_view spec_text = colon == std::string_view::npos ? std::string_view() : field.substr(colon + 1);
  std::string_view name = field.substr(0, colon);
  char conversion = '\0';
  if (const std::size_t mark = name.find('!'); mark != std::string_view::npos) {
    if (mark + 2 != name.size() || (name[mark + 1] != 's' && name[mark + 1] != 'r')) {
      Fail("a conversion other than !s and !r is not supported");
      return;
    }
    conversion = name[mark + 1];
    name = name.substr(0, mark);
  }
  Value value = FieldValue(name, arguments, numbers);
  if (failed()) return;
  if (conversion != '\0') value = conversion == 'r' ? ToRepr(value) : ToText(value);
  const auto spec = ParseFormatSpec(spec_text);
  if (!spec) {
    Fail("the format specification '" + std::string(spec_text) + "' is not supported");
    return;
  }
  AppendFormatted(value, spec_text.empty(), *spec, out);
}

/// The argument that a field names: nothing, a number or a name, then .attribute and [item].
Value Evaluator::FieldValue(std::string_view name, const Arguments& arguments, FieldNumbers& numbers) {
  const std::size_t end = std::min(name.find_first_of(".["), name.size());
  const std::string_view first = name.substr(0, end);
  Value value;
  if (first.find_first_not_of("0123456789") == std::string_view::npos) {
    (first.empty() ? numbers.automatic : numbers.manual) = true;
    if (numbers.automatic && numbers.manual)
      return Fail("cannot switch between manual field specification and automatic field numbering");
    std::size_t index = numbers.next;
    if (first.empty())
      ++numbers.next;
    else
      std::from_chars(first.data(), first.data() + first.size(), index);
    if (index >= arguments.positional.size())
      return Fail("Replacement index " + std::to_string(index) + " out of range for positional args tuple");
    value = arguments.positional[index];
  } else {
    const auto named = std::find_if(arguments.named.begin(), arguments.named.end(),
                                    [first](const NamedValue& candidate) { return candidate.name == first; });
    if (named == arguments.named.end()) return Fail("format() has no argument '" + std::string(first) + "'");
    value = named->value;
  }
  name.remove_prefix(end);
  while (!name.empty() && !failed()) {
    const bool is_item = name.front() == '[';
    const std::size_t stop = is_item ? name.find(']') : std::min(name.find_first_of(".[", 1), name.size());
    if (stop == std::string_view::npos || stop < 2) return Fail("a field of this form is not supported");
    const std::string_view key = name.substr(1, stop - 1);
    std::int64_t index = 0;
    const auto [last, error] = std::from_chars(key.data(), key.data() + key.size(), index);
    const bool by_index = is_item && error == std::errc() && last == key.data() + key.size();
    value = GetItem(value, by_index ? Value::Integer(index) : NewText(key), nullptr);
    name.remove_prefix(is_item ? stop + 1 : stop);
  }
  return value;
}

void Evaluator::AppendFormatted(const Value& value, bool is_plain, const FormatSpec& spec, TextBuilder& out) {
  if (is_plain || value.is_text()) {
    const Value text = ToText(value);
    if (failed()) return;
    if (!is_plain &&
        ((spec.type != '\0' && spec.type != 's') || spec.align == '=' || spec.sign != '-' || spec.group != '\0')) {
      Fail("the format specification of a text is not supported");
      return;
    }
    const FlatText flat = Read(text);
    return AppendPadded(flat, BytesOfCharacters(flat.bytes, spec.precision), spec.align == '\0' ? '<' : spec.align,
                        spec, Literal(), out);
  }
  std::optional<std::string> number;
  if (value.is_integral()) number = FormatInteger(value.integer(), spec);
  if (value.is_float()) number = FormatFloat(value.number(), json::PythonRepr(value.number()), spec);
  if (!number || (spec.align == '=' && spec.group != '\0')) {
    FailType("a format specification of this form does not take", value);
    return;
  }
  out.Append(PadNumber(std::move(*number), spec), Literal());
}

// ---- padding --------------------------------------------------------------------------------------------------------

/// center, ljust, rjust and zfill.
Value Evaluator::PadText(const Value& object, MethodId method, const Arguments& arguments) {
  const std::span<const Value> given = arguments.positional;
  const bool takes_fill = method != MethodId::kZfill;
  if (given.empty() || given.size() > (takes_fill ? 2U : 1U) || !arguments.named.empty() || !given[0].is_integral()) {
    return Fail(std::string(arguments.callee) + " takes a width");
  }
  if (given[0].integer() > static_cast<std::int64_t>(kMaximumFormatWidth))
    return Fail("a width of more than " + std::to_string(kMaximumFormatWidth) + " is not supported");
  FormatSpec spec;
  spec.width = static_cast<std::size_t>(std::max<std::int64_t>(0, given[0].integer()));
  if (given.size() == 2) {
    if (!given[1].is_text() || CountCharacters(ReadBytes(given[1])) != 1)
      return Fail("The fill character must be exactly one character long");
    spec.fill = ReadBytes(given[1]);
  }
  const FlatText text = Read(object);
  const std::size_t size = CountCharacters(text.bytes);
  if (size >= spec.width) return object;
  TextBuilder out;
  if (method == MethodId::kZfill) {
    spec.fill = "0";
    const std::size_t sign = text.bytes.starts_with('-') || text.bytes.starts_with('+') ? 1 : 0;
    out.Append(text, 0, sign);
    out.Append(PaddingOf(size, '>', spec).before, Literal());
    out.Append(text, sign, text.bytes.size());
  } else if (method == MethodId::kCenter) {
    const std::size_t missing = spec.width - size;
    const std::size_t before = missing / 2 + (missing & spec.width & 1);
    for (std::size_t i = 0; i < before; ++i) out.Append(spec.fill, Literal());
    out.Append(text);
    for (std::size_t i = before; i < missing; ++i) out.Append(spec.fill, Literal());
  } else {
    AppendPadded(text, text.bytes.size(), method == MethodId::kLjust ? '<' : '>', spec, Literal(), out);
  }
  return out.Finish(arena_);
}

}  // namespace draftmill::jinja

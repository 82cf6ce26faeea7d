// The filters of jinja2 that make a text of a text.
#include <algorithm>
#include <string>
#include <vector>

#include "stages/template/evaluator.h"
#include "stages/template/unicode_text.h"

namespace draftmill::jinja {
namespace {

/// What parts words for the filter `title`.
bool IsWordBreak(char32_t code) {
  return code == '-' || code == '(' || code == '{' || code == '[' || code == '<' || IsPythonSpace(code);
}

}  // namespace

Value Evaluator::FilterIndent(const Value& input, const Arguments& arguments) {
  static constexpr std::string_view kNames[] = {"width", "first", "blank"};
  const Value* given[3] = {nullptr, nullptr, nullptr};
  if (!Bind(arguments, kNames, given)) return Value::None();
  if (!input.is_text()) return FailType("indent takes a text, not", input);
  std::string indent(4, ' ');
  if (given[0] != nullptr) {
    if (given[0]->is_text())
      indent = ReadBytes(*given[0]);
    else if (given[0]->is_integral() && given[0]->integer() <= 256) {
      indent.assign(static_cast<std::size_t>(std::max<std::int64_t>(0, given[0]->integer())), ' ');
    } else
      return Fail("indent takes a width of at most 256");
  }
  const bool first = given[1] != nullptr && Truth(*given[1]);
  const bool blank = given[2] != nullptr && Truth(*given[2]);
  // As jinja2: a newline is added, then lines are indented and joined again; "first" indents the first line too.
  const FlatText text = Read(input);
  const Value extended = JoinTexts(arena_, std::vector<Value>{input, ConstantText("\n")});
  if (!FitsText(text.bytes.size())) return Value::None();
  const Value lines = SplitLines(extended, {});
  TextBuilder result;
  bool is_first = true;
  for (const Value& line : lines.list()->items) {
    if (!Step() || !FitsText(result.size() + indent.size())) return Value::None();
    if (!is_first) result.Append('\n', Literal());
    if ((is_first && first) || (!is_first && (blank || line.text()->size > 0))) result.Append(indent, Literal());
    is_first = false;
    result.Append(Flatten(arena_, line));
  }
  return result.Finish(arena_);
}

Value Evaluator::FilterReplace(const Value& input, const Arguments& arguments) {
  static constexpr std::string_view kNames[] = {"old", "new", "count"};
  const Value* given[3] = {nullptr, nullptr, nullptr};
  if (!Bind(arguments, kNames, given)) return Value::None();
  if (given[0] == nullptr || given[1] == nullptr) return Fail("replace takes two texts");
  if (given[2] != nullptr && !given[2]->is_none() && !given[2]->is_integral())
    return Fail("replace takes an integer count");
  const Value text = ToText(input);
  const Value from = ToText(*given[0]);
  const Value to = ToText(*given[1]);
  if (failed()) return Value::None();
  return ReplaceText(text, from, to, given[2] == nullptr || given[2]->is_none() ? -1 : given[2]->integer());
}

Value Evaluator::FilterTrim(const Value& input, const Arguments& arguments) {
  static constexpr std::string_view kNames[] = {"chars"};
  const Value* characters = nullptr;
  if (!Bind(arguments, kNames, {&characters, 1})) return Value::None();
  const Value text = ToText(input);
  if (failed()) return Value::None();
  const std::span<const Value> given = characters == nullptr ? std::span<const Value>() : std::span(characters, 1);
  return StripText(text, MethodId::kStrip, {given, {}, "trim"});
}

Value Evaluator::FilterCenter(const Value& input, const Arguments& arguments) {
  static constexpr std::string_view kNames[] = {"width"};
  const Value* width = nullptr;
  if (!Bind(arguments, kNames, {&width, 1})) return Value::None();
  const Value given = width != nullptr ? *width : Value::Integer(80);
  const Value text = ToText(input);
  return failed() ? Value::None() : PadText(text, MethodId::kCenter, {{&given, 1}, {}, "center"});
}

Value Evaluator::FilterFormat(const Value& input, const Arguments& arguments) {
  const Value text = ToText(input);
  if (failed()) return Value::None();
  if (arguments.named.empty()) return FormatPercent(text, MakeList(arena_, arguments.positional, ListKind::kTuple));
  if (!arguments.positional.empty()) return Fail("can't handle positional and keyword arguments at the same time");
  std::vector<DictEntry> entries;
  for (const NamedValue& named : arguments.named) entries.push_back({ConstantText(named.name), named.value});
  return FormatPercent(text, MakeDict(arena_, entries));
}

Value Evaluator::FilterTruncate(const Value& input, const Arguments& arguments) {
  static constexpr std::string_view kNames[] = {"length", "killwords", "end", "leeway"};
  const Value* given[4] = {nullptr, nullptr, nullptr, nullptr};
  if (!Bind(arguments, kNames, given)) return Value::None();
  const Value end = given[2] != nullptr ? *given[2] : ConstantText("...");
  const Value numbers[2] = {given[0] != nullptr ? *given[0] : Value::Integer(255),
                            given[3] != nullptr && !given[3]->is_none() ? *given[3] : Value::Integer(5)};
  if (!end.is_text() || !numbers[0].is_integral() || !numbers[1].is_integral())
    return Fail("truncate takes a length, a text and a leeway");
  const auto end_size = static_cast<std::int64_t>(CountCharacters(ReadBytes(end)));
  const std::int64_t length = numbers[0].integer();
  if (length < end_size) return Fail("expected length >= " + std::to_string(end_size));
  if (numbers[1].integer() < 0) return Fail("expected leeway >= 0");
  const Value counted = FilterLength(input);
  if (failed() || counted.integer() - length <= numbers[1].integer()) return input;  // whatever has a length
  if (!input.is_text()) return FailType("truncate takes a text, not", input);
  const FlatText text = Read(input);
  std::size_t kept = ByteOfCharacter(text.bytes, static_cast<std::size_t>(length - end_size));
  if (given[1] == nullptr || !Truth(*given[1])) {
    const std::size_t space = text.bytes.substr(0, kept).rfind(' ');
    if (space != std::string_view::npos) kept = space;
  }
  const Value parts[2] = {SliceText(arena_, text, 0, kept), end};
  return JoinTexts(arena_, parts);
}

/// The first letter of each word large, the others small. Not str.title(): here only some characters part words.
Value Evaluator::FilterTitle(const Value& input) {
  const Value object = ToText(input);
  if (failed()) return Value::None();
  const FlatText text = Read(object);
  Charge(text.bytes.size() * 32);
  TextBuilder out;
  std::string changed;
  for (std::size_t at = 0; at < text.bytes.size() && Step();) {
    const bool in_break = IsWordBreak(DecodeAt(text.bytes, at).code);
    std::size_t end = at;
    while (end < text.bytes.size() && IsWordBreak(DecodeAt(text.bytes, end).code) == in_break)
      end += DecodeAt(text.bytes, end).bytes;
    const std::size_t second = at + DecodeAt(text.bytes, at).bytes;
    const std::string_view rest = text.bytes.substr(second, end - second);
    changed.clear();
    AppendUpper(DecodeAt(text.bytes, at).code, changed);
    out.Append(changed, TagAt(text, at));
    for (std::size_t i = 0; i < rest.size(); i += DecodeAt(rest, i).bytes) {
      changed.clear();
      AppendLowerAt(rest, i, changed);
      out.Append(changed, TagAt(text, second + i));
    }
    at = end;
  }
  if (failed() || !FitsText(out.size())) return Value::None();
  return out.Finish(arena_);
}

Value Evaluator::FilterWordcount(const Value& input) {
  const Value object = ToText(input);
  if (failed()) return Value::None();
  const std::string_view text = ReadBytes(object);
  std::int64_t words = 0;
  bool in_word = false;
  for (std::size_t at = 0; at < text.size(); at += DecodeAt(text, at).bytes) {
    const char32_t code = DecodeAt(text, at).code;
    const bool is_word = code == '_' || IsAlphabetic(code) || IsNumeric(code);
    if (is_word && !in_word) ++words;
    in_word = is_word;
  }
  return Value::Integer(words);
}

}  // namespace draftmill::jinja

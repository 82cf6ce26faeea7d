// The methods of Python's str, list and dict that templates call.
#include <algorithm>
#include <bitset>
#include <limits>
#include <vector>

#include "base/text_search.h"
#include "stages/template/evaluator.h"
#include "stages/template/unicode_text.h"

namespace draftmill::jinja {
namespace {

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

/// Python's slice bounds of a search: negative ones count from the end.
std::int64_t ClampBound(std::int64_t bound, std::int64_t size) {
  return bound < 0 ? std::max<std::int64_t>(0, bound + size) : std::min(bound, size);
}

/// The characters of a text, for strip().
class CharacterSet {
 public:
  explicit CharacterSet(std::string_view characters) {
    for (std::size_t at = 0; at < characters.size();) {
      const DecodedCharacter character = DecodeAt(characters, at);
      at += character.bytes;
      if (character.code < ascii_.size())
        ascii_.set(character.code);
      else
        others_.push_back(character.code);
    }
    std::sort(others_.begin(), others_.end());
  }

  /// Bytes at the start of `text` that belong to characters of the set.
  std::size_t LeadingBytes(std::string_view text) const {
    std::size_t at = 0;
    while (at < text.size()) {
      const DecodedCharacter character = DecodeAt(text, at);
      if (!Has(character.code)) break;
      at += character.bytes;
    }
    return at;
  }
  std::size_t TrailingBytes(std::string_view text) const {
    std::size_t end = text.size();
    while (end > 0) {
      const std::size_t begin = CharacterBegin(text, end);
      if (!Has(DecodeAt(text, begin).code)) break;
      end = begin;
    }
    return text.size() - end;
  }

 private:
  bool Has(char32_t code) const {
    if (code < ascii_.size()) return ascii_.test(code);
    return std::binary_search(others_.begin(), others_.end(), code);
  }

  std::bitset<128> ascii_;
  std::vector<char32_t> others_;
};

bool IsLineBreak(char32_t code) {
  return (code >= 0x0A && code <= 0x0D) || (code >= 0x1C && code <= 0x1E) || code == 0x85 || code == 0x2028 ||
         code == 0x2029;
}

std::string_view HtmlEscape(char c) {
  switch (c) {
    case '&': return "&amp;";
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '\'': return "&#39;";
    case '"': return "&#34;";
    default: return {};
  }
}

}  // namespace

bool Evaluator::Bind(const Arguments& arguments, std::span<const std::string_view> names, std::span<const Value*> out) {
  if (arguments.positional.size() > names.size()) {
    Fail(std::string(arguments.callee) + " takes at most " + std::to_string(names.size()) + " arguments");
    return false;
  }
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) out[i] = &arguments.positional[i];
  for (const NamedValue& named : arguments.named) {
    const auto name = std::find(names.begin(), names.end(), named.name);
    if (name == names.end()) {
      Fail(std::string(arguments.callee) + " has no argument '" + std::string(named.name) + "'");
      return false;
    }
    const Value*& place = out[static_cast<std::size_t>(name - names.begin())];
    if (place != nullptr) {
      Fail(std::string(arguments.callee) + " got multiple values for '" + std::string(named.name) + "'");
      return false;
    }
    place = &named.value;
  }
  return true;
}

Value Evaluator::CallMethod(const Value& object, MethodId method, const Arguments& arguments) {
  if (object.is_text()) return CallTextMethod(object, method, arguments);
  if (object.is_dict()) return CallDictMethod(object, method, arguments);
  if (object.is_list()) return CallListMethod(object, method, arguments);
  if (method == MethodId::kChanged) {
    LoopState& loop = *object.loop();
    const Value now = MakeList(arena_, arguments.positional, ListKind::kTuple);
    if (loop.has_changed && Equal(arena_, loop.changed, now)) return Value::Bool(false);
    loop.has_changed = true;
    loop.changed = now;
    return Value::Bool(true);
  }
  if (arguments.positional.empty()) return Fail("no items for cycling given");
  const auto turn = static_cast<std::size_t>(object.loop()->index0) % arguments.positional.size();
  return arguments.positional[turn];
}

// ---- dicts and lists ------------------------------------------------------------------------------------------------

Value Evaluator::CallDictMethod(const Value& object, MethodId method, const Arguments& arguments) {
  const Dict& dict = *object.dict();
  if (method == MethodId::kGet) {
    const std::size_t count = arguments.positional.size();
    if (count < 1 || count > 2 || !arguments.named.empty()) return Fail("get takes a key and a default");
    const Value& key = arguments.positional[0];
    if (key.is_dict() || key.is_list_of(ListKind::kList)) return FailType("unhashable type", key);
    Charge(dict.entries.size() * 8);
    const Value* value = FindKey(arena_, dict, key);
    if (value != nullptr) return *value;
    return count == 2 ? arguments.positional[1] : Value::None();
  }
  if (!arguments.positional.empty() || !arguments.named.empty()) {
    return Fail(std::string(arguments.callee) + "() takes no arguments");
  }
  return method == MethodId::kCopy ? object : DictView(dict, method);
}

Value Evaluator::DictView(const Dict& dict, MethodId method) {
  Charge(dict.entries.size() * 32);
  List* view = arena_.Make<List>();
  view->kind = ListKind::kView;
  view->type_name =
      method == MethodId::kItems ? "dict_items" : (method == MethodId::kKeys ? "dict_keys" : "dict_values");
  view->items = arena_.MakeArray<Value>(dict.entries.size());
  view->depth = dict.depth + 1;
  for (std::size_t i = 0; i < dict.entries.size(); ++i) {
    const DictEntry& entry = dict.entries[i];
    if (method == MethodId::kItems) {
      const Value pair[2] = {entry.key, entry.value};
      view->items[i] = MakeList(arena_, pair, ListKind::kTuple);
    } else {
      view->items[i] = method == MethodId::kKeys ? entry.key : entry.value;
    }
  }
  return Value::Of(view);
}

Value Evaluator::CallListMethod(const Value& object, MethodId method, const Arguments& arguments) {
  const std::span<Value> items = object.list()->items;
  if (method == MethodId::kCopy) return object;
  if (arguments.positional.size() != 1 || !arguments.named.empty()) {
    return Fail(std::string(arguments.callee) + "() of a list takes one argument");
  }
  Charge(items.size() * 16);
  std::int64_t count = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!Equal(arena_, items[i], arguments.positional[0])) continue;
    if (method == MethodId::kIndex) return Value::Integer(static_cast<std::int64_t>(i));
    ++count;
  }
  if (method == MethodId::kIndex) return Fail("the value is not in the list");
  return Value::Integer(count);
}

// ---- text -----------------------------------------------------------------------------------------------------------

Value Evaluator::CallTextMethod(const Value& object, MethodId method, const Arguments& arguments) {
  if (object.is_markup()) return Fail("methods of text marked safe are not supported");
  switch (method) {
    case MethodId::kSplit:
    case MethodId::kRsplit: return SplitText(object, method, arguments);
    case MethodId::kSplitlines: return SplitLines(object, arguments);
    case MethodId::kStrip:
    case MethodId::kLstrip:
    case MethodId::kRstrip: return StripText(object, method, arguments);
    case MethodId::kStartswith:
    case MethodId::kEndswith:
    case MethodId::kRemoveprefix:
    case MethodId::kRemovesuffix: return StartsOrEnds(object, method, arguments);
    case MethodId::kFind:
    case MethodId::kRfind:
    case MethodId::kIndex:
    case MethodId::kRindex:
    case MethodId::kCount: return FindText(object, method, arguments);
    case MethodId::kPartition:
    case MethodId::kRpartition: return PartitionText(object, method, arguments);
    case MethodId::kJoin: {
      if (arguments.positional.size() != 1 || !arguments.named.empty()) return Fail("join takes one list");
      const std::span<Value> items = Items(arguments.positional[0]);
      for (const Value& item : items) {
        if (!item.is_text()) return FailType("join takes texts, not", item);
      }
      return failed() ? Value::None() : JoinWith(object, items);
    }
    case MethodId::kReplace: {
      const std::span<const Value> given = arguments.positional;
      if (given.size() < 2 || given.size() > 3 || !arguments.named.empty() || !given[0].is_text() ||
          !given[1].is_text() || (given.size() == 3 && !given[2].is_integral())) {
        return Fail("replace takes two texts and a number");
      }
      return ReplaceText(object, given[0], given[1], given.size() == 3 ? given[2].integer() : -1);
    }
    case MethodId::kFormat: return FormatBraces(object, arguments);
    case MethodId::kCenter:
    case MethodId::kLjust:
    case MethodId::kRjust:
    case MethodId::kZfill: return PadText(object, method, arguments);
    default: break;
  }
  if (!arguments.positional.empty() || !arguments.named.empty()) {
    return Fail(std::string(arguments.callee) + "() takes no arguments");
  }
  switch (method) {
    case MethodId::kUpper:
    case MethodId::kLower:
    case MethodId::kCapitalize:
    case MethodId::kTitle: return ChangeCase(object, method);
    default: return ClassifyText(object, method);
  }
}

Value Evaluator::SplitText(const Value& object, MethodId method, const Arguments& arguments) {
  static constexpr std::string_view kNames[] = {"sep", "maxsplit"};
  const Value* given[2] = {nullptr, nullptr};
  if (!Bind(arguments, kNames, given)) return Value::None();
  const bool by_space = given[0] == nullptr || given[0]->is_none();
  if (!by_space && !given[0]->is_text()) return FailType("split takes a text, not", *given[0]);
  if (given[1] != nullptr && !given[1]->is_integral()) return FailType("split takes a number, not", *given[1]);
  const std::int64_t limit = given[1] == nullptr || given[1]->integer() < 0 ? kNoLimit : given[1]->integer();
  const bool from_end = method == MethodId::kRsplit;
  const FlatText text = Read(object);
  if (by_space) return from_end ? SplitBySpaceFromEnd(text, limit) : SplitBySpace(text, limit);
  const std::string_view separator = ReadBytes(*given[0]);
  if (separator.empty()) return Fail("empty separator");
  return SplitBy(text, separator, limit, from_end);
}

Value Evaluator::SplitBy(const FlatText& text, std::string_view separator, std::int64_t limit, bool from_end) {
  std::vector<Value> parts;
  std::size_t begin = 0;
  std::size_t end = text.bytes.size();
  while (Step()) {
    const std::string_view rest = text.bytes.substr(begin, end - begin);
    const std::size_t found = limit == 0
                                  ? std::string_view::npos
                                  : (from_end ? FindLastSubstring(rest, separator) : FindSubstring(rest, separator));
    if (found == std::string_view::npos) {
      parts.push_back(SliceText(arena_, text, begin, end));
      break;
    }
    --limit;
    if (from_end) {
      parts.push_back(SliceText(arena_, text, begin + found + separator.size(), end));
      end = begin + found;
    } else {
      parts.push_back(SliceText(arena_, text, begin, begin + found));
      begin += found + separator.size();
    }
  }
  if (from_end) std::reverse(parts.begin(), parts.end());
  return MakeList(arena_, parts);
}

/// Words; when the splits run out the rest keeps the white space at its end.
Value Evaluator::SplitBySpace(const FlatText& text, std::int64_t limit) {
  std::vector<Value> parts;
  std::size_t begin = LeadingSpaceBytes(text.bytes);
  while (begin < text.bytes.size() && Step()) {
    std::size_t end = begin;
    while (end < text.bytes.size() && limit > 0) {
      const DecodedCharacter character = DecodeAt(text.bytes, end);
      if (IsPythonSpace(character.code)) break;
      end += character.bytes;
    }
    if (limit-- == 0) end = text.bytes.size();
    parts.push_back(SliceText(arena_, text, begin, end));
    begin = end + LeadingSpaceBytes(text.bytes.substr(end));
  }
  return MakeList(arena_, parts);
}

/// The same from the end: the rest keeps the white space at its start.
Value Evaluator::SplitBySpaceFromEnd(const FlatText& text, std::int64_t limit) {
  std::vector<Value> parts;
  std::size_t end = text.bytes.size() - TrailingSpaceBytes(text.bytes);
  while (end > 0 && Step()) {
    std::size_t begin = end;
    while (begin > 0 && limit > 0) {
      const std::size_t before = CharacterBegin(text.bytes, begin);
      if (IsPythonSpace(DecodeAt(text.bytes, before).code)) break;
      begin = before;
    }
    if (limit-- == 0) begin = 0;
    parts.push_back(SliceText(arena_, text, begin, end));
    end = begin - TrailingSpaceBytes(text.bytes.substr(0, begin));
  }
  std::reverse(parts.begin(), parts.end());
  return MakeList(arena_, parts);
}

Value Evaluator::SplitLines(const Value& object, const Arguments& arguments) {
  static constexpr std::string_view kNames[] = {"keepends"};
  const Value* keep = nullptr;
  if (!Bind(arguments, kNames, {&keep, 1})) return Value::None();
  const bool keep_ends = keep != nullptr && Truth(*keep);
  const FlatText text = Read(object);
  std::vector<Value> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.bytes.size();) {
    const DecodedCharacter character = DecodeAt(text.bytes, at);
    if (!IsLineBreak(character.code)) {
      at += character.bytes;
      continue;
    }
    if (!Step()) break;
    const bool is_crlf = character.code == '\r' && at + 1 < text.bytes.size() && text.bytes[at + 1] == '\n';
    const std::size_t next = at + (is_crlf ? 2 : character.bytes);
    lines.push_back(SliceText(arena_, text, begin, keep_ends ? next : at));
    begin = at = next;
  }
  if (begin < text.bytes.size()) lines.push_back(SliceText(arena_, text, begin, text.bytes.size()));
  return MakeList(arena_, lines);
}

Value Evaluator::StripText(const Value& object, MethodId method, const Arguments& arguments) {
  if (arguments.positional.size() > 1 || !arguments.named.empty()) return Fail("strip takes one text");
  const FlatText text = Read(object);
  const bool by_space = arguments.positional.empty() || arguments.positional[0].is_none();
  if (!by_space && !arguments.positional[0].is_text())
    return FailType("strip takes a text, not", arguments.positional[0]);
  const CharacterSet set(by_space ? std::string_view() : ReadBytes(arguments.positional[0]));
  std::size_t begin = 0;
  std::size_t end = text.bytes.size();
  if (method != MethodId::kRstrip) begin = by_space ? LeadingSpaceBytes(text.bytes) : set.LeadingBytes(text.bytes);
  if (method != MethodId::kLstrip) {
    const std::string_view rest = text.bytes.substr(begin);
    end -= by_space ? TrailingSpaceBytes(rest) : set.TrailingBytes(rest);
  }
  if (begin == 0 && end == text.bytes.size()) return object;
  return SliceText(arena_, text, begin, end);
}

Value Evaluator::StartsOrEnds(const Value& object, MethodId method, const Arguments& arguments) {
  if (arguments.positional.size() != 1 || !arguments.named.empty()) {
    return Fail(std::string(arguments.callee) + " with more than one argument is not supported");
  }
  const FlatText text = Read(object);
  const Value& given = arguments.positional[0];
  const bool tests = method == MethodId::kStartswith || method == MethodId::kEndswith;
  const bool at_start = method == MethodId::kStartswith || method == MethodId::kRemoveprefix;
  if (tests && given.is_list_of(ListKind::kTuple)) {
    for (const Value& item : given.list()->items) {
      if (!item.is_text()) return FailType("startswith takes texts, not", item);
      const std::string_view affix = ReadBytes(item);
      if (at_start ? text.bytes.starts_with(affix) : text.bytes.ends_with(affix)) return Value::Bool(true);
    }
    return Value::Bool(false);
  }
  if (!given.is_text()) return FailType(std::string(arguments.callee) + " takes a text, not", given);
  const std::string_view affix = ReadBytes(given);
  const bool matches = at_start ? text.bytes.starts_with(affix) : text.bytes.ends_with(affix);
  if (tests) return Value::Bool(matches);
  if (!matches || affix.empty()) return object;
  return at_start ? SliceText(arena_, text, affix.size(), text.bytes.size())
                  : SliceText(arena_, text, 0, text.bytes.size() - affix.size());
}

Value Evaluator::FindText(const Value& object, MethodId method, const Arguments& arguments) {
  const std::span<const Value> given = arguments.positional;
  if (given.empty() || given.size() > 3 || !arguments.named.empty() || !given[0].is_text()) {
    return Fail(std::string(arguments.callee) + " takes a text and two bounds");
  }
  const std::string_view text = ReadBytes(object);
  const std::string_view wanted = ReadBytes(given[0]);
  const auto size = static_cast<std::int64_t>(CountCharacters(text));
  std::int64_t bounds[2] = {0, size};
  for (std::size_t i = 1; i < given.size(); ++i) {
    if (given[i].is_none()) continue;
    if (!given[i].is_integral()) return FailType("bounds must be integers, not", given[i]);
    bounds[i - 1] = ClampBound(given[i].integer(), size);
  }
  const bool empty_range =
      bounds[0] > bounds[1] || (given.size() > 1 && given[1].is_integral() && given[1].integer() > size);
  const std::size_t begin = ByteOfCharacter(text, static_cast<std::size_t>(bounds[0]));
  const std::size_t end = empty_range ? begin : ByteOfCharacter(text, static_cast<std::size_t>(bounds[1]));
  const std::string_view range = text.substr(begin, end - begin);
  if (method == MethodId::kCount) {
    if (empty_range) return Value::Integer(0);
    if (wanted.empty()) return Value::Integer(static_cast<std::int64_t>(CountCharacters(range)) + 1);
    std::int64_t count = 0;
    for (std::size_t at = FindSubstring(range, wanted); at != std::string_view::npos;
         at = FindSubstring(range, wanted, at + wanted.size()))
      ++count;
    return Value::Integer(count);
  }
  const std::size_t found =
      empty_range ? std::string_view::npos
                  : (method == MethodId::kRfind || method == MethodId::kRindex ? FindLastSubstring(range, wanted)
                                                                               : FindSubstring(range, wanted));
  if (found != std::string_view::npos) {
    return Value::Integer(bounds[0] + static_cast<std::int64_t>(CountCharacters(range.substr(0, found))));
  }
  const bool must_exist = method == MethodId::kIndex || method == MethodId::kRindex;
  return must_exist ? Fail("substring not found") : Value::Integer(-1);
}

Value Evaluator::PartitionText(const Value& object, MethodId method, const Arguments& arguments) {
  if (arguments.positional.size() != 1 || !arguments.named.empty() || !arguments.positional[0].is_text()) {
    return Fail(std::string(arguments.callee) + " takes one text");
  }
  const FlatText text = Read(object);
  const std::string_view separator = ReadBytes(arguments.positional[0]);
  if (separator.empty()) return Fail("empty separator");
  const bool from_end = method == MethodId::kRpartition;
  const std::size_t found = from_end ? FindLastSubstring(text.bytes, separator) : FindSubstring(text.bytes, separator);
  if (found == std::string_view::npos) {
    const Value nothing = ConstantText("");
    const Value parts[3] = {from_end ? nothing : object, nothing, from_end ? object : nothing};
    return MakeList(arena_, parts, ListKind::kTuple);
  }
  const Value parts[3] = {SliceText(arena_, text, 0, found), SliceText(arena_, text, found, found + separator.size()),
                          SliceText(arena_, text, found + separator.size(), text.bytes.size())};
  return MakeList(arena_, parts, ListKind::kTuple);
}

Value Evaluator::ReplaceText(const Value& object, const Value& from, const Value& to, std::int64_t count) {
  const FlatText text = Read(object);
  const std::string_view wanted = ReadBytes(from);
  const FlatText replacement = Read(to);
  std::int64_t left = count < 0 ? kNoLimit : count;
  builder_.Clear();
  std::size_t copied = 0;
  std::size_t at = 0;
  while (left > 0 && Step()) {
    const std::size_t found = FindSubstring(text.bytes, wanted, at);
    if (found == std::string_view::npos || found > text.bytes.size()) break;
    builder_.Append(text, copied, found);
    builder_.Append(replacement);
    if (builder_.size() > kMaximumTextBytes) break;
    copied = found + wanted.size();
    --left;
    if (!wanted.empty()) {
      at = copied;
    } else if (found == text.bytes.size()) {
      break;
    } else {
      at = found + DecodeAt(text.bytes, found).bytes;
    }
  }
  if (failed()) return Value::None();
  if (copied == 0 && builder_.size() == 0) return object;
  builder_.Append(text, copied, text.bytes.size());
  if (!FitsText(builder_.size())) return Value::None();
  return builder_.Finish(arena_);
}

Value Evaluator::ChangeCase(const Value& object, MethodId method) {
  const FlatText text = Read(object);
  builder_.Clear();
  if (IsAscii(text.bytes) && method != MethodId::kTitle) return ChangeAsciiCase(text, method);
  Charge(text.bytes.size() * 32);
  std::string changed;
  bool starts_word = true;
  for (std::size_t at = 0; at < text.bytes.size();) {
    const DecodedCharacter character = DecodeAt(text.bytes, at);
    changed.clear();
    const bool first = at == 0;
    if (method == MethodId::kUpper)
      AppendUpper(character.code, changed);
    else if (method == MethodId::kTitle ? starts_word : method == MethodId::kCapitalize && first)
      AppendTitle(character.code, changed);
    else
      AppendLowerAt(text.bytes, at, changed);
    starts_word = !IsUppercase(character.code) && !IsLowercase(character.code);
    builder_.Append(changed, TagAt(text, at));
    at += character.bytes;
  }
  if (!FitsText(builder_.size())) return Value::None();
  return builder_.Finish(arena_);
}

Value Evaluator::ChangeAsciiCase(const FlatText& text, MethodId method) {
  Charge(text.bytes.size() * 4);
  char* changed = static_cast<char*>(arena_.Allocate(text.bytes.size()));
  for (std::size_t i = 0; i < text.bytes.size(); ++i) {
    const char c = text.bytes[i];
    const bool to_upper = method == MethodId::kUpper || (method == MethodId::kCapitalize && i == 0);
    if (to_upper)
      changed[i] = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    else
      changed[i] = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  const std::string_view bytes(changed, text.bytes.size());
  return text.runs.empty() ? TextOf(arena_, bytes, text.tag) : TextOf(arena_, bytes, text.runs);
}

Value Evaluator::ClassifyText(const Value& object, MethodId method) {
  const std::string_view text = ReadBytes(object);
  bool all = !text.empty() || method == MethodId::kIsascii;
  bool any_cased = false;
  for (std::size_t at = 0; at < text.size() && all;) {
    const DecodedCharacter character = DecodeAt(text, at);
    at += character.bytes;
    const bool upper = IsUppercase(character.code);
    const bool lower = IsLowercase(character.code);
    switch (method) {
      case MethodId::kIsspace: all = IsPythonSpace(character.code); break;
      case MethodId::kIsalpha: all = IsAlphabetic(character.code); break;
      case MethodId::kIsdecimal: all = IsDecimalDigit(character.code); break;
      case MethodId::kIsdigit: all = IsDigit(character.code); break;
      case MethodId::kIsascii: all = character.code < 0x80; break;
      case MethodId::kIsalnum: all = IsAlphabetic(character.code) || IsNumeric(character.code); break;
      case MethodId::kIsupper: all = !lower; break;
      default: all = !upper; break;  // islower
    }
    any_cased = any_cased || upper || lower;
  }
  const bool needs_case = method == MethodId::kIsupper || method == MethodId::kIslower;
  return Value::Bool(all && (!needs_case || any_cased));
}

Value Evaluator::EscapeHtml(const Value& object) {
  const FlatText text = Read(object);
  builder_.Clear();
  std::size_t copied = 0;
  for (std::size_t at = 0; at < text.bytes.size(); ++at) {
    const std::string_view escape = HtmlEscape(text.bytes[at]);
    if (escape.empty()) continue;
    builder_.Append(text, copied, at);
    builder_.Append(escape, TagAt(text, at));
    copied = at + 1;
  }
  if (copied == 0) return object;
  builder_.Append(text, copied, text.bytes.size());
  if (!FitsText(builder_.size())) return Value::None();
  return builder_.Finish(arena_);
}

Value Evaluator::JoinWith(const Value& separator, std::span<const Value> items) {
  if (!arena_.Fits(items.size() * 2 * (sizeof(Value) + sizeof(TextPiece)))) FailLimits();
  if (failed()) return Value::None();
  std::vector<Value> texts;
  texts.reserve(items.size() * 2);
  std::size_t size = 0;
  for (std::size_t i = 0; i < items.size() && Step(); ++i) {
    if (i > 0 && separator.text()->size > 0) texts.push_back(separator);
    texts.push_back(items[i]);
    size += items[i].text()->size + (i > 0 ? separator.text()->size : 0);
  }
  if (!FitsText(size)) return Value::None();
  return JoinTexts(arena_, texts);
}

}  // namespace draftmill::jinja

#include "stages/template/value.h"

#include <algorithm>
#include <cmath>

namespace draftmill::jinja {
namespace {

/// Adds the runs of `text` within [begin, end) to `runs`, whose text so far is `base` bytes long.
void AppendRuns(const FlatText& text, std::size_t begin, std::size_t end, std::size_t base,
                std::vector<TextRun>& runs) {
  if (begin >= end) return;
  const auto add = [&runs](std::size_t run_end, Provenance tag) {
    if (!runs.empty() && runs.back().tag == tag) {
      runs.back().end = static_cast<std::uint32_t>(run_end);
    } else {
      runs.push_back({static_cast<std::uint32_t>(run_end), tag});
    }
  };
  if (text.runs.empty()) {
    add(base + end - begin, text.tag);
    return;
  }
  auto run = std::upper_bound(text.runs.begin(), text.runs.end(), begin,
                              [](std::size_t position, const TextRun& candidate) { return position < candidate.end; });
  for (; run != text.runs.end(); ++run) {
    const std::size_t run_end = std::min<std::size_t>(run->end, end);
    add(base + run_end - begin, run->tag);
    if (run_end == end) break;
  }
}

Value NewFlat(Arena& arena, const char* data, std::size_t size, std::span<const TextRun> runs) {
  TextRep* rep = arena.Make<TextRep>();
  rep->data = data;
  rep->size = static_cast<std::uint32_t>(size);
  if (runs.size() <= 1) return Value::Text(rep, runs.empty() ? Provenance() : runs.front().tag);
  const std::span<TextRun> copy = arena.MakeArray<TextRun>(runs.size());
  std::copy(runs.begin(), runs.end(), copy.begin());
  rep->runs = copy.data();
  rep->count = static_cast<std::uint32_t>(copy.size());
  return Value::Text(rep, Provenance());
}

FlatText ViewFlat(const TextRep& rep, Provenance tag) {
  return {{rep.data, rep.size}, tag, {rep.runs, rep.runs == nullptr ? 0 : rep.count}};
}

/// Copies the pieces of a joined text together, without recursion: a chain of additions nests as deep as it is long.
void FlattenJoined(Arena& arena, TextRep& rep) {
  char* bytes = static_cast<char*>(arena.Allocate(rep.size));
  std::size_t size = 0;
  std::vector<TextRun> runs;
  std::vector<TextPiece> pending;
  const auto push = [&pending](const TextRep& joined) {
    for (std::uint32_t i = joined.count; i > 0; --i) pending.push_back(joined.pieces[i - 1]);
  };
  push(rep);
  while (!pending.empty()) {
    const TextPiece piece = pending.back();
    pending.pop_back();
    if (piece.rep->data == nullptr) {
      push(*piece.rep);
      continue;
    }
    if (piece.rep->size == 0) continue;
    std::memcpy(bytes + size, piece.rep->data, piece.rep->size);
    AppendRuns(ViewFlat(*piece.rep, piece.tag), 0, piece.rep->size, size, runs);
    size += piece.rep->size;
  }
  const std::span<TextRun> copy = arena.MakeArray<TextRun>(runs.size());
  std::copy(runs.begin(), runs.end(), copy.begin());
  rep.pieces = nullptr;
  rep.runs = copy.data();
  rep.count = static_cast<std::uint32_t>(copy.size());
  rep.data = bytes;
}

std::uint32_t DeepestOf(std::span<const Value> items) {
  std::uint32_t depth = 0;
  for (const Value& item : items) depth = std::max(depth, DepthOf(item));
  return depth;
}

/// A big integer from JSON always lies outside int64, so that only its sign is needed to order it against one.
bool IsNegativeBig(Arena& arena, const Value& value) { return Bytes(arena, value).starts_with('-'); }

std::optional<int> CompareNumbers(Arena& arena, const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) {
    return a.integer() == b.integer() ? 0 : (a.integer() < b.integer() ? -1 : 1);
  }
  if (a.is_big_integer() && b.is_big_integer()) {
    const std::string_view x = Bytes(arena, a);
    const std::string_view y = Bytes(arena, b);
    if (x == y) return 0;
    const bool negative = x.starts_with('-');
    if (negative != y.starts_with('-')) return negative ? -1 : 1;
    const bool smaller = x.size() != y.size() ? x.size() < y.size() : x < y;
    return smaller != negative ? -1 : 1;
  }
  if (a.is_big_integer() && b.is_integral()) return IsNegativeBig(arena, a) ? -1 : 1;
  if (b.is_big_integer() && a.is_integral()) return IsNegativeBig(arena, b) ? 1 : -1;
  if (a.is_big_integer() || b.is_big_integer()) return std::nullopt;
  const double x = a.number();
  const double y = b.number();
  if (std::isnan(x) || std::isnan(y)) return std::nullopt;
  return x == y ? 0 : (x < y ? -1 : 1);
}

bool EqualLists(Arena& arena, const List& a, const List& b) {
  if (a.kind != b.kind || a.items.size() != b.items.size()) return false;
  if (a.kind == ListKind::kView || a.kind == ListKind::kGenerator) return false;
  arena.Work(a.items.size() * 16);
  for (std::size_t i = 0; i < a.items.size(); ++i) {
    if (!Equal(arena, a.items[i], b.items[i])) return false;
  }
  return true;
}

bool EqualDicts(Arena& arena, const Dict& a, const Dict& b) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const DictEntry& entry : a.entries) {
    arena.Work(b.entries.size() * 16);
    if (arena.over_budget()) return false;
    const Value* other = FindKey(arena, b, entry.key);
    if (other == nullptr || !Equal(arena, entry.value, *other)) return false;
  }
  return true;
}

std::size_t CharacterBytes(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xE0) return 2;
  return lead < 0xF0 ? 3 : 4;
}

}  // namespace

Provenance TagAt(const FlatText& text, std::size_t at) {
  if (text.runs.empty()) return text.tag;
  return std::upper_bound(text.runs.begin(), text.runs.end(), at,
                          [](std::size_t position, const TextRun& run) { return position < run.end; })
      ->tag;
}

FlatText Flatten(Arena& arena, const Value& text) {
  TextRep* rep = text.text();
  if (rep->data == nullptr) FlattenJoined(arena, *rep);
  return ViewFlat(*rep, text.tag());
}

Value TextOf(Arena& arena, std::string_view bytes, Provenance tag) {
  TextRep* rep = arena.Make<TextRep>();
  rep->data = bytes.empty() ? "" : bytes.data();
  rep->size = static_cast<std::uint32_t>(bytes.size());
  return Value::Text(rep, tag);
}

Value TextOf(Arena& arena, std::string_view bytes, std::span<const TextRun> runs) {
  return NewFlat(arena, bytes.empty() ? "" : bytes.data(), bytes.size(), runs);
}

Value SliceText(Arena& arena, const FlatText& text, std::size_t begin, std::size_t end) {
  if (text.runs.empty()) return TextOf(arena, text.bytes.substr(begin, end - begin), text.tag);
  std::vector<TextRun> runs;
  AppendRuns(text, begin, end, 0, runs);
  return NewFlat(arena, text.bytes.data() + begin, end - begin, runs);
}

Value JoinTexts(Arena& arena, std::span<const Value> texts) {
  TextRep* rep = arena.Make<TextRep>();
  std::size_t size = 0;
  std::size_t used = 0;
  const std::span<TextPiece> pieces = arena.MakeArray<TextPiece>(texts.size());
  for (const Value& text : texts) {
    if (text.text()->size == 0) continue;
    size += text.text()->size;
    pieces[used++] = text.piece();
  }
  if (used == 0) {
    rep->data = "";
    return Value::Text(rep, Provenance());
  }
  if (used == 1) return Value::Text(pieces[0].rep, pieces[0].tag);
  rep->size = static_cast<std::uint32_t>(size);
  rep->count = static_cast<std::uint32_t>(used);
  rep->pieces = pieces.data();
  return Value::Text(rep, Provenance());
}

Value MakeList(Arena& arena, std::span<const Value> items, ListKind kind) {
  List* list = arena.Make<List>();
  list->items = arena.MakeArray<Value>(items.size());
  std::copy(items.begin(), items.end(), list->items.begin());
  list->kind = kind;
  list->depth = 1 + DeepestOf(items);
  return Value::Of(list);
}

Value MakeDict(Arena& arena, std::span<const DictEntry> entries) {
  Dict* dict = arena.Make<Dict>();
  dict->entries = arena.MakeArray<DictEntry>(entries.size());
  std::copy(entries.begin(), entries.end(), dict->entries.begin());
  for (const DictEntry& entry : entries) dict->depth = std::max(dict->depth, 1 + DepthOf(entry.value));
  return Value::Of(dict);
}

std::uint32_t DepthOf(const Value& value) {
  if (value.is_list()) return value.list()->depth;
  return value.is_dict() ? value.dict()->depth : 0;
}

void TextBuilder::Append(const FlatText& text, std::size_t begin, std::size_t end) {
  if (begin >= end) return;
  AppendRuns(text, begin, end, bytes_.size(), runs_);
  bytes_.append(text.bytes.substr(begin, end - begin));
}

Value TextBuilder::Finish(Arena& arena) {
  const char* data = arena.CopyBytes(bytes_);
  const Value value = NewFlat(arena, data, bytes_.size(), runs_);
  Clear();
  if (bytes_.capacity() > kKeptBytes) bytes_.shrink_to_fit();
  return value;
}

bool Truth(const Value& value) {
  switch (value.kind()) {
    case ValueKind::kUndefined:
    case ValueKind::kNone: return false;
    case ValueKind::kBool:
    case ValueKind::kInteger: return value.integer() != 0;
    case ValueKind::kFloat: return value.number() != 0;
    case ValueKind::kText: return value.text()->size != 0;
    case ValueKind::kList: return value.list()->kind == ListKind::kGenerator || !value.list()->items.empty();
    case ValueKind::kDict: return !value.dict()->entries.empty();
    default: return true;
  }
}

bool Equal(Arena& arena, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return CompareNumbers(arena, a, b) == 0;
  if (a.kind() != b.kind() || arena.over_budget()) return false;
  arena.Work();
  switch (a.kind()) {
    case ValueKind::kUndefined:
    case ValueKind::kNone: return true;
    case ValueKind::kText:
      if (a.text()->size != b.text()->size) return false;
      arena.Work(a.text()->size);
      return Bytes(arena, a) == Bytes(arena, b);
    case ValueKind::kList: return a.list() == b.list() || EqualLists(arena, *a.list(), *b.list());
    case ValueKind::kDict: return a.dict() == b.dict() || EqualDicts(arena, *a.dict(), *b.dict());
    case ValueKind::kNamespace: return a.names() == b.names();
    case ValueKind::kMacro: return a.macro() == b.macro();
    case ValueKind::kLoop: return a.loop() == b.loop();
    case ValueKind::kFunction: return a.function() == b.function();
    default: return false;
  }
}

std::optional<int> Compare(Arena& arena, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return CompareNumbers(arena, a, b);
  if (a.is_text() && b.is_text()) {
    const int order = Bytes(arena, a).compare(Bytes(arena, b));  // UTF-8 keeps the order of code points
    return order == 0 ? 0 : (order < 0 ? -1 : 1);
  }
  if (!a.is_sequence() || !b.is_sequence() || a.list()->kind != b.list()->kind) return std::nullopt;
  const std::span<Value> x = a.list()->items;
  const std::span<Value> y = b.list()->items;
  for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
    if (!Equal(arena, x[i], y[i])) return Compare(arena, x[i], y[i]);
  }
  return x.size() == y.size() ? 0 : (x.size() < y.size() ? -1 : 1);
}

const Value* FindKey(Arena& arena, const Dict& dict, std::string_view key) {
  for (const DictEntry& entry : dict.entries) {
    if (entry.key.is_text() && entry.key.text()->size == key.size() && Bytes(arena, entry.key) == key)
      return &entry.value;
  }
  return nullptr;
}

const Value* FindKey(Arena& arena, const Dict& dict, const Value& key) {
  if (key.is_text()) return FindKey(arena, dict, Bytes(arena, key));
  for (const DictEntry& entry : dict.entries) {
    if (Equal(arena, entry.key, key)) return &entry.value;
  }
  return nullptr;
}

std::optional<std::span<Value>> Iterate(Arena& arena, const Value& value) {
  if (value.is_undefined()) return std::span<Value>();
  if (value.is_list()) {
    List* list = value.list();
    if (list->kind != ListKind::kGenerator) return list->items;
    const std::span<Value> rest = list->items.subspan(list->position);
    list->position = static_cast<std::uint32_t>(list->items.size());
    return rest;
  }
  if (value.is_dict()) {
    const std::span<DictEntry> entries = value.dict()->entries;
    const std::span<Value> keys = arena.MakeArray<Value>(entries.size());
    for (std::size_t i = 0; i < entries.size(); ++i) keys[i] = entries[i].key;
    return keys;
  }
  if (!value.is_text()) return std::nullopt;
  const FlatText text = Flatten(arena, value);
  std::vector<Value> characters;
  for (std::size_t at = 0; at < text.bytes.size() && !arena.over_budget();) {
    const std::size_t next =
        std::min(text.bytes.size(), at + CharacterBytes(static_cast<unsigned char>(text.bytes[at])));
    characters.push_back(SliceText(arena, text, at, next));
    at = next;
  }
  const std::span<Value> items = arena.MakeArray<Value>(characters.size());
  std::copy(characters.begin(), characters.end(), items.begin());
  return items;
}

const char* TypeName(const Value& value) {
  switch (value.kind()) {
    case ValueKind::kUndefined: return "Undefined";
    case ValueKind::kNone: return "NoneType";
    case ValueKind::kBool: return "bool";
    case ValueKind::kInteger:
    case ValueKind::kBigInteger: return "int";
    case ValueKind::kFloat: return "float";
    case ValueKind::kText: return value.is_markup() ? "Markup" : "str";
    case ValueKind::kList:
      if (value.list()->kind == ListKind::kList) return "list";
      return value.list()->kind == ListKind::kTuple ? "tuple" : value.list()->type_name;
    case ValueKind::kDict: return "dict";
    case ValueKind::kNamespace: return "Namespace";
    case ValueKind::kMacro: return "Macro";
    case ValueKind::kLoop: return "LoopContext";
    case ValueKind::kMethod: return "method";
    case ValueKind::kFunction: return "function";
  }
  return "object";
}

Value FromJson(Arena& arena, const json::Value& value, Provenance tag) {
  if (value.is_null()) return Value::None();
  if (value.is_bool()) return Value::Bool(value.as_bool());
  if (value.is_integer()) return Value::Integer(value.as_integer());
  if (value.is_double()) return Value::Float(value.as_double());
  if (value.is_big_integer()) return Value::BigInteger(TextOf(arena, value.as_big_integer().digits, tag).text());
  if (value.is_string()) return TextOf(arena, value.as_string(), tag);
  if (value.is_array()) {
    const json::Array& array = value.as_array();
    List* list = arena.Make<List>();
    list->items = arena.MakeArray<Value>(array.size());
    for (std::size_t i = 0; i < array.size(); ++i) list->items[i] = FromJson(arena, array[i], tag);
    list->depth = 1 + DeepestOf(list->items);
    return Value::Of(list);
  }
  const json::Object& object = value.as_object();
  Dict* dict = arena.Make<Dict>();
  dict->entries = arena.MakeArray<DictEntry>(object.size());
  for (std::size_t i = 0; i < object.size(); ++i) {
    dict->entries[i] = {TextOf(arena, object[i].first, tag), FromJson(arena, object[i].second, tag)};
    dict->depth = std::max(dict->depth, 1 + DepthOf(dict->entries[i].value));
  }
  return Value::Of(dict);
}

}  // namespace draftmill::jinja

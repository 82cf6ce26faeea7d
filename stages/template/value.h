// Values of the template language, with Python's meaning, and text whose runs know where they come from.
//
// A Value is 16 bytes and is copied freely; what it points to lives in the Arena of the rendering or in the parsed
// template, and is immutable, except namespaces and the position of a generator. Functions that could fail in Python
// say so by returning std::nullopt or false, and the evaluator makes the message. Not safe for concurrent use within
// one rendering.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "stages/template/arena.h"
#include "stages/template/provenance.h"

namespace draftmill::jinja {

struct Expr;
struct Macro;
struct LoopState;
struct BoundMethod;
class Value;

/// A run of a text: it ends at byte `end` (exclusive), and begins where the one before it ends.
struct TextRun {
  std::uint32_t end = 0;
  Provenance tag;
};

struct TextPiece;

/// The bytes of a text: flat, or joined from pieces that are copied together only when somebody needs them in one.
struct TextRep {
  std::uint32_t size = 0;
  std::uint32_t count = 0;            ///< flat: number of runs, 0 where the tag of the value counts; joined: pieces
  const char* data = nullptr;         ///< flat: the bytes; joined: nullptr until flattened
  const TextRun* runs = nullptr;      ///< flat, count > 0
  const TextPiece* pieces = nullptr;  ///< joined, count > 0
};

struct TextPiece {
  TextRep* rep = nullptr;
  Provenance tag;
};

enum class ListKind : std::uint8_t { kList, kTuple, kView, kGenerator };

struct List {
  std::span<Value> items;
  ListKind kind = ListKind::kList;
  std::uint32_t position = 0;      ///< of a generator: how many items were taken
  std::uint32_t depth = 1;         ///< one more than the deepest item
  const char* type_name = "list";  ///< Python's name for views and generators, for messages; of a tuple kGroupTypeName
};

/// The pairs that groupby makes have names for their members: grouper and list.
inline constexpr const char* kGroupTypeName = "_GroupTuple";

struct DictEntry;

struct Dict {
  std::span<DictEntry> entries;
  std::int32_t message = Provenance::kNoMessage;  ///< which message of the conversation this is, or was made from
  std::uint32_t depth = 1;                        ///< one more than the deepest value
};

struct NamespaceEntry;

struct Namespace {
  std::span<NamespaceEntry> entries;  ///< capacity
  std::uint32_t size = 0;
};

/// Functions that a template may call by name.
enum class GlobalFunction : std::uint8_t { kNamespace, kRaiseException, kStrftimeNow, kRange, kDict };

enum class ValueKind : std::uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInteger,
  kBigInteger,
  kFloat,
  kText,
  kList,
  kDict,
  kNamespace,
  kMacro,
  kLoop,
  kMethod,
  kFunction
};

class Value {
 public:
  Value() = default;  ///< None
  static Value None() { return {}; }
  static Value Undefined(const Expr* origin) {
    Value v(ValueKind::kUndefined);
    v.as_.origin = origin;
    return v;
  }
  /// What reading a forbidden attribute gives; using it is a security error.
  static Value Unsafe(const Expr* origin) {
    Value v = Undefined(origin);
    v.flag_ = true;
    return v;
  }
  static Value Bool(bool b) {
    Value v(ValueKind::kBool);
    v.as_.integer = b ? 1 : 0;
    return v;
  }
  static Value Integer(std::int64_t i) {
    Value v(ValueKind::kInteger);
    v.as_.integer = i;
    return v;
  }
  static Value Float(double d) {
    Value v(ValueKind::kFloat);
    v.as_.number = d;
    return v;
  }
  static Value BigInteger(TextRep* digits) {
    Value v(ValueKind::kBigInteger);
    v.as_.text = digits;
    return v;
  }
  static Value Text(TextRep* rep, Provenance tag) {
    Value v(ValueKind::kText);
    v.tag_ = tag;
    v.as_.text = rep;
    return v;
  }
  static Value Of(List* list) {
    Value v(ValueKind::kList);
    v.as_.list = list;
    return v;
  }
  static Value Of(Dict* dict) {
    Value v(ValueKind::kDict);
    v.as_.dict = dict;
    return v;
  }
  static Value Of(Namespace* names) {
    Value v(ValueKind::kNamespace);
    v.as_.names = names;
    return v;
  }
  static Value Of(const Macro* macro) {
    Value v(ValueKind::kMacro);
    v.as_.macro = macro;
    return v;
  }
  static Value Of(LoopState* loop) {
    Value v(ValueKind::kLoop);
    v.as_.loop = loop;
    return v;
  }
  static Value Of(const BoundMethod* method) {
    Value v(ValueKind::kMethod);
    v.as_.method = method;
    return v;
  }
  static Value Of(GlobalFunction function) {
    Value v(ValueKind::kFunction);
    v.as_.function = function;
    return v;
  }

  ValueKind kind() const { return kind_; }
  bool is_undefined() const { return kind_ == ValueKind::kUndefined; }
  bool is_none() const { return kind_ == ValueKind::kNone; }
  bool is_bool() const { return kind_ == ValueKind::kBool; }
  bool is_text() const { return kind_ == ValueKind::kText; }
  bool is_list() const { return kind_ == ValueKind::kList; }
  bool is_dict() const { return kind_ == ValueKind::kDict; }
  bool is_float() const { return kind_ == ValueKind::kFloat; }
  bool is_big_integer() const { return kind_ == ValueKind::kBigInteger; }
  /// An integer in Python's sense that fits in 64 bits: also True and False.
  bool is_integral() const { return kind_ == ValueKind::kInteger || kind_ == ValueKind::kBool; }
  bool is_number() const { return is_integral() || is_float() || is_big_integer(); }
  bool is_list_of(ListKind kind) const { return is_list() && as_.list->kind == kind; }
  /// A list or tuple, whose items can be indexed.
  bool is_sequence() const { return is_list_of(ListKind::kList) || is_list_of(ListKind::kTuple); }
  bool is_unsafe() const { return is_undefined() && flag_; }
  bool is_markup() const { return is_text() && flag_; }

  bool boolean() const { return as_.integer != 0; }
  std::int64_t integer() const { return as_.integer; }
  double number() const { return is_float() ? as_.number : static_cast<double>(as_.integer); }
  TextRep* text() const { return as_.text; }
  Provenance tag() const { return tag_; }
  List* list() const { return as_.list; }
  Dict* dict() const { return as_.dict; }
  Namespace* names() const { return as_.names; }
  const Macro* macro() const { return as_.macro; }
  LoopState* loop() const { return as_.loop; }
  const BoundMethod* method() const { return as_.method; }
  GlobalFunction function() const { return as_.function; }
  const Expr* origin() const { return as_.origin; }
  TextPiece piece() const { return {as_.text, tag_}; }

  Value WithMarkup() const {
    Value v = *this;
    v.flag_ = true;
    return v;
  }
  Value WithTag(Provenance tag) const {
    Value v = *this;
    v.tag_ = tag;
    return v;
  }

 private:
  explicit Value(ValueKind kind) : kind_(kind) {}

  ValueKind kind_ = ValueKind::kNone;
  bool flag_ = false;  ///< text: marked safe; undefined: forbidden
  Provenance tag_;     ///< of flat text without runs of its own
  union {
    std::int64_t integer = 0;
    double number;
    TextRep* text;
    List* list;
    Dict* dict;
    Namespace* names;
    const Macro* macro;
    LoopState* loop;
    const BoundMethod* method;
    GlobalFunction function;
    const Expr* origin;
  } as_;
};
static_assert(sizeof(Value) == 16);

struct DictEntry {
  Value key;
  Value value;
};

struct NamespaceEntry {
  std::string_view name;
  Value value;
};

/// The index of the message that a value is, or kNoMessage.
inline std::int32_t MessageOf(const Value& value) {
  return value.is_dict() ? value.dict()->message : Provenance::kNoMessage;
}

/// Text in one piece, with its runs.
struct FlatText {
  std::string_view bytes;
  Provenance tag;  ///< where runs is empty
  std::span<const TextRun> runs;
};

/// The origin of the byte at `at`.
Provenance TagAt(const FlatText& text, std::size_t at);

/// The largest text that the engine builds; every caller that makes longer ones checks first.
inline constexpr std::size_t kMaximumTextBytes = std::size_t{32} << 20;

/// Brings a text into one piece (once; the result is kept) and shows it.
FlatText Flatten(Arena& arena, const Value& text);
/// The bytes alone.
inline std::string_view Bytes(Arena& arena, const Value& text) {
  const TextRep* rep = text.text();
  if (rep->data != nullptr) return {rep->data, rep->size};
  return Flatten(arena, text).bytes;
}

/// Calls visit(std::string_view bytes, Provenance tag) for every run in order.
template <typename Visit>
void VisitRuns(Arena& arena, const Value& text, Visit&& visit);

/// Text of one run whose bytes stay where they are.
Value TextOf(Arena& arena, std::string_view bytes, Provenance tag);
/// Text of several runs whose bytes stay where they are; the last run ends at the end of the bytes.
Value TextOf(Arena& arena, std::string_view bytes, std::span<const TextRun> runs);
/// Bytes [begin, end) of a flat text, sharing its bytes.
Value SliceText(Arena& arena, const FlatText& text, std::size_t begin, std::size_t end);
/// One text from several, sharing their bytes. The sizes together must not pass kMaximumTextBytes.
Value JoinTexts(Arena& arena, std::span<const Value> texts);
Value MakeList(Arena& arena, std::span<const Value> items, ListKind kind = ListKind::kList);
Value MakeDict(Arena& arena, std::span<const DictEntry> entries);
/// How deep lists and dicts are nested in a value; 0 for anything else.
std::uint32_t DepthOf(const Value& value);

/// Collects text run by run; Finish copies it into the arena. Keep one and reuse it: it keeps its memory.
class TextBuilder {
 public:
  void Append(std::string_view bytes, Provenance tag) {
    if (bytes.empty()) return;
    bytes_.append(bytes);
    Close(tag);
  }
  void Append(char byte, Provenance tag) {
    bytes_.push_back(byte);
    Close(tag);
  }
  /// Appends bytes [begin, end) of a text with their runs.
  void Append(const FlatText& text, std::size_t begin, std::size_t end);
  void Append(const FlatText& text) { Append(text, 0, text.bytes.size()); }

  std::size_t size() const { return bytes_.size(); }
  /// The text so far as a value; the builder is empty afterwards.
  Value Finish(Arena& arena);
  void Clear() {
    bytes_.clear();
    runs_.clear();
  }

 private:
  void Close(Provenance tag) {
    const auto end = static_cast<std::uint32_t>(bytes_.size());
    if (!runs_.empty() && runs_.back().tag == tag) {
      runs_.back().end = end;
    } else {
      runs_.push_back({end, tag});
    }
  }

  static constexpr std::size_t kKeptBytes = std::size_t{4} << 20;

  std::string bytes_;
  std::vector<TextRun> runs_;
};

/// Python's truth of a value.
bool Truth(const Value& value);
/// Python's ==, deep; bounded by the depth of values, which the evaluator bounds.
bool Equal(Arena& arena, const Value& a, const Value& b);
/// -1, 0 or 1 as Python orders them; std::nullopt where Python raises a TypeError.
std::optional<int> Compare(Arena& arena, const Value& a, const Value& b);
/// The value of a key, or nullptr. Charges nothing: callers count dict sizes as steps.
const Value* FindKey(Arena& arena, const Dict& dict, std::string_view key);
const Value* FindKey(Arena& arena, const Dict& dict, const Value& key);
/// What a for loop would see: the items of a list, the keys of a dict, the characters of a text, nothing for undefined;
/// std::nullopt where Python raises. A generator is used up by this.
std::optional<std::span<Value>> Iterate(Arena& arena, const Value& value);
/// Python's name of a value's type: "str", "NoneType", "dict".
const char* TypeName(const Value& value);

/// Converts JSON to values whose text carries `tag`; strings stay where they are.
Value FromJson(Arena& arena, const json::Value& value, Provenance tag);

template <typename Visit>
void VisitRuns(Arena& arena, const Value& text, Visit&& visit) {
  const TextRep* rep = text.text();
  if (rep->data == nullptr && rep->count <= 64) {
    bool all_flat = true;
    for (std::uint32_t i = 0; i < rep->count; ++i) all_flat = all_flat && rep->pieces[i].rep->data != nullptr;
    if (all_flat) {
      for (std::uint32_t i = 0; i < rep->count; ++i) {
        VisitRuns(arena, Value::Text(rep->pieces[i].rep, rep->pieces[i].tag), visit);
      }
      return;
    }
  }
  const FlatText flat = Flatten(arena, text);
  if (flat.runs.empty()) {
    visit(flat.bytes, flat.tag);
    return;
  }
  std::size_t begin = 0;
  for (const TextRun& run : flat.runs) {
    visit(flat.bytes.substr(begin, run.end - begin), run.tag);
    begin = run.end;
  }
}

}  // namespace draftmill::jinja

#include "stages/template/python_format.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "base/json.h"
#include "stages/template/unicode_text.h"

namespace draftmill::jinja {
namespace {

/// How large one printed value may become: what cannot be a text is not printed either.
bool TooLong(const TextBuilder& out) { return out.size() > kMaximumTextBytes; }

template <typename Visit>
void VisitFlat(const FlatText& text, Visit&& visit) {
  if (text.runs.empty()) {
    visit(text.bytes, text.tag);
    return;
  }
  std::size_t begin = 0;
  for (const TextRun& run : text.runs) {
    visit(text.bytes.substr(begin, run.end - begin), run.tag);
    begin = run.end;
  }
}

/// Replaces characters run by run; `escape` returns the replacement, or an empty view where the character stays.
template <typename Escape>
void AppendEscaped(std::string_view bytes, Provenance tag, Escape&& escape, TextBuilder& out) {
  std::size_t clean = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    const DecodedCharacter character = DecodeAt(bytes, at);
    const std::string_view replacement = escape(character.code);
    if (!replacement.empty()) {
      out.Append(bytes.substr(clean, at - clean), tag);
      out.Append(replacement, tag);
      clean = at + character.bytes;
    }
    at += character.bytes;
  }
  out.Append(bytes.substr(clean), tag);
}

void AppendNumber(Arena& arena, const Value& value, Provenance literal, TextBuilder& out) {
  if (value.is_big_integer()) {
    out.Append(Bytes(arena, value), literal);
  } else if (value.is_float()) {
    out.Append(json::PythonRepr(value.number()), literal);
  } else {
    out.Append(std::to_string(value.integer()), literal);
  }
}

/// repr() of a text.
void AppendTextRepr(Arena& arena, const Value& value, Provenance literal, TextBuilder& out) {
  const FlatText text = Flatten(arena, value);
  const bool has_single = text.bytes.find('\'') != std::string_view::npos;
  const char quote = has_single && text.bytes.find('"') == std::string_view::npos ? '"' : '\'';
  if (value.is_markup()) out.Append("Markup(", literal);
  out.Append(quote, literal);
  char buffer[16];
  const auto escape = [quote, &buffer](char32_t code) -> std::string_view {
    if (code == static_cast<char32_t>(quote)) return quote == '\'' ? "\\'" : "\\\"";
    if (code == '\\') return "\\\\";
    if (code == '\n') return "\\n";
    if (code == '\r') return "\\r";
    if (code == '\t') return "\\t";
    if (IsPrintable(code)) return {};
    const char* format = code < 0x100 ? "\\x%02x" : (code < 0x10000 ? "\\u%04x" : "\\U%08x");
    return {buffer,
            static_cast<std::size_t>(std::snprintf(buffer, sizeof(buffer), format, static_cast<unsigned>(code)))};
  };
  VisitFlat(text, [&](std::string_view bytes, Provenance tag) { AppendEscaped(bytes, tag, escape, out); });
  out.Append(quote, literal);
  if (value.is_markup()) out.Append(')', literal);
}

class ReprWriter {
 public:
  ReprWriter(Arena& arena, Provenance literal, TextBuilder& out, std::string& reason)
      : arena_(arena), literal_(literal), out_(out), reason_(reason) {}

  bool Write(const Value& value) {
    if (TooLong(out_)) return Fail("a printed value is longer than 32 MiB");
    switch (value.kind()) {
      case ValueKind::kUndefined: out_.Append("Undefined", literal_); return true;
      case ValueKind::kNone: out_.Append("None", literal_); return true;
      case ValueKind::kBool: out_.Append(value.boolean() ? "True" : "False", literal_); return true;
      case ValueKind::kInteger:
      case ValueKind::kBigInteger:
      case ValueKind::kFloat: AppendNumber(arena_, value, literal_, out_); return true;
      case ValueKind::kText: AppendTextRepr(arena_, value, literal_, out_); return true;
      case ValueKind::kList: return WriteList(*value.list());
      case ValueKind::kDict: return WriteDict(*value.dict());
      default: return Fail(std::string("printing a ") + TypeName(value) + " is not supported");
    }
  }

 private:
  bool Fail(std::string reason) {
    reason_ = std::move(reason);
    return false;
  }

  bool WriteList(const List& list) {
    if (list.kind == ListKind::kGenerator) return Fail("printing a generator is not supported; use |list");
    const bool is_view = list.kind == ListKind::kView;
    const bool is_tuple = list.kind == ListKind::kTuple;
    if (is_view) out_.Append(std::string(list.type_name) + "(", literal_);
    out_.Append(is_tuple ? '(' : '[', literal_);
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out_.Append(", ", literal_);
      if (!Write(list.items[i])) return false;
    }
    if (is_tuple && list.items.size() == 1) out_.Append(',', literal_);
    out_.Append(is_tuple ? ')' : ']', literal_);
    if (is_view) out_.Append(')', literal_);
    return true;
  }

  bool WriteDict(const Dict& dict) {
    out_.Append('{', literal_);
    bool first = true;
    for (const DictEntry& entry : dict.entries) {
      if (!first) out_.Append(", ", literal_);
      first = false;
      if (!Write(entry.key)) return false;
      out_.Append(": ", literal_);
      if (!Write(entry.value)) return false;
    }
    out_.Append('}', literal_);
    return true;
  }

  Arena& arena_;
  Provenance literal_;
  TextBuilder& out_;
  std::string& reason_;
};

class JsonWriter {
 public:
  JsonWriter(Arena& arena, const JsonOptions& options, Provenance literal, TextBuilder& out, std::string& reason)
      : arena_(arena), options_(options), literal_(literal), out_(out), reason_(reason) {}

  bool Write(const Value& value) {
    if (TooLong(out_)) return Fail("tojson's result is longer than 32 MiB");
    switch (value.kind()) {
      case ValueKind::kNone: out_.Append("null", literal_); return true;
      case ValueKind::kBool: out_.Append(value.boolean() ? "true" : "false", literal_); return true;
      case ValueKind::kInteger:
      case ValueKind::kBigInteger: AppendNumber(arena_, value, literal_, out_); return true;
      case ValueKind::kFloat: out_.Append(FloatText(value.number()), literal_); return true;
      case ValueKind::kText: WriteText(value); return true;
      case ValueKind::kList: return WriteList(value);
      case ValueKind::kDict: return WriteDict(*value.dict());
      default: return Fail(std::string("Object of type ") + TypeName(value) + " is not JSON serializable");
    }
  }

 private:
  bool Fail(std::string reason) {
    reason_ = std::move(reason);
    return false;
  }

  static std::string FloatText(double number) {
    if (std::isnan(number)) return "NaN";
    if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
    return json::PythonRepr(number);
  }

  void WriteText(const Value& value) {
    out_.Append('"', literal_);
    char buffer[16];
    const bool ensure_ascii = options_.ensure_ascii;
    const auto escape = [ensure_ascii, &buffer](char32_t code) -> std::string_view {
      switch (code) {
        case '"': return "\\\"";
        case '\\': return "\\\\";
        case '\n': return "\\n";
        case '\r': return "\\r";
        case '\t': return "\\t";
        case '\b': return "\\b";
        case '\f': return "\\f";
        default: break;
      }
      if (code >= 0x20 && (code < 0x7F || !ensure_ascii)) return {};
      int size = 0;
      if (code < 0x10000) {
        size = std::snprintf(buffer, sizeof(buffer), "\\u%04x", static_cast<unsigned>(code));
      } else {
        const unsigned pair = static_cast<unsigned>(code) - 0x10000U;
        size =
            std::snprintf(buffer, sizeof(buffer), "\\u%04x\\u%04x", 0xD800U + (pair >> 10), 0xDC00U + (pair & 0x3FFU));
      }
      return {buffer, static_cast<std::size_t>(size)};
    };
    VisitFlat(Flatten(arena_, value),
              [&](std::string_view bytes, Provenance tag) { AppendEscaped(bytes, tag, escape, out_); });
    out_.Append('"', literal_);
  }

  void NewLine() {
    out_.Append('\n', literal_);
    for (int i = 0; i < level_; ++i) out_.Append(options_.indent, literal_);
  }

  /// What stands before an item: the bracket's first line, or a separator.
  void Separate(bool first) {
    if (!first) out_.Append(options_.item_separator, literal_);
    if (options_.has_indent) NewLine();
  }

  void CloseBracket(char bracket) {
    --level_;
    if (options_.has_indent) NewLine();
    out_.Append(bracket, literal_);
  }

  bool WriteList(const Value& value) {
    const List& list = *value.list();
    if (!value.is_sequence())
      return Fail(std::string("Object of type ") + TypeName(value) + " is not JSON serializable");
    if (list.items.empty()) return out_.Append("[]", literal_), true;
    out_.Append('[', literal_);
    ++level_;
    bool first = true;
    for (const Value& item : list.items) {
      Separate(first);
      first = false;
      if (!Write(item)) return false;
    }
    CloseBracket(']');
    return true;
  }

  bool WriteDict(const Dict& dict) {
    if (dict.entries.empty()) return out_.Append("{}", literal_), true;
    std::vector<const DictEntry*> entries;
    entries.reserve(dict.entries.size());
    for (const DictEntry& entry : dict.entries) entries.push_back(&entry);
    if (options_.sort_keys && !Sort(entries)) return false;
    out_.Append('{', literal_);
    ++level_;
    bool first = true;
    for (const DictEntry* entry : entries) {
      Separate(first);
      first = false;
      if (!WriteKey(entry->key)) return false;
      out_.Append(options_.key_separator, literal_);
      if (!Write(entry->value)) return false;
    }
    CloseBracket('}');
    return true;
  }

  bool Sort(std::vector<const DictEntry*>& entries) {
    for (std::size_t i = 1; i < entries.size(); ++i) {
      if (!Compare(arena_, entries[0]->key, entries[i]->key)) return Fail("'<' not supported between keys of a dict");
    }
    std::stable_sort(entries.begin(), entries.end(), [this](const DictEntry* a, const DictEntry* b) {
      return Compare(arena_, a->key, b->key).value_or(0) < 0;
    });
    return true;
  }

  bool WriteKey(const Value& key) {
    switch (key.kind()) {
      case ValueKind::kText: WriteText(key); return true;
      case ValueKind::kNone:
      case ValueKind::kBool:
      case ValueKind::kInteger:
      case ValueKind::kBigInteger:
      case ValueKind::kFloat:
        out_.Append('"', literal_);
        if (!Write(key)) return false;
        out_.Append('"', literal_);
        return true;
      default: return Fail(std::string("keys must be str, int, float, bool or None, not ") + TypeName(key));
    }
  }

  Arena& arena_;
  const JsonOptions& options_;
  Provenance literal_;
  TextBuilder& out_;
  std::string& reason_;
  int level_ = 0;
};

}  // namespace

bool AppendStr(Arena& arena, const Value& value, Provenance literal, TextBuilder& out, std::string& reason) {
  if (value.is_text()) {
    out.Append(Flatten(arena, value));
    return true;
  }
  if (value.is_undefined()) return true;
  return ReprWriter(arena, literal, out, reason).Write(value);
}

bool AppendJson(Arena& arena, const Value& value, const JsonOptions& options, Provenance literal, TextBuilder& out,
                std::string& reason) {
  return JsonWriter(arena, options, literal, out, reason).Write(value);
}

}  // namespace draftmill::jinja

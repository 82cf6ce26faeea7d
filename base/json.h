// JSON as draftmill reads and writes it: a value, a strict bounded parser, a writer whose bytes depend on the value alone.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(json::Value row, json::Parse(line, {}));
//   std::string canonical = json::Write(row, json::Style::kCanonical);
//
// The parser refuses what would be read differently elsewhere: broken UTF-8, lone surrogate escapes, duplicate keys,
// NaN and Infinity, anything after the value. Every refusal says at which byte. Objects keep the order of their keys;
// integers of any size keep their digits. Pure functions, safe from any thread; a Value is not for concurrent writing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"

namespace draftmill::json {

class Value;
using Array = std::vector<Value>;
using Member = std::pair<std::string, Value>;
/// Members in the order of the text.
using Object = std::vector<Member>;

/// An integer outside int64, as its decimal digits with an optional '-'.
struct BigInteger {
  std::string digits;
  friend bool operator==(const BigInteger&, const BigInteger&) = default;
};

/// One JSON value. A default-constructed one is null.
class Value {
 public:
  Value() = default;
  Value(std::nullptr_t) {}                                      // NOLINT(google-explicit-constructor)
  Value(bool value) : data_(value) {}                           // NOLINT(google-explicit-constructor)
  Value(int value) : data_(std::int64_t{value}) {}              // NOLINT(google-explicit-constructor)
  Value(std::int64_t value) : data_(value) {}                   // NOLINT(google-explicit-constructor)
  Value(std::uint64_t value);                                   // NOLINT(google-explicit-constructor)
  Value(double value) : data_(value) {}                         // NOLINT(google-explicit-constructor)
  Value(BigInteger value) : data_(std::move(value)) {}          // NOLINT(google-explicit-constructor)
  Value(std::string value) : data_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Value(std::string_view value) : data_(std::string(value)) {}  // NOLINT(google-explicit-constructor)
  Value(const char* value) : data_(std::string(value)) {}       // NOLINT(google-explicit-constructor)
  Value(Array value) : data_(std::move(value)) {}               // NOLINT(google-explicit-constructor)
  Value(Object value) : data_(std::move(value)) {}              // NOLINT(google-explicit-constructor)

  bool is_null() const { return std::holds_alternative<std::monostate>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_integer() const { return std::holds_alternative<std::int64_t>(data_); }
  bool is_big_integer() const { return std::holds_alternative<BigInteger>(data_); }
  bool is_double() const { return std::holds_alternative<double>(data_); }
  bool is_number() const { return is_integer() || is_double() || is_big_integer(); }
  bool is_string() const { return std::holds_alternative<std::string>(data_); }
  bool is_array() const { return std::holds_alternative<Array>(data_); }
  bool is_object() const { return std::holds_alternative<Object>(data_); }

  /// The content; only where the value is of that kind.
  bool as_bool() const { return std::get<bool>(data_); }
  std::int64_t as_integer() const { return std::get<std::int64_t>(data_); }
  const BigInteger& as_big_integer() const { return std::get<BigInteger>(data_); }
  /// Any number as a double.
  double as_double() const;
  const std::string& as_string() const { return std::get<std::string>(data_); }
  std::string& as_string() { return std::get<std::string>(data_); }
  const Array& as_array() const { return std::get<Array>(data_); }
  Array& as_array() { return std::get<Array>(data_); }
  const Object& as_object() const { return std::get<Object>(data_); }
  Object& as_object() { return std::get<Object>(data_); }

  /// The member of that name, or nullptr where there is none or this is no object.
  const Value* Find(std::string_view key) const;
  Value* Find(std::string_view key);
  /// Sets or appends a member; this value must be an object.
  void Set(std::string_view key, Value value);

  /// "null", "a boolean", "an integer", "a number", "text", "a list", "an object": for messages.
  std::string_view KindName() const;

  /// The same kind and content; members in the same order. 1 and 1.0 differ.
  friend bool operator==(const Value& a, const Value& b);

 private:
  std::variant<std::monostate, bool, std::int64_t, BigInteger, double, std::string, Array, Object> data_;
};

/// What the parser accepts.
struct ParseLimits {
  int max_depth = 256;                           ///< nested lists and objects
  std::size_t max_bytes = std::size_t{1} << 30;  ///< size of the text
};

/// Why a text was refused, for code that counts or reports by kind.
enum class ParseFault : std::uint8_t {
  kSyntax,         ///< not JSON: also an empty or unfinished text, NaN, a number that no double can hold
  kUtf8,           ///< bytes that are not UTF-8
  kLoneSurrogate,  ///< an escape such as \ud83d without its other half: no text can hold it
  kDuplicateKey,   ///< the same key twice in one object: readers differ in which of the two they take
  kTooDeep,        ///< beyond ParseLimits::max_depth
  kTooLong,        ///< beyond ParseLimits::max_bytes
};

/// Where and why Parse stopped.
struct ParseFailure {
  ParseFault fault = ParseFault::kSyntax;
  std::size_t byte = 0;  ///< from 0
};

/// Reads exactly one value, with white space around it. A refusal's message ends with "at byte N" (from 0); the same as
/// a value goes to `failure` where one is given. A byte order mark is refused: the reader of the file skips it.
Result<Value> Parse(std::string_view text, const ParseLimits& limits = {}, ParseFailure* failure = nullptr);

/// How a value is written. Numbers: integers as their digits; doubles as Python's repr (shortest digits that read back),
/// so that hashes and templates agree with the oracles.
enum class Style {
  kCompact,    ///< no white space, keys in their order, non-ASCII as UTF-8
  kCanonical,  ///< as kCompact with the keys of every object sorted by their bytes: what content_hash is taken over
  kPretty,     ///< two spaces of indentation, for people and for files that people read
};

/// The text of a value, as Python's json.dumps(ensure_ascii=False) with the separators of the style. The value must hold
/// valid UTF-8 (what Parse returned always does). Infinities and NaN, which Parse never returns, become Python's words.
std::string Write(const Value& value, Style style = Style::kCompact);

/// Appends the quoted and escaped form of `text` to `out`.
void AppendQuoted(std::string_view text, std::string& out);

/// A double as Python's repr() writes it: "1.0", "1e-07", "0.1", "inf", "nan".
std::string PythonRepr(double value);

}  // namespace draftmill::json

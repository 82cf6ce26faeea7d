// Declared parameters: the one place where a value that a user may set has its name, type, default, range and doc text.
//
// A stage declares its parameters in its StageSpec (stages/stage_spec.h). From the declarations come the strict reading
// of pipeline.yaml, `config show`, the reference page in docs/, and the parts of the stage's fingerprint.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace draftmill {

/// How a parameter is written in YAML and what ParameterValues holds for it.
enum class ParameterType : std::uint8_t {
  kInteger,      ///< 4096; json integer
  kNumber,       ///< 0.05; json double
  kBool,         ///< true or false; json bool
  kText,         ///< any string; json string
  kPath,         ///< a path, relative to the pipeline file; json string, resolved to be usable from the current folder
  kChoice,       ///< one of `choices`; json string
  kBytes,        ///< 256MiB, 1GB or a plain number of bytes; json integer (bytes)
  kDuration,     ///< 90s, 15m, 2h; json integer (milliseconds)
  kTextList,     ///< [a, b]; json array of strings
  kIntegerList,  ///< [2, 15, 27]; json array of integers
  kMapping,      ///< any YAML mapping, e.g. template variables; json object
  kSources,      ///< the list of sources of `ingest`; json array of objects with path, format, take
};

/// One parameter as its stage declares it.
struct ParameterSpec {
  std::string name = {};  ///< "batch_tokens"; unique within its section
  ParameterType type = ParameterType::kText;
  std::string doc = {};           ///< what it does, in full sentences, for the reference page
  std::string default_yaml = {};  ///< the default as it would be written in YAML; empty: must be given
  /// Words accepted instead of a value of the type, e.g. "auto", "model", "none"; kept as a json string.
  std::vector<std::string> words = {};
  std::vector<std::string> choices = {};  ///< for kChoice
  /// For kText: refuses a text that the stage could not use, so that `config check` finds it with its place.
  Status (*check)(std::string_view text) = nullptr;
  std::optional<double> minimum = {};  ///< inclusive, in the unit that ParameterValues holds
  std::optional<double> maximum = {};  ///< inclusive
  /// For kMapping: the keys that may stand in it, each with a default or required. Empty: any mapping.
  std::vector<ParameterSpec> fields = {};
  /// Whether the value changes the bytes that the stage writes, and so is a part of its fingerprint.
  bool in_fingerprint = true;
};

/// Where a value came from, for `config show`.
enum class ValueOrigin : std::uint8_t { kDefault, kFile, kCommandLine };

/// The values of one section after reading and checking: every declared parameter has one.
class ParameterValues {
 public:
  struct Entry {
    json::Value value;
    ValueOrigin origin = ValueOrigin::kDefault;
    int line = 0;  ///< in the pipeline file, from 1; 0 where it stands in none
  };

  void Set(const std::string& name, Entry entry) { entries_[name] = std::move(entry); }
  const std::map<std::string, Entry>& entries() const { return entries_; }

  /// The value of a declared parameter. Asking for one that was not declared is a bug.
  const json::Value& Get(const std::string& name) const;
  std::int64_t Integer(const std::string& name) const { return Get(name).as_integer(); }
  double Number(const std::string& name) const { return Get(name).as_double(); }
  bool Bool(const std::string& name) const { return Get(name).as_bool(); }
  const std::string& Text(const std::string& name) const { return Get(name).as_string(); }
  /// True where the value is one of the declared words, e.g. IsWord("batch_tokens", "auto").
  bool IsWord(const std::string& name, std::string_view word) const;

 private:
  std::map<std::string, Entry> entries_;
};

}  // namespace draftmill

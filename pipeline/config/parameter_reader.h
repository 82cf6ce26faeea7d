// Reads one YAML value as the declaration of its parameter wants it, and writes values back for people.
//
// Used by the configuration (pipeline/config/config.h), by the reference page and by commands that take `--param NAME=VALUE`.
// Thread-compatible: one reader is for one thread. What is wrong is collected as problems with places, never thrown.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "pipeline/config/yaml_document.h"
#include "stages/parameter.h"

namespace draftmill {

/// What a parameter accepts, as it follows "must be": "an integer of at least 1, or `auto`".
std::string DescribeExpected(const ParameterSpec& spec);

/// The value as it would be written in YAML, on one line: "1GiB", "[2, 15, 27]", "auto".
std::string ValueAsYaml(const ParameterSpec& spec, const json::Value& value);

/// The value as JSON shows it: a word that YAML reads as a boolean (`shuffle: false`) is one.
json::Value ValueAsJson(const ParameterSpec& spec, const json::Value& value);

/// A path of a pipeline file, seen from the current folder: absolute ones stay, others stand under `base_folder`. Without "."
/// and ".." where that can be, and without a '/' at its end.
std::string ResolvePath(std::string_view base_folder, std::string_view path);

/// "unknown key `x` in <where>" with the nearest of the names, or all of them.
std::string UnknownKeyMessage(std::string_view key, const std::string& where, const std::vector<std::string>& names);

class ParameterReader {
 public:
  /// Relative paths in values are taken from `base_folder`.
  explicit ParameterReader(std::string base_folder) : base_folder_(std::move(base_folder)) {}

  /// The value of `spec` that `node` holds, or nothing after adding at least one problem. `full_name` is for messages:
  /// "extract.batch_tokens".
  std::optional<json::Value> Read(const ParameterSpec& spec, const yaml::Node& node, const std::string& full_name);

  /// The declared default. A default that its own declaration refuses is a bug.
  json::Value Default(const ParameterSpec& spec, const std::string& full_name);

  void AddProblem(yaml::Place place, std::string message) { problems_.push_back({place, std::move(message)}); }
  const std::vector<yaml::Problem>& problems() const { return problems_; }

 private:
  std::optional<json::Value> ReadTyped(const ParameterSpec& spec, const yaml::Node& node, const std::string& full_name);
  std::optional<json::Value> ReadScalar(const ParameterSpec& spec, const yaml::Node& node,
                                        const std::string& full_name);
  std::optional<json::Value> ReadList(const ParameterSpec& spec, const yaml::Node& node, const std::string& full_name);
  std::optional<json::Value> ReadSources(const ParameterSpec& spec, const yaml::Node& node,
                                         const std::string& full_name);
  std::optional<json::Value> ReadSource(const ParameterSpec& spec, const yaml::Node& node,
                                        const std::string& full_name);
  std::optional<json::Value> ReadFields(const ParameterSpec& spec, const yaml::Node& node,
                                        const std::string& full_name);
  std::optional<json::Value> ReadFree(const yaml::Node& node, const std::string& full_name);
  std::optional<json::Value> ReadFreeMapping(const yaml::Node& node, const std::string& full_name);
  std::nullopt_t Refuse(const ParameterSpec& spec, const yaml::Node& node, const std::string& full_name,
                        const std::string& hint = "");
  bool InRange(const ParameterSpec& spec, double value) const;

  std::string base_folder_;
  std::vector<yaml::Problem> problems_;
};

/// The value that `text` holds when it is read as YAML for this parameter, e.g. from a command line. `full_name` is for
/// messages: "tokenize.max_length".
Result<json::Value> ReadParameterText(const ParameterSpec& spec, const std::string& full_name, std::string_view text,
                                      const std::string& base_folder);

}  // namespace draftmill

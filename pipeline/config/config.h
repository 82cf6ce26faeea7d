// The configuration of a run: one strict YAML file, checked against the declarations of run_spec.h and of the stages.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(Config config, LoadTarget(RealFileSystem(), "configs/demo.yaml", {}));
//   const std::int64_t shard_bytes = config.section("write").Integer("shard_bytes");
//
// A file with anything wrong is refused as a whole (kInvalidConfig): an unknown key, a wrong type, an impossible value,
// each with file:line:column and the nearest valid name; up to kMaxProblemsShown at once. Nothing is started with a
// refused file.
//
// Paths in the file are relative to the folder that the file lies in; in a Config they are usable from the current
// folder. The work folder keeps the file's bytes as its own `pipeline.yaml`; the folder that its paths are relative to
// stands in `run.json` as `config_folder`, itself relative to the work folder, so that both may be moved together. Where
// the model is not found from there, because the work folder was moved alone, the folder's place at the last run
// (`config_folder_was`) counts. Where `run.json` names none, paths of the copy are taken from the work folder.
//
// A Config does not change after loading and may be read from any thread.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "stages/parameter.h"
#include "state/file_system.h"

namespace draftmill {

inline constexpr std::size_t kMaxProblemsShown = 20;
/// The run's own copy of the pipeline file, in the work folder.
inline constexpr std::string_view kPipelineCopyName = "pipeline.yaml";
/// The file of the work folder that names the folder which the copy's paths are relative to, and the key that does.
inline constexpr std::string_view kRunFactsName = "run.json";
inline constexpr std::string_view kConfigFolderKey = "config_folder";
inline constexpr std::string_view kConfigFolderWasKey = "config_folder_was";

/// Values of the command line that take the place of the file's.
struct ConfigOverrides {
  std::optional<std::string> work_folder;  ///< --work, relative to the current folder
};

/// Where a pipeline's text came from.
struct ConfigSource {
  std::string path;         ///< for messages, and to be named in the next command
  std::string base_folder;  ///< relative paths stand under it
};

class Config {
 public:
  /// Checks the text of a pipeline file. Touches no file.
  static Result<Config> Parse(std::string text, const ConfigSource& source, const ConfigOverrides& overrides);

  /// The pipeline file as it was named.
  const std::string& path() const { return path_; }
  /// The bytes of the pipeline file, for the work folder's copy.
  const std::string& text() const { return text_; }
  /// The folder that relative paths of the file stand under.
  const std::string& base_folder() const { return base_folder_; }
  const std::string& work_folder() const { return section("").Text("work"); }

  /// The values of a section: "" for the top level, "model", "limits" or a stage. Another name is a bug.
  const ParameterValues& section(std::string_view name) const;

  /// Every value with its section; paths as they are used. {"work": ..., "model": {...}, "ingest": {...}, ...}
  json::Value EffectiveValues() const;
  /// The same with every value as {"value", "origin", "line"}, for `config show --json`.
  json::Value EffectiveValuesWithOrigins() const;
  /// EffectiveValues in canonical form: equal bytes for equal configurations.
  std::string CanonicalJson() const { return json::Write(EffectiveValues(), json::Style::kCanonical); }
  /// The effective configuration as YAML, each value with its origin in a comment.
  std::string EffectiveYaml() const;

  /// base_folder as the work folder sees it, for run.json's `config_folder`.
  std::string ConfigFolderFromWork() const;
  /// base_folder without symbolic links and from the root, for run.json's `config_folder_was`.
  std::string AbsoluteConfigFolder() const;

 private:
  std::string path_;
  std::string text_;
  std::string base_folder_;
  std::map<std::string, ParameterValues, std::less<>> sections_;
};

/// Reads a pipeline file.
Result<Config> LoadConfig(FileSystem& files, const std::string& path, const ConfigOverrides& overrides);

/// Reads the configuration of TARGET: a pipeline file, or a work folder by its own copy.
Result<Config> LoadTarget(FileSystem& files, const std::string& target, const ConfigOverrides& overrides);

/// The work folder of TARGET, which for a folder needs no readable copy of the pipeline file. It may not exist yet.
Result<std::string> WorkFolderOfTarget(FileSystem& files, const std::string& target, const ConfigOverrides& overrides);

/// docs/configuration.md: every section and parameter from the declarations, in markdown.
std::string ConfigurationReference();

}  // namespace draftmill

#include "pipeline/config/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "pipeline/config/parameter_reader.h"
#include "pipeline/config/run_spec.h"
#include "pipeline/config/yaml_document.h"

namespace draftmill {
namespace {

using yaml::Kind;
using yaml::Node;

std::string_view OriginName(ValueOrigin origin) {
  switch (origin) {
    case ValueOrigin::kDefault: return "default";
    case ValueOrigin::kFile: return "file";
    case ValueOrigin::kCommandLine: return "command line";
  }
  return "";
}

std::string FullName(const SectionSpec& section, const std::string& parameter) {
  return section.name.empty() ? parameter : section.name + "." + parameter;
}

const ParameterSpec* FindParameter(const SectionSpec& section, std::string_view name) {
  for (const ParameterSpec& parameter : section.parameters) {
    if (parameter.name == name) return &parameter;
  }
  return nullptr;
}

/// Reads a document against the declarations; problems of the whole file come together.
class DocumentReader {
 public:
  explicit DocumentReader(const std::string& base_folder) : reader_(base_folder) {}

  std::map<std::string, ParameterValues, std::less<>> Read(const Node& root, const ConfigOverrides& overrides) {
    if (root.kind != Kind::kMapping) {
      reader_.AddProblem(root.kind == Kind::kNull ? yaml::Place{1, 1} : root.place,
                         root.kind == Kind::kNull
                             ? "the file is empty; it must hold at least `work`, `model` and `ingest`"
                             : "the file must be a mapping of sections");
      return {};
    }
    for (const yaml::Member& member : root.members) CheckTopLevelKey(member);
    std::map<std::string, ParameterValues, std::less<>> sections;
    for (const SectionSpec& section : AllSections()) sections[section.name] = ReadSection(section, root, overrides);
    return sections;
  }

  const std::vector<yaml::Problem>& problems() const { return reader_.problems(); }

 private:
  void CheckTopLevelKey(const yaml::Member& member) {
    if (member.key == "generate") {
      reader_.AddProblem(member.place,
                         "`generate` is refused: this version does not generate answers with the target model. "
                         "Remove the section and give conversations with answers in `ingest.sources`");
      return;
    }
    std::vector<std::string> names;
    for (const SectionSpec& section : AllSections()) {
      if (!section.name.empty() && section.name == member.key) return;
      if (section.name.empty()) {
        if (FindParameter(section, member.key) != nullptr) return;
        for (const ParameterSpec& parameter : section.parameters) names.push_back(parameter.name);
      } else {
        names.push_back(section.name);
      }
    }
    AddUnknownKey(member, "", names);
  }

  void AddUnknownKey(const yaml::Member& member, const std::string& section_name,
                     const std::vector<std::string>& names) {
    std::string message =
        UnknownKeyMessage(member.key, section_name.empty() ? "" : "section `" + section_name + "`", names);
    const std::string home = SectionsThatDeclare(member.key);
    if (!home.empty()) message += "; it belongs in section " + home;
    reader_.AddProblem(member.place, std::move(message));
  }

  static std::string SectionsThatDeclare(std::string_view key) {
    std::string list;
    for (const SectionSpec& section : AllSections()) {
      if (!section.name.empty() && FindParameter(section, key) != nullptr) {
        list += (list.empty() ? "`" : " or `") + section.name + "`";
      }
    }
    return list;
  }

  ParameterValues ReadSection(const SectionSpec& section, const Node& root, const ConfigOverrides& overrides) {
    const Node* node = section.name.empty() ? &root : FindSection(section, root);
    if (node != nullptr && !section.name.empty()) CheckSectionKeys(section, *node);
    ParameterValues values;
    for (const ParameterSpec& parameter : section.parameters) {
      if (section.name.empty() && parameter.name == "work" && overrides.work_folder) {
        values.Set("work", {ResolvePath("", *overrides.work_folder), ValueOrigin::kCommandLine, 0});
        continue;
      }
      ReadParameter(section, parameter, node == nullptr ? root : *node, node != nullptr, values);
    }
    return values;
  }

  /// The section's mapping, or nullptr where it is absent, empty or no mapping (which is a problem).
  const Node* FindSection(const SectionSpec& section, const Node& root) {
    for (const yaml::Member& member : root.members) {
      if (member.key != section.name || member.value.kind == Kind::kNull) continue;
      if (member.value.kind == Kind::kMapping) return &member.value;
      reader_.AddProblem(member.value.place, "section `" + section.name + "` must be a mapping of its parameters");
      broken_sections_.push_back(section.name);
    }
    return nullptr;
  }

  void CheckSectionKeys(const SectionSpec& section, const Node& node) {
    std::vector<std::string> names;
    for (const ParameterSpec& parameter : section.parameters) names.push_back(parameter.name);
    for (const yaml::Member& member : node.members) {
      if (FindParameter(section, member.key) == nullptr) AddUnknownKey(member, section.name, names);
    }
  }

  void ReadParameter(const SectionSpec& section, const ParameterSpec& parameter, const Node& node, bool has_section,
                     ParameterValues& values) {
    const std::string full_name = FullName(section, parameter.name);
    for (const yaml::Member& member : node.members) {
      if (!has_section || member.key != parameter.name) continue;
      auto value = reader_.Read(parameter, member.value, full_name);
      if (value) values.Set(parameter.name, {*std::move(value), ValueOrigin::kFile, member.place.line});
      return;
    }
    if (!parameter.default_yaml.empty()) {
      values.Set(parameter.name, {reader_.Default(parameter, full_name), ValueOrigin::kDefault, 0});
      return;
    }
    const bool broken =
        std::find(broken_sections_.begin(), broken_sections_.end(), section.name) != broken_sections_.end();
    if (!broken)
      reader_.AddProblem(node.place,
                         "`" + full_name + "` is missing: it must be given, as " + DescribeExpected(parameter));
  }

  ParameterReader reader_;
  std::vector<std::string> broken_sections_;
};

/// All problems in the order of the file, at most kMaxProblemsShown, and what to do next.
Status RefuseFile(std::vector<yaml::Problem> problems, const std::string& path) {
  std::stable_sort(problems.begin(), problems.end(), [](const yaml::Problem& a, const yaml::Problem& b) {
    return std::pair(a.place.line, a.place.column) < std::pair(b.place.line, b.place.column);
  });
  std::string message;
  const std::size_t shown = std::min(problems.size(), kMaxProblemsShown);
  for (std::size_t i = 0; i < shown; ++i) {
    message +=
        fmt::format("{}:{}:{}: {}\n", path, problems[i].place.line, problems[i].place.column, problems[i].message);
  }
  if (problems.size() > shown) message += fmt::format("... and {} more\n", problems.size() - shown);
  message += fmt::format(
      "{} error{} in the pipeline file. Nothing was started or changed. Correct it, then: draftmill config check {}",
      problems.size(), problems.size() == 1 ? "" : "s", path);
  return InvalidConfig(message);
}

/// The folders that the paths of a work folder's own copy may be relative to, the likeliest first.
Result<std::vector<std::string>> BaseFoldersOfCopy(FileSystem& files, const std::string& work_folder) {
  const std::string path = JoinPath(work_folder, kRunFactsName);
  if (!files.Exists(path)) return std::vector{work_folder};
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string text, files.ReadAll(path, std::int64_t{64} << 20));
  auto facts = json::Parse(text);
  if (!facts.ok())
    return InvalidConfig(path + " is no JSON: " + facts.status().message() +
                         ". Name the pipeline file instead of the work folder");
  std::vector<std::string> folders;
  for (const std::string_view key : {kConfigFolderKey, kConfigFolderWasKey}) {
    const json::Value* folder = facts->Find(key);
    if (folder != nullptr && folder->is_string()) folders.push_back(ResolvePath(work_folder, folder->as_string()));
  }
  if (folders.empty()) folders.push_back(work_folder);
  return folders;
}

Result<bool> IsFolder(FileSystem& files, const std::string& target) {
  auto info = files.Stat(target);
  if (!info.ok() && info.status().code() == StatusCode::kNotFound) {
    return InvalidConfig("there is no pipeline file and no work folder at " + target + ". Nothing was started");
  }
  if (!info.ok()) return info.status();
  return info->is_folder;
}

}  // namespace

Result<Config> Config::Parse(std::string text, const ConfigSource& source, const ConfigOverrides& overrides) {
  yaml::Document document = yaml::ParseDocument(text);
  if (!document.problems.empty()) return RefuseFile(std::move(document.problems), source.path);
  DocumentReader reader(source.base_folder);
  Config config;
  config.sections_ = reader.Read(document.root, overrides);
  if (!reader.problems().empty()) return RefuseFile(reader.problems(), source.path);
  config.path_ = source.path;
  config.base_folder_ = source.base_folder;
  config.text_ = std::move(text);
  return config;
}

const ParameterValues& Config::section(std::string_view name) const {
  const auto found = sections_.find(name);
  DRAFTMILL_CHECK(found != sections_.end(), "no section is named `" + std::string(name) + "`");
  return found->second;
}

json::Value Config::EffectiveValues() const {
  json::Value values{json::Object{}};
  for (const SectionSpec& section_spec : AllSections()) {
    json::Value members{json::Object{}};
    json::Value& target = section_spec.name.empty() ? values : members;
    for (const ParameterSpec& parameter : section_spec.parameters) {
      target.Set(parameter.name, section(section_spec.name).Get(parameter.name));
    }
    if (!section_spec.name.empty()) values.Set(section_spec.name, std::move(members));
  }
  return values;
}

json::Value Config::EffectiveValuesWithOrigins() const {
  json::Value values{json::Object{}};
  for (const SectionSpec& section_spec : AllSections()) {
    json::Value members{json::Object{}};
    json::Value& target = section_spec.name.empty() ? values : members;
    for (const ParameterSpec& parameter : section_spec.parameters) {
      const ParameterValues::Entry& entry = section(section_spec.name).entries().at(parameter.name);
      json::Object shown = {{"value", ValueAsJson(parameter, entry.value)}, {"origin", OriginName(entry.origin)}};
      if (entry.line > 0) shown.emplace_back("line", entry.line);
      target.Set(parameter.name, json::Value(std::move(shown)));
    }
    if (!section_spec.name.empty()) values.Set(section_spec.name, std::move(members));
  }
  return values;
}

std::string Config::EffectiveYaml() const {
  std::string yaml;
  for (const SectionSpec& section_spec : AllSections()) {
    const std::string indentation = section_spec.name.empty() ? "" : "  ";
    if (!section_spec.name.empty()) yaml += section_spec.name + ":\n";
    for (const ParameterSpec& parameter : section_spec.parameters) {
      const ParameterValues::Entry& entry = section(section_spec.name).entries().at(parameter.name);
      const std::string setting = indentation + parameter.name + ": " + ValueAsYaml(parameter, entry.value);
      const std::string origin =
          entry.line > 0 ? fmt::format("line {}", entry.line) : std::string(OriginName(entry.origin));
      yaml += fmt::format("{:<48}  # {}\n", setting, origin);
    }
  }
  return yaml;
}

std::string Config::ConfigFolderFromWork() const {
  namespace fs = std::filesystem;
  std::error_code ignored;  // a path that cannot be made canonical is compared as it is written
  const fs::path work = fs::weakly_canonical(fs::absolute(work_folder(), ignored), ignored);
  const fs::path base = fs::weakly_canonical(fs::absolute(base_folder_, ignored), ignored);
  const fs::path relative = base.lexically_relative(work);
  return relative.empty() ? base.string() : relative.string();
}

std::string Config::AbsoluteConfigFolder() const {
  std::error_code ignored;
  return std::filesystem::weakly_canonical(std::filesystem::absolute(base_folder_, ignored), ignored).string();
}

Result<Config> LoadConfig(FileSystem& files, const std::string& path, const ConfigOverrides& overrides) {
  auto text = files.ReadAll(path, static_cast<std::int64_t>(yaml::kMaxDocumentBytes));
  if (!text.ok())
    return InvalidConfig("the pipeline file is not readable: " + text.status().message() + ". Nothing was started");
  return Config::Parse(std::move(text).value(), {.path = path, .base_folder = ParentPath(path)}, overrides);
}

Result<Config> LoadTarget(FileSystem& files, const std::string& target, const ConfigOverrides& overrides) {
  DRAFTMILL_ASSIGN_OR_RETURN(const bool is_folder, IsFolder(files, target));
  if (!is_folder) return LoadConfig(files, target, overrides);
  const std::string copy = JoinPath(target, kPipelineCopyName);
  if (!files.Exists(copy)) {
    return InvalidConfig(target + " is a folder without " + std::string(kPipelineCopyName) +
                         ", so it is no work folder of a started run. Name the pipeline file");
  }
  auto text = files.ReadAll(copy, static_cast<std::int64_t>(yaml::kMaxDocumentBytes));
  if (!text.ok())
    return InvalidConfig("the run's copy of the pipeline file is not readable: " + text.status().message());
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<std::string> base_folders, BaseFoldersOfCopy(files, target));
  ConfigOverrides in_place = overrides;
  if (!in_place.work_folder) in_place.work_folder = target;
  Result<Config> likeliest = Config::Parse(*text, {.path = copy, .base_folder = base_folders.front()}, in_place);
  for (const std::string& base_folder : base_folders) {
    Result<Config> config = Config::Parse(*text, {.path = copy, .base_folder = base_folder}, in_place);
    if (config.ok() && files.Exists(config->section("model").Text("path"))) return config;
  }
  return likeliest;
}

Result<std::string> WorkFolderOfTarget(FileSystem& files, const std::string& target, const ConfigOverrides& overrides) {
  if (overrides.work_folder) return ResolvePath("", *overrides.work_folder);
  DRAFTMILL_ASSIGN_OR_RETURN(const bool is_folder, IsFolder(files, target));
  if (is_folder) return ResolvePath("", target);
  DRAFTMILL_ASSIGN_OR_RETURN(const Config config, LoadConfig(files, target, overrides));
  return config.work_folder();
}

}  // namespace draftmill

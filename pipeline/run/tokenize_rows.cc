#include "pipeline/run/tokenize_rows.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "pipeline/config/parameter_reader.h"
#include "stages/ingest/ingest.h"
#include "stages/ingest/row_batch.h"
#include "stages/ingest/source_files.h"
#include "stages/stage_spec.h"
#include "stages/tokenize/sample_json.h"

namespace draftmill {
namespace {

/// NAME=VALUE of the command line.
struct Setting {
  std::string name;
  std::string value;
};

Result<Setting> SplitSetting(const std::string& option, const std::string& text, const std::string& form) {
  const std::size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos) {
    return InvalidConfig(option + " takes " + form + ", not `" + text + "`");
  }
  return Setting{text.substr(0, equals), text.substr(equals + 1)};
}

/// The settings of one option; a name that stands twice is refused, as in a pipeline file.
Result<std::vector<Setting>> SplitSettings(const std::string& option, const std::vector<std::string>& texts,
                                           const std::string& form) {
  std::vector<Setting> settings;
  std::set<std::string> names;
  for (const std::string& text : texts) {
    DRAFTMILL_ASSIGN_OR_RETURN(Setting setting, SplitSetting(option, text, form));
    if (!names.insert(setting.name).second) return InvalidConfig(option + " " + setting.name + " stands there twice");
    settings.push_back(std::move(setting));
  }
  return settings;
}

Status ReadParameter(const Setting& setting, ParameterValues& values) {
  const StageSpec& stage = TokenizeSpec();
  const auto spec = std::find_if(stage.parameters.begin(), stage.parameters.end(),
                                 [&setting](const ParameterSpec& parameter) { return parameter.name == setting.name; });
  if (spec == stage.parameters.end()) {
    std::vector<std::string> names;
    for (const ParameterSpec& parameter : stage.parameters) names.push_back(parameter.name);
    return InvalidConfig("--param: " + UnknownKeyMessage(setting.name, "section `" + stage.name + "`", names));
  }
  DRAFTMILL_ASSIGN_OR_RETURN(json::Value value,
                             ReadParameterText(*spec, stage.name + "." + spec->name, setting.value, ""));
  values.Set(spec->name, {std::move(value), ValueOrigin::kCommandLine, 0});
  return OkStatus();
}

Result<ParameterValues> ReadParameters(const std::vector<std::string>& texts) {
  ParameterValues values;
  ParameterReader defaults("");
  for (const ParameterSpec& spec : TokenizeSpec().parameters) {
    values.Set(spec.name, {defaults.Default(spec, "tokenize." + spec.name), ValueOrigin::kDefault, 0});
  }
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<Setting> settings, SplitSettings("--param", texts, "NAME=VALUE"));
  for (const Setting& setting : settings) DRAFTMILL_RETURN_IF_ERROR(ReadParameter(setting, values));
  return values;
}

Status SetVariables(const std::vector<std::string>& texts, json::Object& variables) {
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<Setting> settings, SplitSettings("--set", texts, "NAME=JSON"));
  json::Value object(std::move(variables));
  for (const Setting& setting : settings) {
    Result<json::Value> value = json::Parse(setting.value);
    if (!value.ok()) {
      return InvalidConfig("--set " + setting.name + ": `" + setting.value + "` is no JSON (" +
                           value.status().message() + "). Text stands in quotes: --set '" + setting.name +
                           "=\"text\"'");
    }
    object.Set(setting.name, std::move(value).value());
  }
  variables = std::move(object.as_object());
  return OkStatus();
}

bool IsPlainText(const json::Value& row) {
  return row.is_object() && RecognizedForm(row) == RowForm::kAuto && row.Find("text") != nullptr;
}

json::Value LineOf(const RawRow& row, json::Object content) {
  json::Object line = {{"row", row.row}};
  if (row.line > 0) line.emplace_back("line", row.line);
  line.emplace_back("byte_offset", row.byte_offset);
  line.insert(line.end(), std::make_move_iterator(content.begin()), std::make_move_iterator(content.end()));
  return json::Value(std::move(line));
}

/// The conversation of a row, or the text that is to be encoded as it is.
Result<json::Value> ReadRow(const RawRow& raw, RowRefusal& refusal) {
  DRAFTMILL_ASSIGN_OR_RETURN(json::Value row, ParseRawRow(raw, IngestOptions().max_row_bytes, refusal));
  if (IsPlainText(row)) return row;
  return CanonicalConversation(std::move(row), RowForm::kAuto, /*normalize=*/true, &refusal);
}

}  // namespace

Result<TokenizeOptions> ReadTokenizeOptions(const TokenizeSettings& settings) {
  DRAFTMILL_ASSIGN_OR_RETURN(const ParameterValues values, ReadParameters(settings.parameters));
  TokenizeOptions options = TokenizeOptions::From(values);
  if (settings.template_file) {
    if (!options.template_file.empty()) return InvalidConfig("--template and --param template name two templates");
    options.template_file = *settings.template_file;
  }
  DRAFTMILL_RETURN_IF_ERROR(SetVariables(settings.variables, options.variables));
  return options;
}

Result<TokenizedRowCounts> TokenizeRows(FileSystem& files, const TokenizeStage& stage, const std::string& path,
                                        const std::function<Status(const json::Value&)>& print) {
  DRAFTMILL_ASSIGN_OR_RETURN(const FileLayout layout, LayoutOfFile(path));
  DRAFTMILL_ASSIGN_OR_RETURN(std::unique_ptr<ByteStream> stream, ByteStream::Open(files, path));
  RowReader reader(std::move(stream), layout, IngestOptions().max_row_bytes);
  const std::unique_ptr<TokenizeStage::LocalState> local = stage.MakeLocalState();
  TokenizedRowCounts counts;
  RawRow raw;
  for (;;) {
    DRAFTMILL_ASSIGN_OR_RETURN(const bool found, reader.Next(raw));
    if (!found) return counts;
    ++counts.rows;
    RowRefusal refusal;
    const Result<json::Value> row = ReadRow(raw, refusal);
    if (!row.ok()) {
      ++counts.refused;
      DRAFTMILL_RETURN_IF_ERROR(
          print(LineOf(raw, json::Object{{"reason", refusal.reason}, {"error", row.status().message()}})));
      continue;
    }
    DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<TokenizedSample> samples, stage.TokenizeRow(*row, *local));
    for (const TokenizedSample& sample : samples) {
      if (!sample.error_reason.empty()) ++counts.refused;
      DRAFTMILL_RETURN_IF_ERROR(print(LineOf(raw, SampleAsJson(sample))));
    }
  }
}

}  // namespace draftmill

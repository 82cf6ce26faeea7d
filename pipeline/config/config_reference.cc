#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "pipeline/config/config.h"
#include "pipeline/config/parameter_reader.h"
#include "pipeline/config/run_spec.h"
#include "stages/stage_spec.h"

namespace draftmill {
namespace {

constexpr std::string_view kOpening = R"(# The pipeline file

<!-- Made by `draftmill config reference` from the declarations in the code; a test keeps it current. Do not edit. -->

One YAML file describes a run. Its sections are named after the stages; every parameter has a default except those marked
*must be given*. `draftmill config check FILE` finds everything that is wrong with a file, with line and column;
`draftmill config show FILE` prints the value of every parameter and where it came from.

* A key that is not listed here is an error. So are a second key of the same name, YAML tags and a second document.
* Paths are relative to the folder of the pipeline file; `~` and `${NAME}` are not expanded, but refused. The work folder keeps a copy of the file; `run.json` beside it
  says which folder the copy's paths are relative to (`config_folder`, relative to the work folder).
* Sizes: a number with `B`, `kB`, `MB`, `GB`, `TB` (powers of 1,000) or `KiB`, `MiB`, `GiB`, `TiB` (powers of 1,024).
  Durations: a number with `ms`, `s`, `m`, `h` or `d`.
* *Fingerprint: yes* means that another value gives other bytes, so that the stage and what depends on it are done anew
  (`draftmill why` tells, `--accept-changes` agrees to it). *no* means that it may be changed at any time.
* `generate:` is refused: this version does not generate answers with the target model.
)";

std::string DescribeDefault(const ParameterSpec& parameter) {
  return parameter.default_yaml.empty() ? "*must be given*" : "`" + parameter.default_yaml + "`";
}

std::string ParameterEntry(const ParameterSpec& parameter) {
  std::string entry = fmt::format("### `{}`\n\n{}\n\n", parameter.name, parameter.doc);
  entry += fmt::format("* Value: {}\n* Default: {}\n* Fingerprint: {}\n\n", DescribeExpected(parameter),
                       DescribeDefault(parameter), parameter.in_fingerprint ? "yes" : "no");
  if (parameter.type == ParameterType::kSources && !parameter.choices.empty()) {
    std::string formats;
    for (const std::string& format : parameter.choices) formats += (formats.empty() ? "`" : ", `") + format + "`";
    entry.insert(entry.size() - 1, "* Formats: " + formats + "\n");
  }
  return entry;
}

std::string StageFacts(const std::string& section_name) {
  for (const StageSpec* stage : AllStages()) {
    if (stage->name != section_name) continue;
    std::string inputs;
    for (const std::string& input : stage->inputs) inputs += (inputs.empty() ? "`" : ", `") + input + "`";
    return fmt::format("Reads: {}. Leaves: `{}`.\n\n", inputs, stage->output);
  }
  return "";
}

}  // namespace

std::string ConfigurationReference() {
  std::string page(kOpening);
  for (const SectionSpec& section : AllSections()) {
    page += section.name.empty() ? "\n## Top level\n\n" : fmt::format("\n## `{}`\n\n", section.name);
    page += section.doc + "\n\n" + StageFacts(section.name);
    for (const ParameterSpec& parameter : section.parameters) page += ParameterEntry(parameter);
    page.pop_back();
  }
  return page;
}

}  // namespace draftmill

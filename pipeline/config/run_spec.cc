#include "pipeline/config/run_spec.h"

#include "stages/stage_spec.h"

namespace draftmill {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;

SectionSpec TopLevel() {
  return {
      .name = "",
      .doc = "Keys at the top level of the file.",
      .parameters = {{.name = "work",
                      .type = ParameterType::kPath,
                      .doc = "The work folder: everything the run makes and knows lies in it, and nothing outside it "
                             "is written. It is "
                             "made where it does not exist. Not on a network file system, since state.db lies in it. "
                             "`--work DIR` on the command line takes its place.",
                      .in_fingerprint = false}}};
}

SectionSpec Model() {
  return {
      .name = "model",
      .doc = "The target model, whose drafter is to be trained.",
      .parameters = {{.name = "path",
                      .type = ParameterType::kPath,
                      .doc = "A folder in Hugging Face form: config.json, *.safetensors, tokenizer.json or "
                             "tiktoken.model, and the chat "
                             "template. It is only read. Its content is a part of the fingerprints, its place is not.",
                      .in_fingerprint = false}}};
}

SectionSpec Limits() {
  SectionSpec limits{.name = "limits",
                     .doc = "What the run may use. None of these values changes a byte of what is written.",
                     .parameters = {}};
  limits.parameters = {
      {.name = "memory",
       .type = ParameterType::kBytes,
       .doc = "Memory for the model's weights and activations, and for what is in flight between the stages: rows, "
              "tokens, captured "
              "states. Work waits where its share is used up; one item larger than all of a share passes alone. A "
              "model that does not "
              "fit is refused before it is loaded. The peaks are shown at the end of the run.",
       .default_yaml = "8GiB",
       .minimum = 64 * kMiB},
      {.name = "threads",
       .type = ParameterType::kInteger,
       .doc = "Threads of the whole program. `auto` takes as many as the process may use processors.",
       .default_yaml = "auto",
       .words = {"auto"},
       .minimum = 1,
       .maximum = 4096},
      {.name = "min_free_disk",
       .type = ParameterType::kBytes,
       .doc =
           "Space that stays free on every file system that the run writes to: the work folder's, and where links lead "
           "to others, those of shards/, corpus/ and state.db. The run pauses before it would use it. 0 switches "
           "this off.",
       .default_yaml = "10GiB",
       .minimum = 0},
      {.name = "disk_wait",
       .type = ParameterType::kDuration,
       .doc =
           "How long a run that is paused for space waits for it before it ends with status 75; run again to continue.",
       .default_yaml = "0s",
       .minimum = 0},
      {.name = "max_bad_fraction",
       .type = ParameterType::kNumber,
       .doc = "The share of rows that may go to quarantine. The run fails above it; this is judged at the ends of "
              "chunks from 1,000 rows on, "
              "and at the end.",
       .default_yaml = "0.05",
       .minimum = 0,
       .maximum = 1},
  };
  for (ParameterSpec& parameter : limits.parameters) parameter.in_fingerprint = false;
  return limits;
}

std::vector<SectionSpec> MakeSections() {
  std::vector<SectionSpec> sections = {TopLevel(), Model()};
  for (const StageSpec* stage : AllStages()) sections.push_back({stage->name, stage->doc, stage->parameters});
  sections.push_back(Limits());
  return sections;
}

}  // namespace

const std::vector<SectionSpec>& AllSections() {
  static const std::vector<SectionSpec> sections = MakeSections();
  return sections;
}

}  // namespace draftmill

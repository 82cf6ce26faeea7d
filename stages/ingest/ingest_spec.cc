// What pipeline.yaml may say under `ingest:`, and how it becomes IngestOptions.
#include <algorithm>
#include <array>
#include <utility>

#include "stages/ingest/ingest.h"
#include "stages/ingest/messages.h"
#include "stages/stage_spec.h"

namespace draftmill {
namespace {

constexpr double kKiB = 1024;
constexpr double kMiB = 1024 * kKiB;
constexpr double kGiB = 1024 * kMiB;

std::vector<ParameterSpec> Parameters() {
  std::vector<ParameterSpec> parameters;
  parameters.push_back(
      {.name = "sources",
       .type = ParameterType::kSources,
       .doc = "Where conversations come from, in this order. `path` is a file, a folder (all data files in it and "
              "below, but for the work folders of runs) or a glob (`*`, `?`, `[...]`); files are .json, .jsonl or "
              ".ndjson, also with .gz or .zst. `format` names the form of the rows; without it each row's keys tell. "
              "`take: N` takes the first N good rows of the entry, `take: 0.1` that share of its good rows, chosen by "
              "a hash of their content: the same rows at every run and in any order of the sources, and the share on "
              "average, not to the row, so that what is taken differs a little from what `plan` foresees. "
              "stages/ingest/README.md says which keys of a row each form reads; what it does not name is left out.",
       .default_yaml = "",
       .words = {},
       .choices = {"auto", "messages", "sharegpt", "alpaca", "prompt_completion", "turns", "pretokenized"}});
  parameters.push_back(
      {.name = "deduplicate",
       .type = ParameterType::kBool,
       .doc = "Whether conversations with the same messages and tools are kept once: the first in the order of "
              "the sources.",
       .default_yaml = "true"});
  parameters.push_back(
      {.name = "shuffle",
       .type = ParameterType::kMapping,
       .doc = "`{seed: 7}` puts all conversations of all sources into one random order that depends on the "
              "seed (an integer, 0 or more) and on their content; `false` keeps the order of the sources.",
       .default_yaml = "false",
       .words = {"false"},
       .fields = {{.name = "seed", .type = ParameterType::kInteger, .doc = "Of the random order.", .minimum = 0}}});
  parameters.push_back(
      {.name = "normalize",
       .type = ParameterType::kBool,
       .doc = "Whether null content becomes an empty text, other fields of a message that are null and an empty list "
              "of tool calls are left out, tool-call arguments that are a JSON object in a string become the object, "
              "a content list of text parts alone becomes one text, and OpenAI's `function_call` and `refusal` become "
              "a tool call and content. `false` hands messages to the chat template as they are.",
       .default_yaml = "true"});
  parameters.push_back({.name = "chunk_rows",
                        .type = ParameterType::kInteger,
                        .doc = "Most conversations in a chunk, the unit of tokenization and planning.",
                        .default_yaml = "4096",
                        .words = {},
                        .choices = {},
                        .minimum = 1,
                        .maximum = 4096});
  parameters.push_back({.name = "chunk_bytes",
                        .type = ParameterType::kBytes,
                        .doc = "Most bytes of text in a chunk; a longer conversation makes a chunk of its own.",
                        .default_yaml = "16MiB",
                        .words = {},
                        .choices = {},
                        .minimum = kKiB,
                        .maximum = kGiB});
  parameters.push_back({.name = "max_row_bytes",
                        .type = ParameterType::kBytes,
                        .doc = "A longer row is refused (`row_too_long`) without being held in memory.",
                        .default_yaml = "32MiB",
                        .words = {},
                        .choices = {},
                        .minimum = kKiB,
                        .maximum = kGiB});
  return parameters;
}

StageSpec MakeSpec() {
  StageSpec spec;
  spec.name = "ingest";
  spec.version = 3;
  spec.doc =
      "Reads the sources, brings every row into one canonical form of conversation, drops exact duplicates, shuffles, "
      "and cuts the result into chunks. Rows that cannot be read go to quarantine with file, line and byte offset.";
  spec.inputs = {"ingest.sources"};
  spec.output = "ingested/";
  spec.parameters = Parameters();
  return spec;
}

Result<std::optional<std::uint64_t>> ShuffleSeed(const ParameterValues& values) {
  if (values.IsWord("shuffle", "false")) return std::optional<std::uint64_t>();
  const json::Value& shuffle = values.Get("shuffle");
  const json::Value* seed = shuffle.Find("seed");
  const bool is_good =
      seed != nullptr && seed->is_integer() && seed->as_integer() >= 0 && shuffle.as_object().size() == 1;
  if (!is_good) {
    return InvalidConfig("ingest.shuffle must be false or {seed: N} with an integer N of 0 or more, not " +
                         Shortened(json::Write(shuffle)));
  }
  return std::optional<std::uint64_t>(static_cast<std::uint64_t>(seed->as_integer()));
}

Result<SourceSpec> SourceFrom(const json::Value& value) {
  const json::Value* path = value.Find("path");
  if (path == nullptr || !path->is_string()) return InvalidConfig("an entry of ingest.sources has no path");
  SourceSpec source;
  source.path = path->as_string();
  if (const json::Value* format = value.Find("format"); format != nullptr && format->is_string()) {
    DRAFTMILL_ASSIGN_OR_RETURN(source.form, RowFormFromName(format->as_string()));
  }
  const json::Value* take = value.Find("take");
  if (take == nullptr) return source;
  if (take->is_integer() && take->as_integer() > 0) {
    source.take_rows = take->as_integer();
  } else if (take->is_double() && take->as_double() > 0 && take->as_double() <= 1) {
    source.take_fraction = take->as_double();
  } else {
    return InvalidConfig("take of " + source.path + " must be a number of rows from 1 or a fraction up to 1.0, not " +
                         Shortened(json::Write(*take)));
  }
  return source;
}

}  // namespace

const StageSpec& IngestSpec() {
  static const StageSpec spec = MakeSpec();
  return spec;
}

Result<IngestOptions> IngestOptionsFrom(const ParameterValues& values) {
  IngestOptions options;
  for (const json::Value& value : values.Get("sources").as_array()) {
    DRAFTMILL_ASSIGN_OR_RETURN(SourceSpec source, SourceFrom(value));
    options.sources.push_back(std::move(source));
  }
  options.deduplicate = values.Bool("deduplicate");
  DRAFTMILL_ASSIGN_OR_RETURN(options.shuffle_seed, ShuffleSeed(values));
  options.normalize = values.Bool("normalize");
  options.chunk_rows = values.Integer("chunk_rows");
  options.chunk_bytes = values.Integer("chunk_bytes");
  options.max_row_bytes = values.Integer("max_row_bytes");
  return options;
}

}  // namespace draftmill

// The tokenize stage on the rows of a file, without a run: what `draftmill tokenize` shows.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(const TokenizeOptions options, ReadTokenizeOptions(settings));
//   DRAFTMILL_ASSIGN_OR_RETURN(auto stage, TokenizeStage::Create(options, {.model_folder = "models/qwen3"}));
//   TokenizeRows(RealFileSystem(), *stage, "chat.jsonl", [](const json::Value& line) { ...; return OkStatus(); });
//
// Rows are read as ingest reads them (.json, .jsonl, .ndjson, also .gz and .zst) and brought into canonical form; a row
// {"text": ...} is encoded as it is, with no tokens added. Memory is bounded by the longest row. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "stages/tokenize/tokenize_stage.h"
#include "state/file_system.h"

namespace draftmill {

/// What a command line says about the stage.
struct TokenizeSettings {
  std::optional<std::string> template_file;  ///< instead of the model's own
  std::vector<std::string> variables;        ///< "NAME=JSON": variables of the template
  std::vector<std::string> parameters;       ///< "NAME=VALUE": parameters of the stage, VALUE as in a pipeline file
};

/// The stage's options, everything that is not named at its default. Refuses (kInvalidConfig) what a pipeline file
/// would be refused for, in the same words. Paths are relative to the current folder.
Result<TokenizeOptions> ReadTokenizeOptions(const TokenizeSettings& settings);

struct TokenizedRowCounts {
  std::int64_t rows = 0;
  std::int64_t refused = 0;  ///< rows and samples that have an error
};

/// Hands a line to `print` for each sample and each refusal, in the order of the rows: where the row stands (`row` from
/// 0, `line` from 1 where rows are lines, `byte_offset` in the unpacked file), then stages/tokenize/sample_json.h. A
/// row is one line, unless `expand` makes several samples of it. Fails where the file cannot be read on, where `print`
/// fails, and where conversations meet a model without a template.
Result<TokenizedRowCounts> TokenizeRows(FileSystem& files, const TokenizeStage& stage, const std::string& path,
                                        const std::function<Status(const json::Value&)>& print);

}  // namespace draftmill

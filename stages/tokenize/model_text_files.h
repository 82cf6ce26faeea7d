// What a model folder says about text, beside its tokenizer: chat templates, special tokens, stop tokens, the length
// limit.
//
// Reads config.json, generation_config.json, tokenizer_config.json, chat_template.jinja, chat_template.json and, where
// the user names one, another template file. Each may be absent. The files are untrusted and bounded. Sources:
// transformers' tokenization_utils_base.py and chat_template_utils.py. No state; safe from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "stages/tokenize/tokenizer.h"

namespace draftmill {

/// The text facts of a model.
struct ModelTextFiles {
  std::string chat_template;                 ///< the default one; empty where there is none
  std::string template_place;                ///< where it was found, for messages
  std::optional<std::string> tool_template;  ///< the one named "tool_use", taken for rows with tools
  json::Object special_tokens;               ///< bos_token, eos_token, ...: variables of the template
  std::vector<std::int32_t> stop_tokens;   ///< ids of config.json, generation_config.json and the tokenizer, ascending
  std::optional<std::int64_t> max_length;  ///< the model's own limit of positions
  std::optional<std::int64_t> vocab_rows;  ///< rows of the embedding, where config.json states them
  std::string fingerprint;                 ///< over everything above, hex
};

/// Reads what the folder and the template file hold; either may be empty.
Result<ModelTextFiles> ReadModelTextFiles(const std::string& model_folder, const std::string& template_file,
                                          const Tokenizer& tokenizer);

}  // namespace draftmill

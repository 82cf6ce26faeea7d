// Builds a Tokenizer from a tiktoken.model rank file, as tokenization_kimi.py of Kimi-K2 uses it.
//
// A line is a token in base64, a space, and its rank, which is its id. The 256 ids after the ranks are special tokens;
// their names come from `added_tokens_decoder` of tokenizer_config.json. Text is cut every 400,000 characters and
// within that after every 25,000 characters of unbroken white space or of unbroken text, before anything else, as that
// code does: the cuts change ids. A rank file does not carry its split pattern: only Kimi's is known, and only files
// that say they are Kimi's (by the class named in tokenizer_config.json, or by their 163,584 ranks) are accepted.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "stages/tokenize/tokenizer.h"

namespace draftmill {

/// `ranks` is the whole rank file, `config` the tokenizer_config.json beside it, where there is one.
Result<std::unique_ptr<const Tokenizer>> ParseTiktokenModel(std::string_view ranks,
                                                            const std::optional<std::string>& config);

}  // namespace draftmill

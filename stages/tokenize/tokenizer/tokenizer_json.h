// Builds a Tokenizer from the text of a tokenizer.json of Hugging Face `tokenizers`.
//
// Understood: BPE with the normalizers, pre-tokenizers and added tokens that docs/tokenizers.md lists. post_processor,
// decoder, truncation and padding are not applied (the chat template writes every special token). Anything else is
// refused with its JSON path. The file is untrusted: bounded in size, depth and ids.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "stages/tokenize/tokenizer.h"

namespace draftmill {

/// `json` is the whole file; `fingerprint` its hash.
Result<std::unique_ptr<const Tokenizer>> ParseTokenizerJson(const std::string& json, std::string fingerprint);

}  // namespace draftmill

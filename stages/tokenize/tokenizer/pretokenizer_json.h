// The `normalizer` and `pre_tokenizer` sections of tokenizer.json.
#pragma once

#include <memory>
#include <vector>

#include "base/status.h"
#include "stages/tokenize/tokenizer/json_node.h"
#include "stages/tokenize/tokenizer/normalizer.h"
#include "stages/tokenize/tokenizer/pretokenizer.h"

namespace draftmill {

/// Appends the normalizers that `node` stands for.
Status ReadNormalizerJson(const JsonNode& node, std::vector<std::unique_ptr<const Normalizer>>& normalizers);

struct PreTokenizerJson {
  PreTokenizer pre_tokenizer;
  bool byte_level = false;  ///< the last step writes bytes in GPT-2's alphabet
};

Result<PreTokenizerJson> ReadPreTokenizerJson(const JsonNode& node);

}  // namespace draftmill

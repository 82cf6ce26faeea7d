// The `model` section of tokenizer.json: vocabulary and merges of BPE.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "stages/tokenize/tokenizer/bpe_model.h"
#include "stages/tokenize/tokenizer/json_node.h"

namespace draftmill {

struct BpeJson {
  BpeParts parts;
  /// Vocabulary entries that are no byte strings of a byte-level vocabulary (special tokens): they never match text.
  std::vector<std::pair<std::string, std::int32_t>> names;
  /// How many entries the vocabulary has.
  std::int64_t size = 0;
};

/// Reads `model`; with `byte_level`, contents are in GPT-2's byte alphabet.
Result<BpeJson> ReadBpeJson(const JsonNode& model, bool byte_level);

}  // namespace draftmill

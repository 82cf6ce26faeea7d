// The Tokenizer made of the parts that tokenizer.json and rank files describe: added tokens, normalizers,
// pre-tokenizer, BPE. Internal to this folder: loaders build it, everyone else uses stages/tokenize/tokenizer.h.
//
// const and safe from any thread; a Scratch belongs to one.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "stages/tokenize/tokenizer.h"
#include "stages/tokenize/tokenizer/added_tokens.h"
#include "stages/tokenize/tokenizer/bpe_model.h"
#include "stages/tokenize/tokenizer/normalizer.h"
#include "stages/tokenize/tokenizer/pretokenizer.h"
#include "stages/tokenize/tokenizer/text_cuts.h"

namespace draftmill {

struct BpeTokenizerParts {
  std::unique_ptr<const BpeModel> model;
  std::vector<std::unique_ptr<const Normalizer>> normalizers;
  PreTokenizer pre_tokenizer;
  AddedTokenMatcher raw_matcher;         ///< tokens that are matched before normalization
  AddedTokenMatcher normalized_matcher;  ///< those that are matched after it
  std::vector<AddedToken> added_tokens;  ///< ascending by id
  bool byte_level_names = false;         ///< the vocabulary's names are in GPT-2's byte alphabet
  /// Vocabulary entries that never match text, by name.
  std::vector<std::pair<std::string, std::int32_t>> names;
  std::optional<CutLimits> cuts;  ///< the text is cut before all else
  std::string fingerprint;
};

std::unique_ptr<const Tokenizer> MakeBpeTokenizer(BpeTokenizerParts parts);

}  // namespace draftmill

// Cuts text by a regular expression.
#pragma once

#include <memory>

#include "stages/tokenize/tokenizer/piece_splitter.h"
#include "stages/tokenize/tokenizer/pretokenizer.h"
#include "stages/tokenize/tokenizer/regex.h"

namespace draftmill {

/// The splitter of a `Split` step whose pattern has no scanner of its own.
std::unique_ptr<const PieceSplitter> MakeRegexSplitter(Regex pattern, SplitBehavior behavior, bool invert);

}  // namespace draftmill

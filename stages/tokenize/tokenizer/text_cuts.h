// The cuts that tokenization_kimi.py makes before it encodes.
#pragma once

#include <string_view>
#include <vector>

#include "stages/tokenize/tokenizer/piece_splitter.h"

namespace draftmill {

struct CutLimits {
  std::uint32_t text_characters = 400'000;
  std::uint32_t run_characters = 25'000;
};

/// The parts of `text`: cut every text_characters, and inside that where a run of white space (str.isspace of Python)
/// or of other characters exceeds run_characters.
std::vector<Piece> CutText(std::string_view text, const CutLimits& limits);

}  // namespace draftmill

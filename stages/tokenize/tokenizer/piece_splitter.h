// One step of pre-tokenization that cuts text into pieces and changes nothing.
//
// A splitter is const and safe from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace draftmill {

/// A half-open range of bytes of a text below 4 GiB.
struct Piece {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
};

class PieceSplitter {
 public:
  virtual ~PieceSplitter() = default;

  /// Appends the pieces of text[within.begin, within.end) in order; none is empty. Nothing outside of that range is
  /// looked at, as if it were the whole text. Fails only where a pattern exceeds its limits.
  virtual Status Split(std::string_view text, Piece within, std::vector<Piece>& pieces) const = 0;
};

}  // namespace draftmill

// Pre-tokenizers of tokenizer.json: a list of steps that cut a text into pieces, and some that rewrite it while they
// do.
//
// A PreTokenizer is const and safe from any thread; PreTokenizerScratch belongs to one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "stages/tokenize/tokenizer/aligned_text.h"
#include "stages/tokenize/tokenizer/piece_splitter.h"

namespace draftmill {

/// What becomes of the matches of a split pattern (names of `tokenizers`).
enum class SplitBehavior : std::uint8_t { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

/// A stretch between two borders of a split pattern: a match, or text between matches.
struct SplitPart {
  Piece range;
  bool is_match = false;
};

/// Turns matches and the text between them into pieces. Empty parts are dropped.
void ApplySplitBehavior(const std::vector<SplitPart>& parts, SplitBehavior behavior, std::vector<Piece>& pieces);

/// Makes pieces of a stretch from the matches of a pattern in it, ascending; `invert` takes the text between them for the
/// matches.
class MatchedStretch {
 public:
  MatchedStretch(Piece within, bool invert) : done_(within.begin), end_(within.end), invert_(invert) {}
  void AddMatch(std::uint32_t begin, std::uint32_t end);
  /// Only once, when all matches are added.
  void Split(SplitBehavior behavior, std::vector<Piece>& pieces);

 private:
  std::vector<SplitPart> parts_;
  std::uint32_t done_;
  const std::uint32_t end_;
  const bool invert_;
};

/// Where Metaspace puts its replacement character before text.
enum class PrependScheme : std::uint8_t { kAlways, kFirst, kNever };

/// Splits at each occurrence of a literal text.
std::unique_ptr<const PieceSplitter> MakeLiteralSplitter(std::string literal, SplitBehavior behavior, bool invert);
/// Splits at numeric characters, each alone or in runs.
std::unique_ptr<const PieceSplitter> MakeDigitsSplitter(bool individual_digits);
/// Splits at ASCII punctuation and \p{P}.
std::unique_ptr<const PieceSplitter> MakePunctuationSplitter(SplitBehavior behavior);
/// Keeps runs of word characters and runs of others, drops white space.
std::unique_ptr<const PieceSplitter> MakeWhitespaceSplitter();
/// Keeps what is not white space.
std::unique_ptr<const PieceSplitter> MakeWhitespaceOnlySplitter();
/// Lets another splitter see the byte alphabet's stand-ins of the text instead of its bytes, as a step after ByteLevel
/// does; it may then cut inside a character.
std::unique_ptr<const PieceSplitter> MakeStandInSplitter(std::unique_ptr<const PieceSplitter> inner);

/// Buffers of one thread.
struct PreTokenizerScratch {
  std::vector<Piece> next;
  AlignedBuffer buffers[2];
};

class PreTokenizer {
 public:
  /// Adds a step that only cuts.
  void AddSplitter(std::unique_ptr<const PieceSplitter> splitter);
  /// Adds a step that puts a space before every piece that does not start with one.
  void AddPrefixSpace();
  /// Adds Metaspace: spaces become `replacement`, which may be put before pieces and start a new one.
  void AddMetaspace(std::string replacement, PrependScheme scheme, bool split);

  /// Replaces `pieces` by those of `text`, and `text` by the rewritten one (a view into the scratch) where a step
  /// rewrites.
  Status Apply(AlignedText& text, PreTokenizerScratch& scratch, std::vector<Piece>& pieces) const;

 private:
  struct Step {
    std::unique_ptr<const PieceSplitter> splitter;  // null in a step that rewrites
    std::string replacement;                        // of spaces, by Metaspace
    std::string prefix;                             // put before a piece that does not start with it
    PrependScheme scheme = PrependScheme::kNever;
    bool cut_at_replacement = false;
  };

  static void Rewrite(const Step& step, AlignedText& text, AlignedBuffer& buffer, const std::vector<Piece>& pieces,
                      std::vector<Piece>& next);

  std::vector<Step> steps_;
};

}  // namespace draftmill

// Normalizers of tokenizer.json: they change the text before it is cut into pieces, and keep track of where each byte
// came from.
//
// const and safe from any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "stages/tokenize/tokenizer/aligned_text.h"
#include "stages/tokenize/tokenizer/regex.h"

namespace draftmill {

class Normalizer {
 public:
  virtual ~Normalizer() = default;

  /// Writes the changed text into `out` and returns true, or returns false where nothing changes (then `out` holds
  /// nothing of use).
  virtual Result<bool> Apply(const AlignedText& in, AlignedBuffer& out) const = 0;
};

enum class NormalForm : std::uint8_t { kNfc, kNfd, kNfkc, kNfkd };

std::unique_ptr<const Normalizer> MakeNormalFormNormalizer(NormalForm form);
std::unique_ptr<const Normalizer> MakeLowercaseNormalizer();
/// Puts `prefix` before a text that is not empty.
std::unique_ptr<const Normalizer> MakePrependNormalizer(std::string prefix);
/// Replaces each occurrence of a literal text.
std::unique_ptr<const Normalizer> MakeReplaceNormalizer(std::string pattern, std::string content);
/// Replaces each match of a regular expression.
std::unique_ptr<const Normalizer> MakeReplaceNormalizer(Regex pattern, std::string content);
/// Removes white space at either end.
std::unique_ptr<const Normalizer> MakeStripNormalizer(bool left, bool right);

/// Applies `normalizers` one after the other; the result lies in `in`'s memory or in one of the `buffers`.
Result<AlignedText> ApplyAll(const std::vector<std::unique_ptr<const Normalizer>>& normalizers, const AlignedText& in,
                             AlignedBuffer (&buffers)[2]);

}  // namespace draftmill

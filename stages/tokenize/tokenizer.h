// A target model's tokenizer: text to ids, each id with the bytes of the text that it stands for.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(std::unique_ptr<const Tokenizer> tokenizer, Tokenizer::LoadFolder(model_folder));
//   Tokenizer::Scratch scratch = tokenizer->MakeScratch();   // one per thread
//   DRAFTMILL_RETURN_IF_ERROR(tokenizer->Encode(text, {}, scratch, encoding));
//
// Sources: tokenizer.json of Hugging Face `tokenizers`, and tiktoken.model rank files (Kimi-K2). No token is added: the
// chat template writes every special token. Ids equal those of the model's own Python code; what is not understood is
// refused when the file is loaded, with its JSON path.
// Thread-safety: a Tokenizer is const and shared; a Scratch belongs to one thread (it holds the cache of pieces).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace draftmill {

/// Token i stands for text bytes [begin[i], end[i]). The ranges tile the text in order where the normalizer changes
/// nothing; where it merges or drops characters a token covers all the bytes that it came from.
struct Encoding {
  std::vector<std::int32_t> ids;
  std::vector<std::int64_t> begin;
  std::vector<std::int64_t> end;

  void Clear() {
    ids.clear();
    begin.clear();
    end.clear();
  }
};

/// A half-open range of bytes of the text.
struct ByteRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// A token that is matched in the text before any other rule.
struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool special = false;
};

class Tokenizer {
 public:
  /// Working memory of one thread: buffers and the cache of encoded pieces. Defined with each implementation.
  class ScratchState {
   public:
    virtual ~ScratchState() = default;
  };
  using Scratch = std::unique_ptr<ScratchState>;

  /// Loads tokenizer.json, or else tiktoken.model, of a model folder.
  static Result<std::unique_ptr<const Tokenizer>> LoadFolder(const std::string& model_folder);
  /// Loads one file; its name or content says which of the two forms it has.
  static Result<std::unique_ptr<const Tokenizer>> LoadFile(const std::string& path);

  virtual ~Tokenizer() = default;

  virtual Scratch MakeScratch() const = 0;

  /// Encodes valid UTF-8. Inside `plain_ranges` (ascending, disjoint) special tokens are not recognized: their text is
  /// encoded as ordinary text (`tokenize.special_in_text: as_text`), as if `encode_special_tokens` were set there.
  /// `encoding` is overwritten. Time is linear in the text.
  virtual Status Encode(std::string_view text, std::span<const ByteRange> plain_ranges, ScratchState& scratch,
                        Encoding& encoding) const = 0;

  /// The id of a token by its exact content (added tokens first, then the vocabulary), if there is one.
  virtual std::optional<std::int32_t> TokenToId(std::string_view content) const = 0;
  /// The bytes that a token stands for when it is read back; for an added token its content. Empty for an unknown id.
  virtual std::string TokenBytes(std::int32_t id) const = 0;
  /// All added tokens, ascending by id.
  virtual const std::vector<AddedToken>& added_tokens() const = 0;
  /// One more than the largest id that Encode can return.
  virtual std::int32_t id_limit() const = 0;
  /// XXH3-128 of the tokenizer file's bytes, hex; of a rank file with the names of its special tokens behind.
  virtual const std::string& fingerprint() const = 0;
};

}  // namespace draftmill

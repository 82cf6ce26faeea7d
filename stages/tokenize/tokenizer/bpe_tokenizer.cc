#include "stages/tokenize/tokenizer/bpe_tokenizer.h"

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <utility>

#include "base/utf8.h"
#include "stages/tokenize/tokenizer/byte_alphabet.h"
#include "stages/tokenize/tokenizer/piece_cache.h"

namespace draftmill {
namespace {

/// Texts are addressed with 32 bits; a prefix and replaced spaces must fit, too.
constexpr std::size_t kMaxTextBytes = std::numeric_limits<std::uint32_t>::max() / 4;

class BpeTokenizerScratch final : public Tokenizer::ScratchState {
 public:
  PieceCache cache;
  BpeScratch bpe;
  std::vector<BpeToken> tokens;        // of a part
  std::vector<BpeToken> piece_tokens;  // of a piece
  PreTokenizerScratch pre_tokenizer;
  std::vector<Piece> pieces;
  AlignedBuffer normalized[2];
  std::vector<AddedTokenMatcher::Match> raw_matches;
  std::vector<AddedTokenMatcher::Match> normalized_matches;
};

/// Appends tokens to an Encoding whose vectors are longer than what is used; Finish cuts them.
class EncodingWriter {
 public:
  explicit EncodingWriter(Encoding& encoding) : encoding_(encoding) {}

  /// Makes room for so many more tokens.
  void Reserve(std::size_t tokens) {
    if (used_ + tokens <= encoding_.ids.size()) return;
    Resize(std::max(used_ + tokens, encoding_.ids.size() * 2));
  }
  /// Appends a token; room was made before.
  void Append(std::int32_t id, std::int64_t begin, std::int64_t end) {
    encoding_.ids[used_] = id;
    encoding_.begin[used_] = begin;
    encoding_.end[used_] = end;
    ++used_;
  }
  void Finish() { Resize(used_); }
  void Resize(std::size_t size) {
    encoding_.ids.resize(size);
    encoding_.begin.resize(size);
    encoding_.end.resize(size);
  }

 private:
  Encoding& encoding_;
  std::size_t used_ = 0;
};

class BpeTokenizer final : public Tokenizer {
 public:
  explicit BpeTokenizer(BpeTokenizerParts parts) : parts_(std::move(parts)) {
    id_limit_ = parts_.model->vocabulary().id_limit();
    for (const AddedToken& token : parts_.added_tokens) {
      id_limit_ = std::max(id_limit_, token.id + 1);
      named_ids_.emplace(token.content, token.id);
    }
    for (const auto& [name, id] : parts_.names) {
      id_limit_ = std::max(id_limit_, id + 1);
      named_ids_.emplace(name, id);
      names_.emplace(id, name);
    }
  }

  Scratch MakeScratch() const override { return std::make_unique<BpeTokenizerScratch>(); }

  Status Encode(std::string_view text, std::span<const ByteRange> plain_ranges, ScratchState& scratch_state,
                Encoding& encoding) const override {
    if (text.size() > kMaxTextBytes) {
      return InvalidInput("the text has " + std::to_string(text.size()) + " bytes, more than the " +
                          std::to_string(kMaxTextBytes) + " that can be encoded at once");
    }
    const std::size_t valid = ValidUtf8Length(text);
    if (valid != text.size()) return InvalidInput("the text is not valid UTF-8 at byte " + std::to_string(valid));
    auto& scratch = static_cast<BpeTokenizerScratch&>(scratch_state);
    encoding.Clear();
    EncodingWriter writer(encoding);
    writer.Resize(text.size() / 4 + 16);
    const Status status = EncodeCut(AlignedText{text}, plain_ranges, scratch, writer);
    if (status.ok()) {
      writer.Finish();
    } else {
      encoding.Clear();
    }
    return status;
  }

  std::optional<std::int32_t> TokenToId(std::string_view content) const override {
    const auto named = named_ids_.find(std::string(content));
    if (named != named_ids_.end()) return named->second;
    const TokenTable& vocabulary = parts_.model->vocabulary();
    std::int32_t id = -1;
    if (parts_.byte_level_names) {
      if (!IsValidUtf8(content)) return std::nullopt;
      const std::optional<std::string> bytes = BytesOfByteLevel(content);
      if (bytes) id = vocabulary.Find(*bytes);
    } else {
      id = vocabulary.Find(content);
    }
    return id < 0 ? std::nullopt : std::optional(id);
  }

  std::string TokenBytes(std::int32_t id) const override {
    const auto added = std::lower_bound(parts_.added_tokens.begin(), parts_.added_tokens.end(), id,
                                        [](const AddedToken& token, std::int32_t wanted) { return token.id < wanted; });
    if (added != parts_.added_tokens.end() && added->id == id) return added->content;
    const auto named = names_.find(id);
    return named != names_.end() ? named->second : std::string(parts_.model->vocabulary().Content(id));
  }

  const std::vector<AddedToken>& added_tokens() const override { return parts_.added_tokens; }
  std::int32_t id_limit() const override { return id_limit_; }
  const std::string& fingerprint() const override { return parts_.fingerprint; }

 private:
  /// Writes the matches as tokens and hands what lies between to `encode`.
  template <typename EncodeGap>
  static Status ForEachGap(const AlignedText& text, const std::vector<AddedTokenMatcher::Match>& matches,
                           EncodingWriter& writer, EncodeGap encode) {
    std::size_t done = 0;
    for (const AddedTokenMatcher::Match& match : matches) {
      if (done < match.begin) DRAFTMILL_RETURN_IF_ERROR(encode(text.Slice(done, match.begin)));
      writer.Reserve(1);
      writer.Append(match.id, text.OriginalBegin(match.begin), text.OriginalEnd(match.end - 1));
      done = match.end;
    }
    return done < text.text.size() ? encode(text.Slice(done, text.text.size())) : OkStatus();
  }

  /// Encodes the parts between the cuts, or the whole.
  Status EncodeCut(const AlignedText& text, std::span<const ByteRange> plain_ranges, BpeTokenizerScratch& scratch,
                   EncodingWriter& writer) const {
    if (!parts_.cuts || text.text.size() <= parts_.cuts->run_characters) {
      return EncodePart(text, plain_ranges, scratch, writer);
    }
    for (const Piece part : CutText(text.text, *parts_.cuts)) {
      DRAFTMILL_RETURN_IF_ERROR(EncodePart(text.Slice(part.begin, part.end), plain_ranges, scratch, writer));
    }
    return OkStatus();
  }

  Status EncodePart(const AlignedText& text, std::span<const ByteRange> plain_ranges, BpeTokenizerScratch& scratch,
                    EncodingWriter& writer) const {
    DRAFTMILL_RETURN_IF_ERROR(parts_.raw_matcher.Find(text, plain_ranges, scratch.raw_matches));
    return ForEachGap(text, scratch.raw_matches, writer,
                      [&](const AlignedText& gap) { return EncodeRaw(gap, plain_ranges, scratch, writer); });
  }

  Status EncodeRaw(const AlignedText& raw, std::span<const ByteRange> plain_ranges, BpeTokenizerScratch& scratch,
                   EncodingWriter& writer) const {
    DRAFTMILL_ASSIGN_OR_RETURN(const AlignedText text, ApplyAll(parts_.normalizers, raw, scratch.normalized));
    DRAFTMILL_RETURN_IF_ERROR(parts_.normalized_matcher.Find(text, plain_ranges, scratch.normalized_matches));
    return ForEachGap(text, scratch.normalized_matches, writer,
                      [&](const AlignedText& gap) { return EncodeGap(gap, scratch, writer); });
  }

  Status EncodeGap(AlignedText text, BpeTokenizerScratch& scratch, EncodingWriter& writer) const {
    DRAFTMILL_RETURN_IF_ERROR(parts_.pre_tokenizer.Apply(text, scratch.pre_tokenizer, scratch.pieces));
    for (const Piece piece : scratch.pieces) EncodePiece(text, piece, scratch, writer);
    return OkStatus();
  }

  /// Encodes one piece: from the cache, or as a token of its own, or part by part.
  void EncodePiece(const AlignedText& text, Piece piece, BpeTokenizerScratch& scratch, EncodingWriter& writer) const {
    const std::string_view content = text.text.substr(piece.begin, piece.end - piece.begin);
    const char* const readable_end = text.text.data() + text.text.size();
    if (content.size() > PieceCache::kMaxBytes) {
      EncodeParts(content, readable_end, scratch);
      WriteTokens(text, piece.begin, scratch.piece_tokens, writer);
      return;
    }
    const PieceCache::Key key = PieceCache::MakeKey(content, readable_end, PieceCache::Kind::kWhole);
    PieceCache::Slot& slot = scratch.cache.SlotOf(key);
    if (PieceCache::Holds(slot, key)) {
      writer.Reserve(PieceCache::kMaxTokens);
      std::uint32_t begin = piece.begin;
      for (std::size_t i = 0; i < slot.count; ++i) {
        const std::uint32_t end = piece.begin + slot.ends[i];
        writer.Append(slot.ids[i], text.OriginalBegin(begin), text.OriginalEnd(end - 1));
        begin = end;
      }
      return;
    }
    EncodeParts(content, readable_end, scratch);
    PieceCache::Fill(slot, key, scratch.piece_tokens);
    WriteTokens(text, piece.begin, scratch.piece_tokens, writer);
  }

  static void WriteTokens(const AlignedText& text, std::uint32_t origin, const std::vector<BpeToken>& tokens,
                          EncodingWriter& writer) {
    writer.Reserve(tokens.size());
    std::uint32_t begin = origin;
    for (const BpeToken& token : tokens) {
      const std::uint32_t end = origin + token.end;
      writer.Append(token.id, text.OriginalBegin(begin), text.OriginalEnd(end - 1));
      begin = end;
    }
  }

  /// Replaces scratch.piece_tokens by the tokens of `piece`.
  void EncodeParts(std::string_view piece, const char* readable_end, BpeTokenizerScratch& scratch) const {
    std::vector<BpeToken>& tokens = scratch.piece_tokens;
    tokens.clear();
    BpeToken whole;
    if (parts_.model->FindWhole(piece, whole)) {
      tokens.push_back(whole);
      return;
    }
    std::size_t begin = 0;
    while (begin < piece.size()) {
      const std::size_t end = parts_.model->PartEnd(piece, begin);
      AppendPart(piece.substr(begin, end - begin), static_cast<std::uint32_t>(begin), readable_end, scratch);
      begin = end;
    }
  }

  /// Appends the tokens of a part of a piece, which starts at `origin` of it.
  void AppendPart(std::string_view part, std::uint32_t origin, const char* readable_end,
                  BpeTokenizerScratch& scratch) const {
    if (part.size() <= PieceCache::kMaxBytes) {
      const PieceCache::Key key = PieceCache::MakeKey(part, readable_end, PieceCache::Kind::kPart);
      PieceCache::Slot& slot = scratch.cache.SlotOf(key);
      if (PieceCache::Holds(slot, key)) {
        for (std::size_t i = 0; i < slot.count; ++i) {
          scratch.piece_tokens.push_back({slot.ids[i], origin + slot.ends[i]});
        }
        return;
      }
      parts_.model->Encode(part, scratch.bpe, scratch.tokens);
      PieceCache::Fill(slot, key, scratch.tokens);
    } else {
      parts_.model->Encode(part, scratch.bpe, scratch.tokens);
    }
    for (const BpeToken& token : scratch.tokens) scratch.piece_tokens.push_back({token.id, origin + token.end});
  }

  BpeTokenizerParts parts_;
  std::unordered_map<std::string, std::int32_t> named_ids_;
  std::unordered_map<std::int32_t, std::string> names_;
  std::int32_t id_limit_ = 0;
};

}  // namespace

std::unique_ptr<const Tokenizer> MakeBpeTokenizer(BpeTokenizerParts parts) {
  return std::make_unique<BpeTokenizer>(std::move(parts));
}

}  // namespace draftmill

// A tokenizer for tests of everything round it: each byte is a token, special tokens are matched first.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "stages/tokenize/tokenizer.h"

namespace draftmill {

class ByteTokenizer : public Tokenizer {
 public:
  static constexpr std::int32_t kFirstSpecial = 256;

  explicit ByteTokenizer(const std::vector<std::string>& specials) {
    for (const std::string& content : specials)
      added_.push_back({kFirstSpecial + static_cast<std::int32_t>(added_.size()), content, true});
  }

  Scratch MakeScratch() const override { return std::make_unique<ScratchState>(); }

  Status Encode(std::string_view text, std::span<const ByteRange> plain, ScratchState&, Encoding& out) const override {
    out.Clear();
    for (std::int64_t at = 0; at < static_cast<std::int64_t>(text.size());) {
      const AddedToken* token = SpecialAt(text, at, plain);
      const std::int64_t size = token != nullptr ? static_cast<std::int64_t>(token->content.size()) : 1;
      out.ids.push_back(token != nullptr ? token->id : static_cast<unsigned char>(text[static_cast<std::size_t>(at)]));
      out.begin.push_back(at);
      out.end.push_back(at += size);
    }
    return OkStatus();
  }

  std::optional<std::int32_t> TokenToId(std::string_view content) const override {
    for (const AddedToken& token : added_) {
      if (token.content == content) return token.id;
    }
    return std::nullopt;
  }
  std::string TokenBytes(std::int32_t id) const override {
    if (id < kFirstSpecial) return std::string(1, static_cast<char>(id));
    return added_[static_cast<std::size_t>(id - kFirstSpecial)].content;
  }
  const std::vector<AddedToken>& added_tokens() const override { return added_; }
  std::int32_t id_limit() const override { return kFirstSpecial + static_cast<std::int32_t>(added_.size()); }
  const std::string& fingerprint() const override { return fingerprint_; }

 private:
  const AddedToken* SpecialAt(std::string_view text, std::int64_t at, std::span<const ByteRange> plain) const {
    for (const ByteRange& range : plain) {
      if (range.begin <= at && at < range.end) return nullptr;
    }
    for (const AddedToken& token : added_) {
      if (text.substr(static_cast<std::size_t>(at)).starts_with(token.content)) return &token;
    }
    return nullptr;
  }

  std::vector<AddedToken> added_;
  std::string fingerprint_ = "bytes";
};

}  // namespace draftmill

#include "stages/tokenize/tokenizer/regex_splitter.h"

#include <utility>
#include <vector>

namespace draftmill {
namespace {

class RegexSplitter final : public PieceSplitter {
 public:
  RegexSplitter(Regex pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  Status Split(std::string_view text, Piece within, std::vector<Piece>& pieces) const override {
    MatchedStretch stretch(within, invert_);
    const std::string_view view = text.substr(within.begin, within.end - within.begin);
    DRAFTMILL_RETURN_IF_ERROR(pattern_.FindAll(view, [&](std::uint32_t begin, std::uint32_t end) {
      stretch.AddMatch(within.begin + begin, within.begin + end);
    }));
    stretch.Split(behavior_, pieces);
    return OkStatus();
  }

 private:
  Regex pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

}  // namespace

std::unique_ptr<const PieceSplitter> MakeRegexSplitter(Regex pattern, SplitBehavior behavior, bool invert) {
  return std::make_unique<RegexSplitter>(std::move(pattern), behavior, invert);
}

}  // namespace draftmill

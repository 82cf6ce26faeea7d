// Which samples an export takes, and on which side of the train/eval split each stands.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(Selection selection, ParseSelection({"source=chat.jsonl", "samples=0-999", "eval=0.05"}));
//
// Terms of one kind widen the selection (either source), kinds narrow each other (of these sources, in these ranges). The
// split depends on the conversation alone: its samples never stand on both sides, and a conversation stays on its side
// when others are added. It is read from the first eight bytes of the conversation's content_hash as a little-endian number
// u: eval where u < fraction * 2^64.
//
// Plain values and pure functions, safe from any thread. Errors: kInvalidConfig names the term.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/json.h"
#include "base/status.h"

namespace draftmill {

enum class Split : std::uint8_t { kTrain, kEval };
/// "train", "eval"
std::string_view SplitName(Split split);

struct Selection {
  std::vector<std::string> sources{};                          ///< as the run names them; empty: all
  std::vector<std::pair<std::int64_t, std::int64_t>> samples;  ///< sample_id from, to (both taken); empty: all
  double eval_fraction = 0;                                    ///< 0: everything is train
  std::optional<Split> only;                                   ///< one side alone

  bool splits() const { return eval_fraction > 0 && !only; }
  bool TakesSample(std::int64_t sample_id) const;
  Split SideOf(const Hash128& content_hash) const;
};

/// Terms: source=PATH, samples=FIRST-LAST, eval=FRACTION, split=train|eval.
Result<Selection> ParseSelection(const std::vector<std::string>& terms);

/// What the selection says, for fingerprint and manifest.
json::Value SelectionFacts(const Selection& selection);

}  // namespace draftmill

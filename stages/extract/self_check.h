// What every run checks about its own states: are they what a drafter's trainer takes them for, and are they plausible?
//
//   std::vector<std::int64_t> positions = CheckedPositions(loss_mask, bounds, kCheckedPositions);
//   DRAFTMILL_RETURN_IF_ERROR(ReadHead(head, x_n, tokens, check.agreement));         // cpu/head_reading.h; needs the
//   engine if (!check.agreement.IsClear()) ... the states may be shifted, or stand before or after the wrong norm
//
// argmax(lm_head(norm(x_n[p]))) is compared with the token at p + 1, as stored and in the ways in which states have
// been read wrongly: one position early or late, without the norm, normed twice. The absolute figure says little (text
// that the model did not write itself agrees at 60 % or less); that the right reading beats the others says much. Plain
// values and pure functions, safe from any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/json.h"

namespace draftmill {

/// How often the head's first choice was the text's token. Counts, so that those of batches add up.
struct HeadAgreement {
  std::int64_t positions = 0;
  std::int64_t as_stored = 0;
  std::int64_t one_early = 0;  ///< against the token at p
  std::int64_t one_late = 0;   ///< against the token at p + 2
  std::int64_t without_norm = 0;
  std::int64_t normed_twice = 0;

  void Add(const HeadAgreement& other);
  /// The best of the wrong readings.
  std::int64_t BestWrong() const;
  /// True where the right reading beats every wrong one by more than chance explains.
  bool IsClear() const;
  friend bool operator==(const HeadAgreement&, const HeadAgreement&) = default;
};

/// {"positions": ..., "as_stored": ..., ...}
json::Value AgreementFacts(const HeadAgreement& agreement);

/// Up to `most` positions p, spread evenly over those whose next token is supervised and which have two tokens after
/// them in their sample. `bounds` are the samples' first tokens, then the number of tokens.
std::vector<std::int64_t> CheckedPositions(std::span<const std::uint8_t> loss_mask,
                                           std::span<const std::int64_t> bounds, std::int64_t most);

/// What was seen of the states of a batch.
struct StateCheck {
  std::vector<double> mean_norms;  ///< [layers] mean L2 norm of a token's state, over samples that are good
  HeadAgreement agreement;         ///< of a sample of positions; none where x_n is not kept
};

/// Positions of a batch that are checked.
inline constexpr std::int64_t kCheckedPositions = 16;
/// A layer's mean norm in a batch is plausible within this factor of that in the run's first batch.
inline constexpr double kNormBand = 4.0;

/// The first layer (index into the list of kept ones) whose norm lies outside the band, or -1.
std::int64_t LayerOutsideBand(const std::vector<double>& mean_norms, const std::vector<double>& first_batch);

}  // namespace draftmill

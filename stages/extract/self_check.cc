#include "stages/extract/self_check.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace draftmill {

void HeadAgreement::Add(const HeadAgreement& other) {
  positions += other.positions;
  as_stored += other.as_stored;
  one_early += other.one_early;
  one_late += other.one_late;
  without_norm += other.without_norm;
  normed_twice += other.normed_twice;
}

std::int64_t HeadAgreement::BestWrong() const { return std::max({one_early, one_late, without_norm, normed_twice}); }

bool HeadAgreement::IsClear() const {
  // Two standard deviations of a difference of two counts.
  const auto wrong = static_cast<double>(BestWrong());
  const auto right = static_cast<double>(as_stored);
  return right - wrong > 2 * std::sqrt(std::max(1.0, right + wrong) * 0.5);
}

json::Value AgreementFacts(const HeadAgreement& agreement) {
  return json::Object{{"positions", agreement.positions},       {"as_stored", agreement.as_stored},
                      {"one_early", agreement.one_early},       {"one_late", agreement.one_late},
                      {"without_norm", agreement.without_norm}, {"normed_twice", agreement.normed_twice}};
}

std::vector<std::int64_t> CheckedPositions(std::span<const std::uint8_t> loss_mask,
                                           std::span<const std::int64_t> bounds, std::int64_t most) {
  std::vector<std::int64_t> candidates;
  for (std::size_t sample = 0; sample + 1 < bounds.size(); ++sample) {
    for (std::int64_t p = bounds[sample]; p + 2 < bounds[sample + 1]; ++p) {
      if (loss_mask[static_cast<std::size_t>(p + 1)] != 0) candidates.push_back(p);
    }
  }
  const auto count = static_cast<std::int64_t>(candidates.size());
  if (count <= most) return candidates;
  std::vector<std::int64_t> positions;
  for (std::int64_t i = 0; i < most; ++i) positions.push_back(candidates[static_cast<std::size_t>(i * count / most)]);
  return positions;
}

std::int64_t LayerOutsideBand(const std::vector<double>& mean_norms, const std::vector<double>& first_batch) {
  for (std::size_t layer = 0; layer < std::min(mean_norms.size(), first_batch.size()); ++layer) {
    const double ratio = mean_norms[layer] / first_batch[layer];
    if (!(ratio >= 1 / kNormBand && ratio <= kNormBand)) return static_cast<std::int64_t>(layer);
  }
  return -1;
}

}  // namespace draftmill

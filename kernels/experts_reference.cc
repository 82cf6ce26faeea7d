// The arithmetic of experts_cuda.cu in plain loops.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/experts_cuda.h"

namespace draftmill::cuda::reference {
namespace {

void Softmax(std::vector<float>& values) {
  const float largest = *std::max_element(values.begin(), values.end());
  float sum = 0;
  for (float& value : values) sum += value = std::exp(value - largest);
  for (float& value : values) value /= sum;
}

float Sigmoid(float x) { return 1.0F / (1.0F + std::exp(-x)); }

/// Indices of the largest, ascending; the lower one among equals, NaN after all numbers.
std::vector<std::int32_t> Top(const std::vector<float>& values, std::int64_t count) {
  std::vector<std::int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    const float x = values[static_cast<std::size_t>(a)];
    const float y = values[static_cast<std::size_t>(b)];
    return std::isnan(y) ? !std::isnan(x) : x > y;
  });
  order.resize(static_cast<std::size_t>(count));
  std::sort(order.begin(), order.end());
  return order;
}

void DropGroups(const RouteRowsArgs& args, std::vector<float>& choice) {
  const std::int64_t size = args.experts / args.groups;
  std::vector<float> scores;
  for (std::int64_t g = 0; g < args.groups; ++g) {
    std::vector<float> group(choice.begin() + g * size, choice.begin() + (g + 1) * size);
    std::sort(group.rbegin(), group.rend());
    scores.push_back(group[0] + group[1]);
  }
  const std::vector<std::int32_t> kept = Top(scores, args.groups_kept);
  for (std::int64_t e = 0; e < args.experts; ++e) {
    const bool stays = std::find(kept.begin(), kept.end(), static_cast<std::int32_t>(e / size)) != kept.end();
    if (!stays) choice[static_cast<std::size_t>(e)] = -std::numeric_limits<float>::infinity();
  }
}

void RouteRow(const RouteRowsArgs& args, std::int64_t r) {
  std::vector<float> logits(static_cast<std::size_t>(args.experts));
  for (std::size_t e = 0; e < logits.size(); ++e) {
    for (std::int64_t p = args.parts - 1; p >= 0; --p) {
      logits[e] += args.logits[(r * args.parts + p) * args.experts + static_cast<std::int64_t>(e)];
    }
    if (args.logit_bias != nullptr) logits[e] += args.logit_bias[e];
  }
  std::vector<float> choice = logits;
  std::vector<float> scores = logits;
  if (args.kind == RouterKind::kSigmoidBiased) {
    std::transform(scores.begin(), scores.end(), scores.begin(), Sigmoid);
    choice = scores;
    for (std::size_t e = 0; e < choice.size() && args.choice_bias != nullptr; ++e) choice[e] += args.choice_bias[e];
    if (args.groups > 1) DropGroups(args, choice);
  } else if (args.rounds) {
    std::transform(scores.begin(), scores.end(), scores.begin(), RoundToBf16);
  }
  if (args.kind == RouterKind::kSoftmax) Softmax(scores);
  const std::vector<std::int32_t> chosen = Top(choice, args.top_k);
  std::vector<float> weights;
  for (const std::int32_t e : chosen) weights.push_back(scores[static_cast<std::size_t>(e)]);
  if (args.kind == RouterKind::kSoftmaxChosen) Softmax(weights);
  const float sum =
      std::accumulate(weights.begin(), weights.end(), args.kind == RouterKind::kSigmoidBiased ? 1e-20F : 0.0F);
  for (std::size_t k = 0; k < chosen.size(); ++k) {
    const float weight = (args.renormalise ? weights[k] / sum : weights[k]) * args.scaling;
    const std::int64_t at = r * args.top_k + static_cast<std::int64_t>(k);
    args.chosen[at] = chosen[k];
    args.weights[at] = args.rounds ? RoundToBf16(weight) : weight;
  }
}

}  // namespace

void SplitFloats(const SplitFloatsArgs& args) {
  for (std::int64_t i = 0; i < args.count; ++i) {
    float rest = args.values[i];
    for (std::int64_t p = 0; p < args.part_count; ++p) {
      args.parts[p * args.count + i] = ToBf16(rest);
      rest -= RoundToBf16(rest);
    }
  }
}

void RouteRows(const RouteRowsArgs& args) {
  for (std::int64_t r = 0; r < args.rows; ++r) RouteRow(args, r);
}

void PlanSlots(const PlanSlotsArgs& args) {
  std::int32_t slot = 0;
  for (std::int32_t expert = 0; expert < args.experts; ++expert) {
    args.first_slot[expert] = slot;
    for (std::int64_t choice = 0; choice < args.rows * args.top_k; ++choice) {
      if (args.chosen[choice] != expert) continue;
      args.slots[choice] = slot++;
    }
  }
  args.first_slot[args.experts] = slot;
}

void SpreadRows(const SpreadRowsArgs& args) {
  for (std::int64_t choice = 0; choice < args.rows * args.top_k; ++choice)
    std::copy_n(args.in + choice / args.top_k * args.cols, args.cols, args.out + args.slots[choice] * args.cols);
}

void JoinExperts(const JoinExpertsArgs& args) {
  for (std::int64_t r = 0; r < args.rows; ++r) {
    for (std::int64_t i = 0; i < args.cols; ++i) {
      float sum = 0;
      for (std::int64_t k = r * args.top_k; k < (r + 1) * args.top_k; ++k) {
        const float term = ToFloat(args.expert_rows[args.slots[k] * args.cols + i]) * args.weights[k];
        sum += args.rounds_terms ? RoundToBf16(term) : term;
      }
      if (args.shared != nullptr) sum = RoundToBf16(sum) + ToFloat(args.shared[r * args.cols + i]);
      args.out[r * args.cols + i] = ToBf16(sum);
    }
  }
}

}  // namespace draftmill::cuda::reference

// The loops of kernels/experts_cpu.h. Included as decoder_cpu_body.h is, under the same rules.
#include "kernels/experts_cpu.h"
#include "kernels/lanes_body.h"

namespace draftmill::DRAFTMILL_KERNEL_NAMESPACE {
namespace {

// ---- routers -------------------------------------------------------------------------------------------------------

inline float Largest(const float* values, std::int64_t count) {
  float largest = values[0];
  for (std::int64_t i = 1; i < count; ++i) largest = values[i] > largest ? values[i] : largest;
  return largest;
}

/// Softmax in place.
inline void Softmax(float* values, std::int64_t count) {
  const float largest = Largest(values, count);
  float sum = 0;
  for (std::int64_t i = 0; i < count; ++i) values[i] = Exp(values[i] - largest);
  for (std::int64_t i = 0; i < count; ++i) sum += values[i];
  for (std::int64_t i = 0; i < count; ++i) values[i] /= sum;
}

inline bool Contains(const std::int32_t* list, std::int64_t count, std::int64_t value) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (list[i] == value) return true;
  }
  return false;
}

/// The largest value that is not yet chosen; the lowest index among equals. Rows of NaN get the lowest indices left.
inline std::int64_t BestLeft(const float* values, std::int64_t count, const std::int32_t* chosen,
                             std::int64_t chosen_count) {
  std::int64_t best = -1;
  std::int64_t fallback = -1;
  for (std::int64_t i = 0; i < count; ++i) {
    const bool better = best < 0 ? values[i] == values[i] : values[i] > values[best];
    if (!better && fallback >= 0) continue;
    if (Contains(chosen, chosen_count, i)) continue;
    if (fallback < 0) fallback = i;
    if (better) best = i;
  }
  return best < 0 ? fallback : best;
}

inline void SortAscending(std::int32_t* list, std::int64_t count) {
  for (std::int64_t i = 1; i < count; ++i) {
    const std::int32_t value = list[i];
    std::int64_t place = i;
    for (; place > 0 && list[place - 1] > value; --place) list[place] = list[place - 1];
    list[place] = value;
  }
}

inline void ChooseTop(const float* values, std::int64_t count, std::int64_t top, std::int32_t* chosen) {
  for (std::int64_t k = 0; k < top; ++k) chosen[k] = static_cast<std::int32_t>(BestLeft(values, count, chosen, k));
  SortAscending(chosen, top);
}

/// Sum of a group's two best values.
inline float GroupScore(const float* values, std::int64_t count) {
  float first = values[0];
  float second = -__builtin_inff();
  for (std::int64_t i = 1; i < count; ++i) {
    if (values[i] > first) {
      second = first;
      first = values[i];
    } else if (values[i] > second) {
      second = values[i];
    }
  }
  return first + second;
}

/// Experts outside the best groups can no longer be chosen.
inline void DropGroups(const RouteArgs& args, float* values) {
  constexpr std::int64_t kMostGroups = 256;
  const std::int64_t size = args.experts / args.groups;
  float scores[kMostGroups];
  std::int32_t kept[kMostGroups];
  for (std::int64_t g = 0; g < args.groups; ++g) scores[g] = GroupScore(values + g * size, size);
  ChooseTop(scores, args.groups, args.groups_kept, kept);
  for (std::int64_t g = 0; g < args.groups; ++g) {
    if (Contains(kept, args.groups_kept, g)) continue;
    for (std::int64_t i = 0; i < size; ++i) values[g * size + i] = -__builtin_inff();
  }
}

/// What the chosen weigh before they are renormalised, and the choice itself.
inline void ChooseExperts(const RouteArgs& args, const float* logits, std::int32_t* chosen, float* weights) {
  float* scores = args.scratch;
  float* choice = args.scratch + args.experts;
  switch (args.kind) {
    case RouterKind::kSoftmax:
    case RouterKind::kSoftmaxChosen:
      // Both softmaxes keep the order of the logits.
      ChooseTop(logits, args.experts, args.top_k, chosen);
      for (std::int64_t e = 0; e < args.experts; ++e) scores[e] = args.rounds ? Rounded<true>(logits[e]) : logits[e];
      if (args.kind == RouterKind::kSoftmax) Softmax(scores, args.experts);
      break;
    case RouterKind::kSigmoidBiased:
      for (std::int64_t e = 0; e < args.experts; ++e) scores[e] = Sigmoid(logits[e]);
      for (std::int64_t e = 0; e < args.experts; ++e)
        choice[e] = scores[e] + (args.bias == nullptr ? 0.0F : args.bias[e]);
      if (args.groups > 1) DropGroups(args, choice);
      ChooseTop(choice, args.experts, args.top_k, chosen);
      break;
  }
  for (std::int64_t k = 0; k < args.top_k; ++k) weights[k] = scores[chosen[k]];
  if (args.kind == RouterKind::kSoftmaxChosen) Softmax(weights, args.top_k);
}

void Route(const RouteArgs& args) {
  // DeepSeek's rule keeps a sum of nothing from dividing by zero; softmax weights are never all zero.
  const float floor = args.kind == RouterKind::kSigmoidBiased ? 1e-20F : 0.0F;
  for (std::int64_t r = 0; r < args.rows; ++r) {
    float* weights = args.weights + r * args.top_k;
    ChooseExperts(args, args.logits + r * args.experts, args.chosen + r * args.top_k, weights);
    float sum = floor;
    for (std::int64_t k = 0; k < args.top_k; ++k) sum += weights[k];
    for (std::int64_t k = 0; k < args.top_k; ++k) {
      const float weight = (args.renormalise ? weights[k] / sum : weights[k]) * args.scaling;
      weights[k] = args.rounds ? Rounded<true>(weight) : weight;
    }
  }
}

// ---- rows ----------------------------------------------------------------------------------------------------------

template <typename T>
void GatherRows(const T* rows, const std::int32_t* indices, T* out, std::int64_t count, std::int64_t cols) {
  for (std::int64_t i = 0; i < count; ++i) {
    __builtin_memcpy(out + i * cols, rows + indices[i] * cols, static_cast<std::size_t>(cols) * sizeof(T));
  }
}

template <bool kRounds, bool kRoundsTerms, typename T>
inline void AddRow(const T* __restrict row, float weight, float* __restrict sums, std::int64_t cols) {
  for (std::int64_t i = 0; i < cols; ++i) sums[i] += Rounded<kRoundsTerms>(Load<kRounds>(row[i]) * weight);
}

template <bool kRounds, bool kRoundsTerms, typename T>
void AddExpertRows(const AddExpertsArgs<T>& args) {
  for (std::int64_t r = 0; r < args.rows; ++r) {
    for (std::int64_t k = r * args.top_k; k < (r + 1) * args.top_k; ++k) {
      if (args.chosen[k] < args.first_expert || args.chosen[k] >= args.end_expert) continue;
      AddRow<kRounds, kRoundsTerms>(args.expert_rows + (args.slots[k] - args.first_slot) * args.cols, args.weights[k],
                                    args.sums + r * args.cols, args.cols);
    }
  }
}

template <typename T>
void AddExperts(const AddExpertsArgs<T>& args) {
  if (!args.rounds) return AddExpertRows<false, false>(args);
  return args.rounds_terms ? AddExpertRows<true, true>(args) : AddExpertRows<true, false>(args);
}

template <bool kRounds, typename T>
void JoinSharedOf(const JoinSharedArgs<T>& args) {
  for (std::int64_t i = 0; i < args.count; ++i) {
    const float routed = Rounded<kRounds>(args.sums[i]);
    Store<kRounds>(args.shared == nullptr ? routed : routed + Load<kRounds>(args.shared[i]), args.out[i]);
  }
}

template <typename T>
void JoinShared(const JoinSharedArgs<T>& args) {
  return args.rounds ? JoinSharedOf<true>(args) : JoinSharedOf<false>(args);
}

template <typename T>
constexpr ExpertKernels<T> ExpertTable() {
  return {Route, GatherRows<T>, AddExperts<T>, JoinShared<T>};
}

}  // namespace

extern const ExpertKernels<float> kFloatExpertKernels;
extern const ExpertKernels<Bf16> kBf16ExpertKernels;
constinit const ExpertKernels<float> kFloatExpertKernels = ExpertTable<float>();
constinit const ExpertKernels<Bf16> kBf16ExpertKernels = ExpertTable<Bf16>();

}  // namespace draftmill::DRAFTMILL_KERNEL_NAMESPACE

#include "kernels/experts_cpu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/test_values.h"

namespace draftmill {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;

struct Routed {
  std::vector<std::int32_t> chosen;
  std::vector<float> weights;
};

/// Fills in the buffers and routes.
Routed Route(const ExpertKernels<float>& kernels, RouteArgs args, const std::vector<float>& logits) {
  const auto rows = static_cast<std::size_t>(args.rows);
  Routed routed{std::vector<std::int32_t>(rows * static_cast<std::size_t>(args.top_k), -1),
                std::vector<float>(rows * static_cast<std::size_t>(args.top_k))};
  std::vector<float> scratch(static_cast<std::size_t>(2 * args.experts));
  args.logits = logits.data();
  args.scratch = scratch.data();
  args.chosen = routed.chosen.data();
  args.weights = routed.weights.data();
  kernels.route(args);
  return routed;
}

class ExpertsCpu : public ::testing::TestWithParam<InstructionSet> {
 protected:
  const ExpertKernels<float>& kernels() const { return ExpertKernelsFor<float>(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(Sets, ExpertsCpu, ::testing::ValuesIn(AvailableSets()), [](const auto& set_info) {
  return set_info.param == InstructionSet::kBaseline ? "baseline" : InstructionSetName(set_info.param);
});

TEST_P(ExpertsCpu, SoftmaxRouterTakesShareOfAllExperts) {
  const std::vector<float> logits{0.0F, std::log(2.0F), std::log(4.0F), std::log(1.0F)};
  RouteArgs args{.rows = 1, .experts = 4, .top_k = 2};
  const Routed plain = Route(kernels(), args, logits);
  EXPECT_THAT(plain.chosen, ElementsAre(1, 2));
  EXPECT_NEAR(plain.weights[0], 2.0 / 8.0, 1e-6);
  EXPECT_NEAR(plain.weights[1], 4.0 / 8.0, 1e-6);
  args.renormalise = true;
  const Routed renormalised = Route(kernels(), args, logits);
  EXPECT_NEAR(renormalised.weights[0], 2.0 / 6.0, 1e-6);
  EXPECT_NEAR(renormalised.weights[1], 4.0 / 6.0, 1e-6);
}

TEST_P(ExpertsCpu, SoftmaxOfTheChosenSumsToOne) {
  const Routed routed = Route(kernels(), {.rows = 1, .experts = 3, .top_k = 2, .kind = RouterKind::kSoftmaxChosen},
                              {std::log(3.0F), -100.0F, std::log(1.0F)});
  EXPECT_THAT(routed.chosen, ElementsAre(0, 2));
  EXPECT_NEAR(routed.weights[0], 0.75, 1e-6);
  EXPECT_NEAR(routed.weights[1], 0.25, 1e-6);
}

TEST_P(ExpertsCpu, TheCorrectionBiasChoosesButDoesNotWeigh) {
  const std::vector<float> bias{0.0F, 10.0F, 0.0F, 0.0F};
  const RouteArgs args{.bias = bias.data(),
                       .rows = 1,
                       .experts = 4,
                       .top_k = 2,
                       .kind = RouterKind::kSigmoidBiased,
                       .renormalise = true,
                       .scaling = 2.5F};
  const Routed routed = Route(kernels(), args, {-3.0F, -4.0F, 2.0F, 0.0F});
  EXPECT_THAT(routed.chosen, ElementsAre(1, 2));
  const double first = 1 / (1 + std::exp(4.0));
  const double second = 1 / (1 + std::exp(-2.0));
  EXPECT_NEAR(routed.weights[0], 2.5 * first / (first + second), 1e-6);
  EXPECT_NEAR(routed.weights[1], 2.5 * second / (first + second), 1e-6);
}

TEST_P(ExpertsCpu, OnlyTheBestGroupsAreChosenFrom) {
  // Group 0 has the single best expert, groups 1 and 2 the better pairs.
  const std::vector<float> logits{5.0F, -9.0F, 2.0F, 2.1F, 1.9F, 2.2F, -5.0F, -5.0F};
  const RouteArgs args{
      .rows = 1, .experts = 8, .top_k = 3, .kind = RouterKind::kSigmoidBiased, .groups = 4, .groups_kept = 2};
  EXPECT_THAT(Route(kernels(), args, logits).chosen, ElementsAre(2, 3, 5));
}

TEST_P(ExpertsCpu, TiesGoToTheLowerExpert) {
  for (const RouterKind kind : {RouterKind::kSoftmax, RouterKind::kSoftmaxChosen, RouterKind::kSigmoidBiased}) {
    const Routed routed = Route(kernels(), {.rows = 1, .experts = 6, .top_k = 3, .kind = kind}, {1, 2, 1, 1, 2, 1});
    EXPECT_THAT(routed.chosen, ElementsAre(0, 1, 4));
  }
}

TEST_P(ExpertsCpu, RowsOfNanChooseDistinctExperts) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const RouterKind kind : {RouterKind::kSoftmax, RouterKind::kSoftmaxChosen, RouterKind::kSigmoidBiased}) {
    EXPECT_THAT(Route(kernels(), {.rows = 1, .experts = 4, .top_k = 3, .kind = kind}, {nan, nan, nan, nan}).chosen,
                ElementsAre(0, 1, 2));
  }
}

/// Against a sort, over many rows.
TEST_P(ExpertsCpu, ChoosesTheLargest) {
  constexpr std::int64_t kRows = 40;
  constexpr std::int64_t kExperts = 37;
  constexpr std::int64_t kTop = 5;
  const auto logits = RandomValues(kRows * kExperts, 3, 1.0F);
  const Routed routed = Route(kernels(), {.rows = kRows, .experts = kExperts, .top_k = kTop}, logits);
  for (std::int64_t r = 0; r < kRows; ++r) {
    std::vector<std::int32_t> order(kExperts);
    std::iota(order.begin(), order.end(), 0);
    const float* row = logits.data() + r * kExperts;
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) { return row[a] > row[b]; });
    std::sort(order.begin(), order.begin() + kTop);
    EXPECT_TRUE(std::equal(order.begin(), order.begin() + kTop, routed.chosen.begin() + r * kTop)) << r;
  }
}

TEST_P(ExpertsCpu, WeightsOfBfloat16ModelsAreRounded) {
  const Routed routed = Route(kernels(), {.rows = 1, .experts = 3, .top_k = 2, .rounds = true}, {0.1F, 0.2F, 0.5F});
  for (const float weight : routed.weights) EXPECT_EQ(weight, RoundToBf16(weight));
}

/// The last two are the largest, though all four are the same bfloat16; their weights are those of equal logits.
TEST_P(ExpertsCpu, RoundingTiesAreNoTiesOfTheChoice) {
  const std::vector<float> logits{1.0F, 1.0005F, 1.0015F, 1.001F};
  for (const float logit : logits) ASSERT_EQ(RoundToBf16(logit), 1.0F);
  for (const RouterKind kind : {RouterKind::kSoftmax, RouterKind::kSoftmaxChosen}) {
    const Routed routed = Route(
        kernels(), {.rows = 1, .experts = 4, .top_k = 2, .kind = kind, .renormalise = true, .rounds = true}, logits);
    EXPECT_THAT(routed.chosen, ElementsAre(2, 3));
    EXPECT_THAT(routed.weights, ElementsAre(0.5F, 0.5F));
  }
}

/// Two tokens, two waves: each result is added in the wave of its expert and nowhere else.
TEST_P(ExpertsCpu, WavesAddUp) {
  const std::vector<std::int32_t> chosen{0, 2, 1, 2};
  const std::vector<float> weights{0.5F, 0.25F, 1.0F, 2.0F};
  const std::vector<std::int32_t> slots{0, 2, 1, 3};
  const std::vector<float> first_rows{1, 2, 3, 4};       // slots 0 and 1
  const std::vector<float> second_rows{10, 20, 30, 40};  // slots 2 and 3
  std::vector<float> sums(4, 0.0F);
  AddExpertsArgs<float> args;
  args.chosen = chosen.data();
  args.weights = weights.data();
  args.slots = slots.data();
  args.sums = sums.data();
  args.rows = 2;
  args.top_k = 2;
  args.cols = 2;
  args.rounds = false;
  args.expert_rows = first_rows.data();
  args.end_expert = 2;
  kernels().add_experts(args);
  args.expert_rows = second_rows.data();
  args.first_slot = 2;
  args.first_expert = 2;
  args.end_expert = 3;
  kernels().add_experts(args);
  EXPECT_THAT(sums,
              ElementsAre(FloatEq(0.5F + 2.5F), FloatEq(1.0F + 5.0F), FloatEq(3.0F + 60.0F), FloatEq(4.0F + 80.0F)));
}

TEST_P(ExpertsCpu, GathersAndJoinsRows) {
  const std::vector<float> rows{1, 2, 3, 4, 5, 6};
  const std::vector<std::int32_t> indices{2, 0, 2};
  std::vector<float> out(6);
  kernels().gather_rows(rows.data(), indices.data(), out.data(), 3, 2);
  EXPECT_THAT(out, ElementsAre(5, 6, 1, 2, 5, 6));
  // The routed sum is rounded before the shared experts are added, then the sum of both.
  const std::vector<float> sums{1.001F, 256.0F};
  std::vector<float> shared{1.0F, 1.0F};
  kernels().join_shared({sums.data(), shared.data(), shared.data(), 2, true});
  EXPECT_THAT(shared, ElementsAre(2.0F, 256.0F));
  kernels().join_shared({sums.data(), nullptr, shared.data(), 2, false});
  EXPECT_THAT(shared, ElementsAre(1.001F, 256.0F));
}

TEST_P(ExpertsCpu, EveryInstructionSetGivesTheSameBits) {
  const ExpertKernels<float>& baseline = ExpertKernelsFor<float>(InstructionSet::kBaseline);
  const auto logits = RandomValues(60 * 48, 11, 2.0F, false);
  for (const RouterKind kind : {RouterKind::kSoftmax, RouterKind::kSoftmaxChosen, RouterKind::kSigmoidBiased}) {
    const RouteArgs args{.rows = 60, .experts = 48, .top_k = 6, .kind = kind, .renormalise = true, .scaling = 2.827F};
    const Routed a = Route(baseline, args, logits);
    const Routed b = Route(kernels(), args, logits);
    EXPECT_EQ(a.chosen, b.chosen);
    EXPECT_EQ(std::memcmp(a.weights.data(), b.weights.data(), a.weights.size() * sizeof(float)), 0);
  }
}

}  // namespace
}  // namespace draftmill

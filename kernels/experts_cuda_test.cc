// The kernels of experts_cuda.h and expand_cuda.h against their references over odd sizes; and the references against
// what they stand for. The first half needs a GPU and is skipped without one.
#include "kernels/experts_cuda.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda_test.h"
#include "kernels/expand_cuda.h"

namespace draftmill {
namespace {

using cuda::ExpandKind;
using cuda::ExpandMatrixArgs;
using cuda::PlanSlotsArgs;
using cuda::RouteRowsArgs;
using ::testing::ElementsAre;
namespace reference = cuda::reference;

using ExpertsCudaTest = CudaTest;

std::size_t Size(std::int64_t count) { return static_cast<std::size_t>(count); }

/// A choice of `top_k` ascending experts for each row; row 0 takes the last ones.
std::vector<std::int32_t> RandomChoices(Random& random, std::int64_t rows, std::int64_t top_k, std::int32_t experts) {
  std::vector<std::int32_t> chosen;
  for (std::int64_t r = 0; r < rows; ++r) {
    std::vector<std::int32_t> row;
    while (static_cast<std::int64_t>(row.size()) < top_k) {
      const std::int32_t expert =
          r == 0 ? experts - 1 - static_cast<std::int32_t>(row.size()) : random.Integers(1, experts)[0];
      if (std::find(row.begin(), row.end(), expert) == row.end()) row.push_back(expert);
    }
    std::sort(row.begin(), row.end());
    chosen.insert(chosen.end(), row.begin(), row.end());
  }
  return chosen;
}

struct RouteCase {
  RouterKind kind;
  std::int64_t rows, parts, experts, top_k, groups, groups_kept;
  bool renormalise, rounds, biases;
};

const std::vector<RouteCase>& RouteCases() {
  static const std::vector<RouteCase> cases = {
      {RouterKind::kSoftmax, 129, 1, 128, 8, 1, 1, true, true, false},
      {RouterKind::kSoftmax, 127, 1, 12, 3, 1, 1, false, false, false},
      {RouterKind::kSoftmax, 1, 1, 1, 1, 1, 1, true, true, false},
      {RouterKind::kSoftmaxChosen, 129, 1, 32, 4, 1, 1, true, true, true},
      {RouterKind::kSoftmaxChosen, 127, 1, 5, 5, 1, 1, false, false, true},
      {RouterKind::kSigmoidBiased, 129, 3, 384, 8, 1, 1, true, false, true},
      {RouterKind::kSigmoidBiased, 127, 3, 256, 8, 8, 4, true, false, true},
      {RouterKind::kSigmoidBiased, 33, 2, 16, 4, 4, 2, false, false, false},
      {RouterKind::kSigmoidBiased, 3, 1, 2048, 64, 64, 5, true, false, true},
  };
  return cases;
}

TEST_F(ExpertsCudaTest, RouteRows) {
  for (const RouteCase& c : RouteCases()) {
    std::vector<float> logits = random_.Weights(c.rows * c.parts * c.experts, 0.0F, 1.0F);
    for (std::int64_t e = 0; e < c.parts * c.experts; ++e) logits[Size(e)] = 0.25F;  // row 0: nothing but ties
    const std::vector<float> bias = random_.Weights(c.experts, 0.0F, 0.2F);
    const bool sigmoid = c.kind == RouterKind::kSigmoidBiased;
    std::vector<std::int32_t> chosen(Size(c.rows * c.top_k), -7);
    std::vector<float> weights(Size(c.rows * c.top_k), -7.0F);
    const auto device_logits = ToDevice(logits);
    const auto device_bias = ToDevice(bias);
    auto device_chosen = ToDevice(chosen);
    auto device_weights = ToDevice(weights);
    RouteRowsArgs args{.logits = device_logits.data(),
                       .chosen = device_chosen.data(),
                       .weights = device_weights.data(),
                       .rows = c.rows,
                       .parts = c.parts,
                       .experts = c.experts,
                       .top_k = c.top_k,
                       .kind = c.kind,
                       .groups = c.groups,
                       .groups_kept = c.groups_kept,
                       .renormalise = c.renormalise,
                       .scaling = 2.5F,
                       .rounds = c.rounds};
    if (c.biases) (sigmoid ? args.choice_bias : args.logit_bias) = device_bias.data();
    Finish(cuda::RouteRows(args, nullptr));
    args.logits = logits.data();
    args.chosen = chosen.data();
    args.weights = weights.data();
    if (c.biases) (sigmoid ? args.choice_bias : args.logit_bias) = bias.data();
    reference::RouteRows(args);
    const std::string what = std::to_string(c.experts) + " experts, top " + std::to_string(c.top_k);
    // Sigmoids differ in the last bit: a choice by them may differ where two are that close, which random values never
    // are.
    EXPECT_EQ(device_chosen.Download().value(), chosen) << what;
    const std::vector<float> got = device_weights.Download().value();
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], weights[i], (c.rounds ? 0.008F : 4e-6F) * std::abs(weights[i]) + 1e-12F)
          << what << ": place " << i;
    }
  }
}

TEST_F(ExpertsCudaTest, RowsOfNaNGetTheLowestExperts) {
  const std::vector<float> logits(12, std::numeric_limits<float>::quiet_NaN());
  const auto device_logits = ToDevice(logits);
  auto chosen = ToDevice(std::vector<std::int32_t>(6));
  auto weights = ToDevice(std::vector<float>(6));
  Finish(cuda::RouteRows({.logits = device_logits.data(),
                          .chosen = chosen.data(),
                          .weights = weights.data(),
                          .rows = 2,
                          .experts = 6,
                          .top_k = 3},
                         nullptr));
  EXPECT_THAT(chosen.Download().value(), ElementsAre(0, 1, 2, 0, 1, 2));
}

TEST_F(ExpertsCudaTest, PlanSlotsSpreadAndJoin) {
  struct Case {
    std::int64_t rows, top_k, experts, cols;
    bool shared, rounds_terms;
  };
  for (const Case& c : std::vector<Case>{{1, 1, 1, 8, false, true},
                                         {127, 3, 12, 96, false, true},
                                         {129, 8, 384, 72, true, false},
                                         {4500, 4, 32, 33, true, true},
                                         {2049, 6, 2048, 64, false, false}}) {
    const std::vector<std::int32_t> chosen =
        RandomChoices(random_, c.rows, c.top_k, static_cast<std::int32_t>(c.experts));
    std::vector<std::int32_t> slots(Size(c.rows * c.top_k), -7);
    std::vector<std::int32_t> first_slot(Size(c.experts + 1), -7);
    const auto device_chosen = ToDevice(chosen);
    auto device_slots = ToDevice(slots);
    auto device_first_slot = ToDevice(first_slot);
    auto scratch = cuda::DeviceBuffer<std::int32_t>::Make(cuda::PlanSlotsScratch(c.rows, c.experts)).value();
    PlanSlotsArgs plan{device_chosen.data(),
                       device_slots.data(),
                       device_first_slot.data(),
                       scratch.data(),
                       c.rows,
                       c.top_k,
                       c.experts};
    Finish(cuda::PlanSlots(plan, nullptr));
    reference::PlanSlots({chosen.data(), slots.data(), first_slot.data(), nullptr, c.rows, c.top_k, c.experts});
    const std::string what = std::to_string(c.rows) + " rows, " + std::to_string(c.experts) + " experts";
    EXPECT_EQ(device_first_slot.Download().value(), first_slot) << what;
    ASSERT_EQ(device_slots.Download().value(), slots) << what;

    const std::vector<Bf16> rows = random_.Values(c.rows * c.cols);
    std::vector<Bf16> spread = Poisoned(c.rows * c.top_k * c.cols);
    const auto device_rows = ToDevice(rows);
    auto device_spread = ToDevice(spread);
    Finish(cuda::SpreadRows({device_rows.data(), device_slots.data(), device_spread.data(), c.rows, c.top_k, c.cols},
                            nullptr));
    reference::SpreadRows({rows.data(), slots.data(), spread.data(), c.rows, c.top_k, c.cols});
    ExpectSame(device_spread.Download().value(), spread, what + " spread");

    const std::vector<float> weights = random_.Weights(c.rows * c.top_k, 0.3F, 0.1F);
    std::vector<Bf16> out = Poisoned(c.rows * c.cols);
    const auto device_weights = ToDevice(weights);
    auto device_out = ToDevice(out);
    Finish(cuda::JoinExperts(
        {device_spread.data(), device_slots.data(), device_weights.data(), c.shared ? device_rows.data() : nullptr,
         device_out.data(), c.rows, c.top_k, c.cols, c.rounds_terms},
        nullptr));
    reference::JoinExperts({spread.data(), slots.data(), weights.data(), c.shared ? rows.data() : nullptr, out.data(),
                            c.rows, c.top_k, c.cols, c.rounds_terms});
    ExpectSame(device_out.Download().value(), out, what + " joined");
  }
}

TEST_F(ExpertsCudaTest, SplitFloats) {
  const std::vector<float> values = random_.Floats(1001);
  for (const std::int64_t parts : {1, 2, 3}) {
    std::vector<Bf16> want = Poisoned(parts * 1001);
    const auto device_values = ToDevice(values);
    auto device_parts = ToDevice(want);
    Finish(cuda::SplitFloats({device_values.data(), device_parts.data(), 1001, parts}, nullptr));
    reference::SplitFloats({values.data(), want.data(), 1001, parts});
    ExpectSame(device_parts.Download().value(), want, std::to_string(parts));
  }
}

// ---- expansion -----------------------------------------------------------------------------------------------------

/// Matrices of random bytes, every code among them; scales are numbers of their format.
struct Packed {
  std::vector<std::byte> bytes;
  ExpandMatrixArgs args;
};

struct ExpandCase {
  ExpandKind kind;
  std::int64_t matrices, rows, columns, stacked, block_rows, block_columns;
};

Packed Pack(Random& random, const ExpandCase& c) {
  const auto aligned = [](std::int64_t count) { return (count + 63) / 64 * 64; };
  Packed packed;
  ExpandMatrixArgs& args = packed.args;
  args.kind = c.kind;
  args.matrices = c.matrices;
  args.rows = c.rows;
  args.columns = c.columns;
  args.stack_rows = c.rows / c.stacked;
  args.block_rows = c.block_rows;
  args.block_columns = c.block_columns;
  args.row_bytes = c.kind == ExpandKind::kFp8 ? c.columns : 4 * ((c.columns + 7) / 8);
  args.scale_columns = (c.columns + c.block_columns - 1) / c.block_columns;
  args.out_distance = c.rows * c.columns;
  const bool wide_scales = c.kind == ExpandKind::kFp8 || c.kind == ExpandKind::kInt4Float;
  const std::int64_t scale_bytes = wide_scales ? 4 : c.kind == ExpandKind::kMxfp4 ? 1 : 2;
  const std::int64_t scales = c.stacked * ((args.stack_rows + c.block_rows - 1) / c.block_rows) * args.scale_columns;
  const std::int64_t scales_at = aligned(c.rows * args.row_bytes);
  args.matrix_bytes = aligned(scales_at + scales * scale_bytes);
  for (const std::int32_t byte : random.Integers(c.matrices * args.matrix_bytes, 256))
    packed.bytes.push_back(static_cast<std::byte>(byte));
  // Any bits are a half and an exponent; random floats would be too large.
  for (std::int64_t m = 0; m < c.matrices && c.kind != ExpandKind::kMxfp4 && c.kind != ExpandKind::kInt4Half; ++m) {
    const std::vector<float> numbers = random.Floats(scales);
    for (std::int64_t i = 0; i < scales; ++i) {
      std::byte* const at = packed.bytes.data() + m * args.matrix_bytes + scales_at + i * scale_bytes;
      const float wide = numbers[Size(i)];
      const Bf16 narrow = ToBf16(wide);
      std::memcpy(at, wide_scales ? static_cast<const void*>(&wide) : &narrow, Size(scale_bytes));
    }
  }
  args.values = packed.bytes.data();
  args.scales = packed.bytes.data() + scales_at;
  return packed;
}

TEST_F(ExpertsCudaTest, ExpandMatrix) {
  for (const ExpandCase& c : std::vector<ExpandCase>{{ExpandKind::kFp8, 2, 512, 384, 2, 128, 128},
                                                     {ExpandKind::kFp8, 3, 96, 77, 2, 24, 20},
                                                     {ExpandKind::kFp8, 1, 1, 3, 1, 128, 128},
                                                     {ExpandKind::kInt4, 3, 128, 7168, 2, 1, 32},
                                                     {ExpandKind::kInt4, 2, 5, 96, 1, 1, 32},
                                                     {ExpandKind::kInt4, 1, 3, 40, 1, 1, 20},
                                                     {ExpandKind::kInt4, 1, 127, 13, 1, 1, 3},
                                                     {ExpandKind::kInt4Half, 2, 128, 1024, 2, 1, 32},
                                                     {ExpandKind::kInt4Half, 1, 127, 13, 1, 1, 3},
                                                     {ExpandKind::kInt4Float, 2, 128, 96, 2, 1, 32},
                                                     {ExpandKind::kMxfp4, 4, 130, 2880, 1, 1, 32},
                                                     {ExpandKind::kMxfp4, 1, 2, 9, 1, 1, 32}}) {
    Packed packed = Pack(random_, c);
    const auto bytes = ToDevice(packed.bytes);
    std::vector<Bf16> out = Poisoned(c.matrices * c.rows * c.columns);
    auto device_out = ToDevice(out);
    packed.args.out = out.data();
    reference::ExpandMatrix(packed.args);
    packed.args.scales = bytes.data() + (packed.args.scales - packed.args.values);
    packed.args.values = bytes.data();
    packed.args.out = device_out.data();
    Finish(cuda::ExpandMatrix(packed.args, nullptr));
    ExpectSame(device_out.Download().value(), out, std::to_string(c.rows) + " x " + std::to_string(c.columns));
  }
}

// ---- the references ------------------------------------------------------------------------------------------------

struct Routed {
  std::vector<std::int32_t> chosen;
  std::vector<float> weights;
};
Routed RouteOnHost(RouteRowsArgs args, const std::vector<float>& logits) {
  Routed routed{std::vector<std::int32_t>(Size(args.rows * args.top_k)),
                std::vector<float>(Size(args.rows * args.top_k))};
  args.logits = logits.data();
  args.chosen = routed.chosen.data();
  args.weights = routed.weights.data();
  reference::RouteRows(args);
  return routed;
}

/// What the CPU engine's router gives, with the same choice and weights to the last bits of an exponential.
TEST(ExpertsReferenceTest, RoutesAsTheCpuEngineDoes) {
  Random random;
  const ExpertKernels<float>& cpu = ExpertKernelsFor<float>(DetectInstructionSet());
  for (const RouteCase& c : RouteCases()) {
    const bool sigmoid = c.kind == RouterKind::kSigmoidBiased;
    std::vector<float> logits = random.Weights(c.rows * c.experts, 0.0F, 1.0F);
    const std::vector<float> bias = random.Weights(c.experts, 0.0F, 0.2F);
    const Routed got = RouteOnHost({.choice_bias = sigmoid ? bias.data() : nullptr,
                                    .rows = c.rows,
                                    .experts = c.experts,
                                    .top_k = c.top_k,
                                    .kind = c.kind,
                                    .groups = c.groups,
                                    .groups_kept = c.groups_kept,
                                    .renormalise = c.renormalise,
                                    .scaling = 2.5F},
                                   logits);
    Routed want = got;
    std::vector<float> scratch(Size(2 * c.experts));
    cpu.route({.logits = logits.data(),
               .bias = sigmoid ? bias.data() : nullptr,
               .scratch = scratch.data(),
               .chosen = want.chosen.data(),
               .weights = want.weights.data(),
               .rows = c.rows,
               .experts = c.experts,
               .top_k = c.top_k,
               .kind = c.kind,
               .groups = c.groups,
               .groups_kept = c.groups_kept,
               .renormalise = c.renormalise,
               .scaling = 2.5F});
    EXPECT_EQ(got.chosen, want.chosen) << c.experts;
    for (std::size_t i = 0; i < want.weights.size(); ++i)
      ASSERT_NEAR(got.weights[i], want.weights[i], 1e-5F * want.weights[i]);
  }
}

TEST(ExpertsReferenceTest, TiesGoToTheLowerExpertAndRoundingMakesNone) {
  EXPECT_THAT(RouteOnHost({.rows = 1, .experts = 4, .top_k = 2}, {1, 2, 2, 2}).chosen, ElementsAre(1, 2));
  const Routed routed = RouteOnHost({.rows = 1, .experts = 4, .top_k = 2, .renormalise = true, .rounds = true},
                                    {1.0F, 1.0005F, 1.0015F, 1.001F});
  EXPECT_THAT(routed.chosen, ElementsAre(2, 3));
  EXPECT_THAT(routed.weights, ElementsAre(0.5F, 0.5F));
}

TEST(ExpertsReferenceTest, ThreePartsHoldAFloat) {
  Random random;
  const std::vector<float> values = random.Floats(500);
  std::vector<Bf16> parts(1500);
  reference::SplitFloats({values.data(), parts.data(), 500, 3});
  for (std::size_t i = 0; i < 500; ++i) {
    EXPECT_EQ(ToFloat(parts[i]) + (ToFloat(parts[500 + i]) + ToFloat(parts[1000 + i])), values[i]);
  }
}

TEST(ExpertsReferenceTest, SlotsSortByExpertThenRow) {
  const std::vector<std::int32_t> chosen{1, 3, 0, 3, 1, 2};
  std::vector<std::int32_t> slots(6);
  std::vector<std::int32_t> first(5);
  reference::PlanSlots({chosen.data(), slots.data(), first.data(), nullptr, 3, 2, 4});
  EXPECT_THAT(first, ElementsAre(0, 1, 3, 4, 6));
  EXPECT_THAT(slots, ElementsAre(1, 4, 0, 5, 2, 3));
}

TEST(ExpertsReferenceTest, RowsAreSpreadToEachOfTheirSlots) {
  const std::vector<Bf16> rows{ToBf16(1.0F), ToBf16(2.0F)};
  const std::vector<std::int32_t> slots{2, 0, 3, 1};
  std::vector<Bf16> out(4);
  reference::SpreadRows({rows.data(), slots.data(), out.data(), 2, 2, 1});
  std::vector<float> values;
  for (const Bf16 value : out) values.push_back(ToFloat(value));
  EXPECT_THAT(values, ElementsAre(1.0F, 2.0F, 1.0F, 2.0F));
}

TEST(ExpertsReferenceTest, JoinRoundsWhereTheModelsDo) {
  const std::vector<Bf16> rows{ToBf16(1.0F), ToBf16(3.0F)};
  const std::vector<std::int32_t> slots{0, 1};
  const std::vector<float> weights{0.334F, 0.667F};
  const std::vector<Bf16> shared{ToBf16(100.0F)};
  std::vector<Bf16> out(1);
  reference::JoinExperts({rows.data(), slots.data(), weights.data(), shared.data(), out.data(), 1, 2, 1, true});
  const float routed = RoundToBf16(RoundToBf16(0.334F) + RoundToBf16(2.001F));
  EXPECT_EQ(ToFloat(out[0]), RoundToBf16(routed + 100.0F));
}

TEST(ExpandReferenceTest, FollowsTheFormats) {
  const auto expand = [](ExpandKind kind, std::byte value, std::vector<std::byte> scale) {
    std::vector<Bf16> out(1);
    reference::ExpandMatrix({.kind = kind,
                             .values = &value,
                             .scales = scale.data(),
                             .out = out.data(),
                             .rows = 1,
                             .columns = 1,
                             .row_bytes = 1,
                             .stack_rows = 1,
                             .scale_columns = 1});
    return ToFloat(out[0]);
  };
  const std::byte zero{0};
  EXPECT_EQ(expand(ExpandKind::kFp8, std::byte{0x7e}, {zero, zero, std::byte{0x80}, std::byte{0x3f}}), 448.0F);
  EXPECT_EQ(expand(ExpandKind::kFp8, std::byte{0x81}, {zero, zero, std::byte{0x80}, std::byte{0x3f}}), -0x1p-9F);
  EXPECT_EQ(expand(ExpandKind::kInt4, std::byte{0xf1}, {zero, std::byte{0x40}}), -14.0F);  // (1 - 8) * 2
  EXPECT_EQ(expand(ExpandKind::kInt4Half, std::byte{0x0f}, {std::byte{1}, zero}), 7 * 0x1p-24F);
  EXPECT_EQ(expand(ExpandKind::kInt4Half, std::byte{0x0b}, {std::byte{1}, std::byte{0x3c}}),
            3.0F);  // 3 * (1 + 2^-10), a tie in bfloat16
  EXPECT_EQ(expand(ExpandKind::kInt4Float, std::byte{0xf0}, {zero, zero, std::byte{0x40}, std::byte{0x3f}}), -6.0F);
  EXPECT_EQ(expand(ExpandKind::kMxfp4, std::byte{0x0f}, {std::byte{128}}), -12.0F);  // -6 * 2
}

}  // namespace
}  // namespace draftmill

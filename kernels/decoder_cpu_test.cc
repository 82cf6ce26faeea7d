#include "kernels/decoder_cpu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/test_values.h"

namespace draftmill {
namespace {

/// Runs the body for every instruction set of this machine.
class DecoderCpu : public ::testing::TestWithParam<InstructionSet> {
 protected:
  const DecoderKernels<float>& kernels() const { return DecoderKernelsFor<float>(GetParam()); }
  const DecoderKernels<Bf16>& bf16_kernels() const { return DecoderKernelsFor<Bf16>(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(Sets, DecoderCpu, ::testing::ValuesIn(AvailableSets()), [](const auto& set_info) {
  return set_info.param == InstructionSet::kBaseline ? "baseline" : InstructionSetName(set_info.param);
});

TEST(Bfloat16, RoundsToNearestEvenAndKeepsNan) {
  EXPECT_EQ(ToBf16(1.0F).bits, 0x3f80);
  EXPECT_EQ(RoundToBf16(1.00390625F), 1.0F);       // halfway, even below
  EXPECT_EQ(RoundToBf16(1.01171875F), 1.015625F);  // halfway, even above
  EXPECT_EQ(ToBf16(std::numeric_limits<float>::infinity()).bits, 0x7f80);
  EXPECT_EQ(ToBf16(3.4e38F).bits, 0x7f80);
  EXPECT_TRUE(std::isnan(ToFloat(ToBf16(std::numeric_limits<float>::quiet_NaN()))));
}

TEST_P(DecoderCpu, RmsNormRoundsInTheAskedPlaces) {
  constexpr std::int64_t kRows = 3;
  constexpr std::int64_t kCols = 83;
  const auto x = RandomValues(kRows * kCols, 1, 3.0F);
  const auto weight = RandomValues(kCols, 2);
  for (const NormRounding rounding : {NormRounding::kNone, NormRounding::kHf, NormRounding::kFused}) {
    std::vector<float> out(x.size());
    kernels().rms_norm({x.data(), weight.data(), out.data(), kRows, kCols, 1e-5F, rounding});
    for (std::int64_t r = 0; r < kRows; ++r) {
      double squares = 0;
      for (std::int64_t i = 0; i < kCols; ++i)
        squares += std::pow(static_cast<double>(x[static_cast<std::size_t>(r * kCols + i)]), 2);
      const double inverse = 1.0 / std::sqrt(squares / kCols + 1e-5);
      for (std::int64_t i = 0; i < kCols; ++i) {
        const auto at = static_cast<std::size_t>(r * kCols + i);
        const double exact = x[at] * inverse * weight[static_cast<std::size_t>(i)];
        const double tolerance = rounding == NormRounding::kNone ? 1e-5
                                 : rounding == NormRounding::kHf ? 0.0079
                                                                 : 0.0040;
        ASSERT_NEAR(out[at], exact, std::abs(exact) * tolerance + 1e-6);
        if (rounding != NormRounding::kNone) {
          ASSERT_EQ(out[at], RoundToBf16(out[at]));
        }
      }
    }
  }
}

TEST_P(DecoderCpu, BothOperandTypesGiveTheSameValues) {
  constexpr std::int64_t kRows = 5;
  constexpr std::int64_t kCols = 50;
  const auto x = RandomValues(kRows * kCols, 3, 2.0F);
  const auto weight = RandomValues(kCols, 4);
  std::vector<float> wide(x.size());
  std::vector<Bf16> narrow(x.size());
  kernels().rms_norm({x.data(), weight.data(), wide.data(), kRows, kCols, 1e-6F, NormRounding::kHf});
  bf16_kernels().rms_norm({x.data(), weight.data(), narrow.data(), kRows, kCols, 1e-6F, NormRounding::kHf});
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(wide[i], ToFloat(narrow[i]));

  const auto unrounded = RandomValues(kRows * kCols, 5, 2.0F, false);
  const auto rounded = Narrowed(unrounded);
  std::vector<float> wide_out(unrounded.size() / 2);
  std::vector<Bf16> narrow_out(unrounded.size() / 2);
  kernels().gate({unrounded.data(), wide_out.data(), kRows, kCols / 2, true});
  bf16_kernels().gate({rounded.data(), narrow_out.data(), kRows, kCols / 2, true});
  for (std::size_t i = 0; i < wide_out.size(); ++i) ASSERT_EQ(wide_out[i], ToFloat(narrow_out[i]));

  auto residual = x;
  auto other = x;
  kernels().add_residual({residual.data(), unrounded.data(), kRows * kCols, true});
  bf16_kernels().add_residual({other.data(), rounded.data(), kRows * kCols, true});
  EXPECT_EQ(residual, other);
}

TEST_P(DecoderCpu, TheResidualStreamKeepsWhatBfloat16WouldLose) {
  std::vector<float> residual = {1.0F, 1.0F};
  const std::vector<Bf16> small = {ToBf16(0x1p-12F), ToBf16(-0x1p-12F)};
  for (int layer = 0; layer < 16; ++layer) bf16_kernels().add_residual({residual.data(), small.data(), 2, true});
  EXPECT_EQ(residual, (std::vector<float>{1.0F + 0x1p-8F, 1.0F - 0x1p-8F}));
}

TEST_P(DecoderCpu, SiluGateIsExact) {
  std::vector<float> gate_up;
  for (float g = -100.0F; g <= 100.0F; g += 0.37F) gate_up.push_back(g);
  const auto width = static_cast<std::int64_t>(gate_up.size());
  gate_up.resize(gate_up.size() * 2, 2.0F);
  std::vector<float> out(static_cast<std::size_t>(width));
  kernels().gate({gate_up.data(), out.data(), 1, width, false});
  for (std::int64_t i = 0; i < width; ++i) {
    const double g = gate_up[static_cast<std::size_t>(i)];
    const double exact = 2.0 * g / (1.0 + std::exp(-g));
    ASSERT_NEAR(out[static_cast<std::size_t>(i)], exact, std::abs(exact) * 1e-6 + 1e-30) << g;
  }
}

TEST_P(DecoderCpu, SplitRotateTurnsHalves) {
  constexpr std::int64_t kHeads = 4;
  constexpr std::int64_t kKvHeads = 2;
  constexpr std::int64_t kDim = 12;
  constexpr std::int64_t kRotary = 8;
  constexpr std::int64_t kRows = 3;
  constexpr std::int64_t kWidth = (kHeads + 2 * kKvHeads) * kDim;
  const auto qkv = RandomValues(kRows * kWidth, 6);
  const std::vector<std::int32_t> positions{0, 5, 2};
  std::vector<float> cosines, sines;
  for (int p = 0; p < 6; ++p) {
    for (int i = 0; i < kRotary / 2; ++i) {
      cosines.push_back(std::cos(static_cast<float>(p) * std::pow(0.5F, static_cast<float>(i))));
      sines.push_back(std::sin(static_cast<float>(p) * std::pow(0.5F, static_cast<float>(i))));
    }
  }
  std::vector<float> q(kRows * kHeads * kDim), k(kRows * kKvHeads * kDim), v(k.size());
  SplitRotateArgs<float> args;
  args.qkv = qkv.data();
  args.rotary_rows = positions.data();
  args.cosines = cosines.data();
  args.sines = sines.data();
  args.q = q.data();
  args.k = k.data();
  args.v = v.data();
  args.tokens = kRows;
  args.rows = kRows;
  args.heads = kHeads;
  args.kv_heads = kKvHeads;
  args.head_dim = kDim;
  args.rotary_dims = kRotary;
  args.rounds = false;
  args.norm_rounding = NormRounding::kNone;
  kernels().split_rotate(args);
  const auto expected = [&](std::int64_t row, std::int64_t head, std::int64_t i) {
    const auto at = [&](std::int64_t j) { return qkv[static_cast<std::size_t>(row * kWidth + head * kDim + j)]; };
    if (i >= kRotary) return at(i);
    const auto pair =
        static_cast<std::size_t>(positions[static_cast<std::size_t>(row)] * (kRotary / 2) + i % (kRotary / 2));
    return i < kRotary / 2 ? at(i) * cosines[pair] - at(i + kRotary / 2) * sines[pair]
                           : at(i) * cosines[pair] + at(i - kRotary / 2) * sines[pair];
  };
  for (std::int64_t row = 0; row < kRows; ++row) {
    for (std::int64_t i = 0; i < kDim; ++i) {
      for (std::int64_t head = 0; head < kHeads; ++head) {
        const std::int64_t kv = head / 2;
        ASSERT_FLOAT_EQ(q[static_cast<std::size_t>(((kv * kRows + row) * 2 + head % 2) * kDim + i)],
                        expected(row, head, i));
      }
      for (std::int64_t kv = 0; kv < kKvHeads; ++kv) {
        ASSERT_FLOAT_EQ(k[static_cast<std::size_t>((kv * kRows + row) * kDim + i)], expected(row, kHeads + kv, i));
        ASSERT_EQ(v[static_cast<std::size_t>((kv * kRows + row) * kDim + i)],
                  qkv[static_cast<std::size_t>(row * kWidth + (kHeads + kKvHeads + kv) * kDim + i)]);
      }
    }
  }
}

/// Softmax over key blocks of any size equals the softmax over all keys at once, with and without a window.
TEST_P(DecoderCpu, SoftmaxByBlocksEqualsSoftmax) {
  constexpr std::int64_t kQueries = 10;
  constexpr std::int64_t kGroup = 2;
  constexpr std::int64_t kFirstQuery = 20;
  constexpr std::int64_t kKeys = kFirstQuery + kQueries;
  constexpr float kScale = 0.3F;
  const auto scores = RandomValues(kQueries * kGroup * kKeys, 7, 10.0F);
  for (const std::int64_t window : {0, 1, 7}) {
    for (const std::int64_t block : {4, 11, 64}) {
      constexpr std::int64_t kRows = kQueries * kGroup;
      std::vector<float> maximum(kRows, -std::numeric_limits<float>::infinity()), sum(kRows, 0.0F), rescale(kRows);
      std::vector<double> weights(kRows * kKeys, 0.0);
      for (std::int64_t first = 0; first < kKeys; first += block) {
        const std::int64_t keys = std::min(block, kKeys - first);
        std::vector<float> part(static_cast<std::size_t>(kRows * keys));
        for (std::int64_t r = 0; r < kRows; ++r) {
          for (std::int64_t i = 0; i < keys; ++i)
            part[static_cast<std::size_t>(r * keys + i)] = scores[static_cast<std::size_t>(r * kKeys + first + i)];
        }
        kernels().softmax_block({part.data(), maximum.data(), sum.data(), rescale.data(), kRows, keys, kGroup,
                                 kFirstQuery, first, window, kScale});
        for (std::int64_t r = 0; r < kRows; ++r) {
          for (std::int64_t i = 0; i < first; ++i)
            weights[static_cast<std::size_t>(r * kKeys + i)] *= rescale[static_cast<std::size_t>(r)];
          for (std::int64_t i = 0; i < keys; ++i)
            weights[static_cast<std::size_t>(r * kKeys + first + i)] = part[static_cast<std::size_t>(r * keys + i)];
        }
      }
      for (std::int64_t r = 0; r < kRows; ++r) {
        const std::int64_t query = kFirstQuery + r / kGroup;
        const auto visible = [&](std::int64_t key) { return key <= query && (window == 0 || query - key < window); };
        double total = 0;
        double largest = -1e300;
        const auto score = [&](std::int64_t key) {
          return static_cast<double>(scores[static_cast<std::size_t>(r * kKeys + key)]) * kScale;
        };
        for (std::int64_t key = 0; key < kKeys; ++key) largest = visible(key) ? std::max(largest, score(key)) : largest;
        for (std::int64_t key = 0; key < kKeys; ++key) total += visible(key) ? std::exp(score(key) - largest) : 0.0;
        for (std::int64_t key = 0; key < kKeys; ++key) {
          const double exact = visible(key) ? std::exp(score(key) - largest) / total : 0.0;
          ASSERT_NEAR(weights[static_cast<std::size_t>(r * kKeys + key)] / sum[static_cast<std::size_t>(r)], exact,
                      1e-6)
              << "window " << window << " block " << block << " row " << r << " key " << key;
        }
      }
    }
  }
}

/// Gemma: the weight of a norm is 1 + w.
TEST_P(DecoderCpu, NormWeightsMayBeOffset) {
  constexpr std::int64_t kCols = 50;
  const auto x = RandomValues(kCols, 12);
  const auto weight = RandomValues(kCols, 13, 0.3F);
  std::vector<float> one_more(weight), expected(kCols), offset(kCols);
  for (float& value : one_more) value += 1.0F;
  kernels().rms_norm({x.data(), one_more.data(), expected.data(), 1, kCols, 1e-6F, NormRounding::kFused});
  kernels().rms_norm({x.data(), weight.data(), offset.data(), 1, kCols, 1e-6F, NormRounding::kFused, 1.0F});
  EXPECT_EQ(offset, expected);
}

/// Rows of a product, apart or in place, give what the norm of the residual stream gives.
TEST_P(DecoderCpu, ProductNormEqualsRmsNorm) {
  constexpr std::int64_t kRows = 3;
  constexpr std::int64_t kCols = 600;
  constexpr std::int64_t kStride = 611;
  const auto x = RandomValues(kRows * kStride, 14, 2.0F);
  const auto narrow = Narrowed(x);
  const auto weight = RandomValues(kCols, 15);
  for (const NormRounding rounding : {NormRounding::kHf, NormRounding::kFused}) {
    std::vector<float> expected(kRows * kCols), apart(expected), wide_in_place(expected);
    std::vector<Bf16> narrow_out(expected.size());
    for (std::int64_t r = 0; r < kRows; ++r) {
      kernels().rms_norm(
          {x.data() + r * kStride, weight.data(), expected.data() + r * kCols, 1, kCols, 1e-6F, rounding, 1.0F});
      std::copy_n(x.begin() + r * kStride, kCols, wide_in_place.begin() + r * kCols);
    }
    kernels().product_norm({x.data(), kStride, weight.data(), apart.data(), kRows, kCols, 1e-6F, rounding, 1.0F});
    kernels().product_norm(
        {wide_in_place.data(), kCols, weight.data(), wide_in_place.data(), kRows, kCols, 1e-6F, rounding, 1.0F});
    bf16_kernels().product_norm(
        {narrow.data(), kStride, weight.data(), narrow_out.data(), kRows, kCols, 1e-6F, rounding, 1.0F});
    EXPECT_EQ(apart, expected);
    EXPECT_EQ(wide_in_place, expected);
    for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_EQ(ToFloat(narrow_out[i]), expected[i]);
  }
}

TEST_P(DecoderCpu, GeluGateIsExact) {
  std::vector<float> gate_up;
  for (float g = -12.0F; g <= 12.0F; g += 0.013F) gate_up.push_back(g);
  const auto width = static_cast<std::int64_t>(gate_up.size());
  gate_up.resize(gate_up.size() * 2, 2.0F);
  std::vector<float> out(static_cast<std::size_t>(width));
  kernels().gate({gate_up.data(), out.data(), 1, width, false, GateKind::kGeluTanh});
  for (std::int64_t i = 0; i < width; ++i) {
    const double g = gate_up[static_cast<std::size_t>(i)];
    const double exact = g * (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (g + 0.044715 * g * g * g)));
    // Far below zero the result is a difference of nearly equal numbers, as in every float32 form of it.
    ASSERT_NEAR(out[static_cast<std::size_t>(i)], exact, std::abs(exact) * 2e-6 + std::abs(g) * 2.5e-7) << g;
  }
}

/// gpt-oss: the gate is clamped from above alone, up on both sides and moved by one.
TEST_P(DecoderCpu, ClampedSwigluClamps) {
  const std::vector<float> gates{-20.0F, -1.0F, 3.0F, 7.5F, 100.0F};
  const std::vector<float> ups{-100.0F, -7.0F, 0.5F, 6.0F, 9.0F};
  std::vector<float> gate_up(gates);
  gate_up.insert(gate_up.end(), ups.begin(), ups.end());
  std::vector<float> out(gates.size());
  kernels().gate({gate_up.data(), out.data(), 1, 5, false, GateKind::kClampedSwiglu, 7.0F});
  for (std::size_t i = 0; i < gates.size(); ++i) {
    const double gate = std::min<double>(gates[i], 7.0);
    const double up = std::clamp<double>(ups[i], -7.0, 7.0);
    const double exact = (up + 1) * gate / (1 + std::exp(-1.702 * gate));
    EXPECT_NEAR(out[i], exact, std::abs(exact) * 1e-6) << i;
  }
}

TEST_P(DecoderCpu, SoftcapBoundsScores) {
  constexpr std::int64_t kKeys = 40;
  const auto raw = RandomValues(kKeys, 16, 200.0F);
  auto scores = raw;
  float maximum = -std::numeric_limits<float>::infinity();
  float sum = 0;
  float rescale = 0;
  kernels().softmax_block({scores.data(), &maximum, &sum, &rescale, 1, kKeys, 1, kKeys - 1, 0, 0, 0.5F, 50.0F});
  double total = 0;
  const auto capped = [&](std::size_t i) { return 50 * std::tanh(static_cast<double>(raw[i]) * 0.5 / 50); };
  for (std::size_t i = 0; i < kKeys; ++i) total += std::exp(capped(i) - maximum);
  EXPECT_LE(maximum, 50.0F);
  EXPECT_NEAR(sum, total, total * 1e-5);
  for (std::size_t i = 0; i < kKeys; ++i) EXPECT_NEAR(scores[i], std::exp(capped(i) - maximum), 2e-5);
}

/// A row that begins with a sink's logit as its maximum and a sum of one has that sink in its softmax.
TEST_P(DecoderCpu, ASinkIsAStartingState) {
  const std::vector<float> raw{0.3F, -1.0F, 2.0F};
  for (const float sink : {-4.0F, 1.5F, 6.0F}) {
    auto scores = raw;
    float maximum = sink;
    float sum = 1;
    float rescale = 0;
    kernels().softmax_block({scores.data(), &maximum, &sum, &rescale, 1, 3, 1, 2, 0, 0, 1.0F});
    double total = std::exp(sink);
    for (const float score : raw) total += std::exp(score);
    for (std::size_t i = 0; i < raw.size(); ++i) EXPECT_NEAR(scores[i] / sum, std::exp(raw[i]) / total, 1e-6) << sink;
  }
}

/// MLA: the rotated part of k is shared by all heads; interleaved pairs come out as halves.
TEST_P(DecoderCpu, LatentSplitRotatesInterleavedPairs) {
  constexpr std::int64_t kHeads = 3, kNope = 5, kRope = 4, kValues = 6, kRows = 2, kTokens = 4, kStride = 10;
  const auto q_rows = RandomValues(kRows * kHeads * (kNope + kRope), 17);
  const auto kv_rows = RandomValues(kRows * kHeads * (kNope + kValues), 18);
  const auto k_rope = RandomValues(kRows * kStride, 19);
  const std::vector<float> cosines{1, 1, 0.5F, 0.25F}, sines{0, 0, 0.75F, 0.5F};
  const std::vector<std::int32_t> rotary_rows{1, 0};
  std::vector<float> q(kHeads * kTokens * (kNope + kRope)), k(q.size()), v(kHeads * kTokens * kValues);
  for (const bool interleaved : {true, false}) {
    LatentSplitArgs<float> args;
    args.q_rows = q_rows.data();
    args.kv_rows = kv_rows.data();
    args.k_rope = k_rope.data();
    args.k_rope_stride = kStride;
    args.rotary_rows = rotary_rows.data();
    args.cosines = cosines.data();
    args.sines = sines.data();
    args.q = q.data();
    args.k = k.data();
    args.v = v.data();
    args.tokens = kTokens;
    args.rows = kRows;
    args.heads = kHeads;
    args.nope_dim = kNope;
    args.rope_dim = kRope;
    args.v_dim = kValues;
    args.interleaved = interleaved;
    args.rounds = false;
    kernels().latent_split(args);
    const auto rotated = [&](const float* from, std::int64_t row, std::int64_t i) {
      const std::int64_t pair = i % 2;  // of two
      const float a = from[interleaved ? 2 * pair : pair];
      const float b = from[interleaved ? 2 * pair + 1 : pair + 2];
      const auto at = static_cast<std::size_t>(rotary_rows[static_cast<std::size_t>(row)] * 2 + pair);
      return i < 2 ? a * cosines[at] - b * sines[at] : b * cosines[at] + a * sines[at];
    };
    for (std::int64_t row = 0; row < kRows; ++row) {
      for (std::int64_t head = 0; head < kHeads; ++head) {
        const float* q_row = q_rows.data() + (row * kHeads + head) * (kNope + kRope);
        const float* kv_row = kv_rows.data() + (row * kHeads + head) * (kNope + kValues);
        const float* q_out = q.data() + (head * kTokens + row) * (kNope + kRope);
        const float* k_out = k.data() + (head * kTokens + row) * (kNope + kRope);
        for (std::int64_t i = 0; i < kNope; ++i) ASSERT_EQ(q_out[i], q_row[i]);
        for (std::int64_t i = 0; i < kNope; ++i) ASSERT_EQ(k_out[i], kv_row[i]);
        for (std::int64_t i = 0; i < kRope; ++i) ASSERT_FLOAT_EQ(q_out[kNope + i], rotated(q_row + kNope, row, i));
        for (std::int64_t i = 0; i < kRope; ++i)
          ASSERT_FLOAT_EQ(k_out[kNope + i], rotated(k_rope.data() + row * kStride, row, i));
        for (std::int64_t i = 0; i < kValues; ++i)
          ASSERT_EQ(v[static_cast<std::size_t>((head * kTokens + row) * kValues + i)], kv_row[kNope + i]);
      }
    }
  }
}

/// Gemma's embedding: the scale is rounded first, then each product.
TEST_P(DecoderCpu, ScaledValuesAreRounded) {
  std::vector<float> values{1.0F, 0.33203125F};
  kernels().scale_values(values.data(), 55.5F, 2, true);
  EXPECT_EQ(values[0], 55.5F);
  EXPECT_EQ(values[1], RoundToBf16(0.33203125F * 55.5F));
}

TEST_P(DecoderCpu, NormOfARow) {
  const auto values = RandomValues(777, 20, 30.0F);
  double squares = 0;
  for (const float value : values) squares += static_cast<double>(value) * static_cast<double>(value);
  EXPECT_NEAR(kernels().norm(values.data(), 777), std::sqrt(squares), std::sqrt(squares) * 1e-6);
  EXPECT_EQ(bf16_kernels().norm(Narrowed(values).data(), 777), kernels().norm(values.data(), 777));
}

TEST_P(DecoderCpu, FindsEveryBadValue) {
  for (std::size_t place = 0; place < 100; ++place) {
    auto values = Narrowed(RandomValues(100, 8));
    ASSERT_TRUE(kernels().all_finite(values.data(), 100));
    values[place].bits = place % 2 == 0 ? 0x7f80 : 0xffc1;
    ASSERT_FALSE(kernels().all_finite(values.data(), 100));
  }
}

TEST_P(DecoderCpu, EveryInstructionSetGivesTheSameBits) {
  const DecoderKernels<float>& baseline = DecoderKernelsFor<float>(InstructionSet::kBaseline);
  const auto x = RandomValues(7 * 66, 9, 4.0F, false);
  const auto weight = RandomValues(66, 10);
  std::vector<float> a(x.size()), b(x.size());
  baseline.rms_norm({x.data(), weight.data(), a.data(), 7, 66, 1e-5F, NormRounding::kNone});
  kernels().rms_norm({x.data(), weight.data(), b.data(), 7, 66, 1e-5F, NormRounding::kNone});
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
  baseline.gate({x.data(), a.data(), 7, 33, false});
  kernels().gate({x.data(), b.data(), 7, 33, false});
  EXPECT_EQ(std::memcmp(a.data(), b.data(), 7 * 33 * sizeof(float)), 0);
  auto s = x;
  auto t = x;
  std::vector<float> maximum(7, -1e30F), sum(7), rescale(7), maximum2(7, -1e30F), sum2(7), rescale2(7);
  baseline.softmax_block({s.data(), maximum.data(), sum.data(), rescale.data(), 7, 66, 1, 60, 0, 0, 0.5F});
  kernels().softmax_block({t.data(), maximum2.data(), sum2.data(), rescale2.data(), 7, 66, 1, 60, 0, 0, 0.5F});
  EXPECT_EQ(std::memcmp(s.data(), t.data(), s.size() * sizeof(float)), 0);
  EXPECT_EQ(sum, sum2);
}

}  // namespace
}  // namespace draftmill

// Attention of attention_cuda.h against its reference: every kernel instance, odd dims, windows, caps, sinks; and the
// reference against a case worked out by hand. The first half needs a GPU and is skipped without one.
#include "kernels/attention_cuda.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/cuda_test.h"

namespace draftmill {
namespace {

using cuda::AttendArgs;

using AttentionCudaTest = CudaTest;

struct Case {
  std::int64_t heads, kv_heads, head_dim, value_dim;
  float softcap;
  std::int64_t window;
  bool sinks;
  std::vector<std::int32_t> lengths;
};

TEST_F(AttentionCudaTest, Attend) {
  const std::vector<std::int32_t> mixed{1, 127, 2, 129, 64, 300, 65, 1};
  const std::vector<Case> cases = {
      {4, 2, 64, 64, 0, 0, false, mixed},      {4, 4, 128, 128, 0, 0, false, mixed},
      {2, 2, 192, 128, 0, 0, false, mixed},    {4, 1, 256, 256, 0, 0, false, mixed},
      {4, 2, 256, 256, 50, 100, false, mixed}, {4, 2, 32, 32, 5, 17, false, mixed},
      {8, 1, 64, 64, 0, 128, true, mixed},     {8, 2, 32, 32, 0, 0, true, mixed},
      {4, 4, 24, 20, 0, 0, false, mixed},      {3, 1, 18, 18, 0, 7, false, {5, 70}},
      {2, 1, 250, 131, 3, 0, true, {70, 33}},  {1, 1, 2, 2, 0, 1, false, {9}},
      {2, 2, 192, 128, 0, 64, true, {1000}},   {2, 1, 96, 96, 0, 511, false, {1, 1024}},
      {1, 1, 136, 136, 30, 0, false, {200}},
  };
  for (const Case& c : cases) {
    const std::int64_t tokens = std::accumulate(c.lengths.begin(), c.lengths.end(), std::int64_t{0});
    std::vector<std::int32_t> starts{0};
    for (const std::int32_t length : c.lengths) starts.push_back(starts.back() + length);
    // q, k and v side by side, as a fused product leaves them, with a gap.
    const std::int64_t q_width = c.heads * c.head_dim;
    const std::int64_t k_width = c.kv_heads * c.head_dim;
    const std::int64_t stride = q_width + k_width + c.kv_heads * c.value_dim + 8;
    const std::vector<Bf16> rows = random_.Values(tokens * stride);
    const std::vector<float> sinks = random_.Weights(c.heads, 1.0F, 1.0F);
    std::vector<Bf16> out = Poisoned(tokens * c.heads * c.value_dim);
    const auto device_rows = ToDevice(rows);
    const auto device_starts = ToDevice(starts);
    const auto device_sinks = ToDevice(sinks);
    auto device_out = ToDevice(out);
    AttendArgs args{.q = device_rows.data(),
                    .k = device_rows.data() + q_width,
                    .v = device_rows.data() + q_width + k_width,
                    .out = device_out.data(),
                    .q_token = stride,
                    .q_head = c.head_dim,
                    .k_token = stride,
                    .k_head = c.head_dim,
                    .v_token = stride,
                    .v_head = c.value_dim,
                    .starts = device_starts.data(),
                    .sequences = static_cast<std::int64_t>(c.lengths.size()),
                    .longest = *std::max_element(c.lengths.begin(), c.lengths.end()),
                    .heads = c.heads,
                    .kv_heads = c.kv_heads,
                    .head_dim = c.head_dim,
                    .value_dim = c.value_dim,
                    .scale = 1.5F / std::sqrt(static_cast<float>(c.head_dim)),
                    .softcap = c.softcap,
                    .window = c.window,
                    .sinks = c.sinks ? device_sinks.data() : nullptr};
    Finish(cuda::Attend(args, nullptr));
    const std::vector<Bf16> got = device_out.Download().value();
    Finish(cuda::Attend(args, nullptr));
    ExpectSame(device_out.Download().value(), got, "a second time");
    args.q = rows.data();
    args.k = rows.data() + q_width;
    args.v = rows.data() + q_width + k_width;
    args.out = out.data();
    args.starts = starts.data();
    args.sinks = c.sinks ? sinks.data() : nullptr;
    cuda::reference::Attend(args);
    double error = 0;
    double size = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double difference = static_cast<double>(ToFloat(got[i])) - static_cast<double>(ToFloat(out[i]));
      // Weights are rounded to bfloat16: a step of the largest value, for values of about one.
      ASSERT_LE(std::abs(difference), 0.03)
          << c.head_dim << " dims: place " << i << ", " << ToFloat(got[i]) << " for " << ToFloat(out[i]);
      error += difference * difference;
      size += static_cast<double>(ToFloat(out[i])) * static_cast<double>(ToFloat(out[i]));
    }
    EXPECT_LE(std::sqrt(error / size), 4e-3) << c.head_dim << " dims";
  }
}

TEST_F(AttentionCudaTest, NoSequencesAreNoWork) { EXPECT_TRUE(cuda::Attend({}, nullptr).ok()); }

TEST(AttentionReferenceTest, WindowCapAndSinkByHand) {
  // One head of one dim: q = 1, keys 0, 1, 2, values 1, 2, 4; the last query sees two keys.
  const std::vector<Bf16> q(3, ToBf16(1.0F));
  const std::vector<Bf16> k{ToBf16(0.0F), ToBf16(1.0F), ToBf16(2.0F)};
  const std::vector<Bf16> v{ToBf16(1.0F), ToBf16(2.0F), ToBf16(4.0F)};
  const std::vector<std::int32_t> starts{0, 3};
  const std::vector<float> sinks{0.5F};
  std::vector<Bf16> out(3);
  AttendArgs args{.q = q.data(),
                  .k = k.data(),
                  .v = v.data(),
                  .out = out.data(),
                  .q_token = 1,
                  .q_head = 1,
                  .k_token = 1,
                  .k_head = 1,
                  .v_token = 1,
                  .v_head = 1,
                  .starts = starts.data(),
                  .sequences = 1,
                  .longest = 3,
                  .heads = 1,
                  .kv_heads = 1,
                  .head_dim = 1,
                  .value_dim = 1,
                  .scale = 2.0F,
                  .softcap = 3.0F,
                  .window = 2,
                  .sinks = sinks.data()};
  cuda::reference::Attend(args);
  const double one = std::exp(3 * std::tanh(2.0 / 3));
  const double two = std::exp(3 * std::tanh(4.0 / 3));
  EXPECT_NEAR(ToFloat(out[2]), (2 * one + 4 * two) / (one + two + std::exp(0.5)), 0.02);
  EXPECT_NEAR(ToFloat(out[0]), 1.0 / (1.0 + std::exp(0.5)), 0.002);
}

}  // namespace
}  // namespace draftmill

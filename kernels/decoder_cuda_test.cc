// The kernels of decoder_cuda.h against their reference, over odd sizes; and the reference against plain mathematics.
// The first half needs a GPU and is skipped without one.
#include "kernels/decoder_cuda.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/cuda_test.h"

namespace draftmill {
namespace {

using cuda::AddNormArgs;
using cuda::RotateHeadsArgs;
namespace reference = cuda::reference;

using DecoderCudaTest = CudaTest;

struct NormCase {
  std::int64_t rows;
  std::int64_t cols;
  bool branch;
  bool branch_norm;
  bool capture;
  bool one_plus;
  NormRounding rounding;
};

TEST_F(DecoderCudaTest, AddNorm) {
  std::vector<NormCase> cases;
  for (const std::int64_t cols : {2, 33, 48, 576, 1000, 2880, 4096, 4100, 7168, 16383, 16384}) {
    for (const std::int64_t rows : {1, 127, 129}) {
      cases.push_back({rows, cols, true, false, true, false, NormRounding::kHf});
      cases.push_back({rows, cols, true, true, false, true, NormRounding::kFused});
      cases.push_back({rows, cols, false, false, true, false, NormRounding::kFused});
    }
  }
  for (const NormCase& c : cases) {
    const std::string what = std::to_string(c.rows) + " x " + std::to_string(c.cols);
    const std::int64_t count = c.rows * c.cols;
    const std::int64_t stride = 3 * c.cols;
    std::vector<Bf16> residual = random_.Values(count, 0.0F, 2.0F);
    std::vector<Bf16> branch = random_.Values(count);
    std::vector<float> weight = random_.Weights(c.cols, 1.0F, 0.2F);
    std::vector<float> branch_weight = random_.Weights(c.cols, 0.5F, 0.2F);
    std::vector<Bf16> out = Poisoned(count);
    std::vector<Bf16> capture = Poisoned(c.rows * stride);
    auto device_residual = ToDevice(residual);
    auto device_branch = ToDevice(branch);
    auto device_weight = ToDevice(weight);
    auto device_branch_weight = ToDevice(branch_weight);
    auto device_out = ToDevice(out);
    auto device_capture = ToDevice(capture);
    AddNormArgs args{.residual = device_residual.data(),
                     .branch = c.branch ? device_branch.data() : nullptr,
                     .branch_weight = c.branch_norm ? device_branch_weight.data() : nullptr,
                     .weight = device_weight.data(),
                     .out = device_out.data(),
                     .capture = c.capture ? device_capture.data() + c.cols : nullptr,
                     .capture_stride = stride,
                     .rows = c.rows,
                     .cols = c.cols,
                     .epsilon = 1e-5F,
                     .rounding = c.rounding,
                     .one_plus = c.one_plus};
    Finish(cuda::AddNorm(args, nullptr));
    args.residual = residual.data();
    args.branch = c.branch ? branch.data() : nullptr;
    args.branch_weight = c.branch_norm ? branch_weight.data() : nullptr;
    args.weight = weight.data();
    args.out = out.data();
    args.capture = c.capture ? capture.data() + c.cols : nullptr;
    reference::AddNorm(args);
    const float absolute = c.branch_norm ? 0.07F : 0.0F;
    ExpectClose(device_residual.Download().value(), residual, what + " residual", absolute);
    ExpectClose(device_out.Download().value(), out, what + " out", absolute);
    ExpectClose(device_capture.Download().value(), capture, what + " capture", absolute);
  }
}

TEST_F(DecoderCudaTest, CopyIntegersBetweenHostAndDevice) {
  for (const std::int64_t count : {1, 127, 129, 300001}) {
    const std::vector<std::int32_t> values = random_.Integers(count, 1 << 30);
    auto there = cuda::PinnedBuffer<std::int32_t>::Make(count).value();
    auto back = cuda::PinnedBuffer<std::int32_t>::Make(count).value();
    reference::CopyIntegers({values.data(), there.data(), count});
    auto device = ToDevice(std::vector<std::int32_t>(static_cast<std::size_t>(count), -7));
    Finish(cuda::CopyIntegers({there.data(), device.data(), count}, nullptr));
    EXPECT_EQ(device.Download().value(), values);
    Finish(cuda::CopyIntegers({device.data(), back.data(), count}, nullptr));
    EXPECT_EQ(std::vector<std::int32_t>(back.data(), back.data() + count), values);
  }
}

/// Latent norms read the leading values of longer rows and leave them alone.
TEST_F(DecoderCudaTest, AddNormOfPartsOfRows) {
  for (const auto& [cols, stride] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{512, 576}, {24, 32}, {33, 41}}) {
    std::vector<Bf16> rows = random_.Values(127 * stride);
    const std::vector<Bf16> before = rows;
    const std::vector<float> weight = random_.Weights(cols, 1.0F, 0.2F);
    std::vector<Bf16> out = Poisoned(127 * cols);
    auto device_rows = ToDevice(rows);
    const auto device_weight = ToDevice(weight);
    auto device_out = ToDevice(out);
    AddNormArgs args{.residual = device_rows.data(),
                     .weight = device_weight.data(),
                     .out = device_out.data(),
                     .rows = 127,
                     .cols = cols,
                     .epsilon = 1e-6F,
                     .residual_stride = stride};
    Finish(cuda::AddNorm(args, nullptr));
    args.residual = rows.data();
    args.weight = weight.data();
    args.out = out.data();
    reference::AddNorm(args);
    ExpectClose(device_out.Download().value(), out, std::to_string(cols));
    const std::vector<Bf16> after = device_rows.Download().value();
    for (std::size_t i = 0; i < after.size(); ++i) ASSERT_EQ(after[i].bits, before[i].bits) << i;
  }
}

TEST_F(DecoderCudaTest, AssembleLatent) {
  struct Case {
    std::int64_t rows, heads, nope, rope, v;
    bool interleaved;
  };
  for (const Case& c : std::vector<Case>{{129, 64, 128, 64, 128, true},
                                         {127, 4, 16, 8, 20, true},
                                         {1, 3, 16, 8, 24, true},
                                         {5, 2, 10, 6, 7, true},
                                         {127, 4, 16, 8, 16, false},
                                         {3, 1, 128, 64, 128, false}}) {
    const std::int64_t head_dim = c.nope + c.rope;
    const std::int64_t stride = 40 + c.rope;
    std::vector<Bf16> q = random_.Values(c.rows * c.heads * head_dim);
    const std::vector<Bf16> kv = random_.Values(c.rows * c.heads * (c.nope + c.v));
    const std::vector<Bf16> latent = random_.Values(c.rows * stride);
    std::vector<Bf16> k = Poisoned(c.rows * c.heads * head_dim);
    const std::vector<std::int32_t> positions = random_.Integers(c.rows, 50);
    const std::vector<float> cosines = random_.Floats(50 * c.rope / 2);
    const std::vector<float> sines = random_.Floats(50 * c.rope / 2);
    auto device_q = ToDevice(q);
    const auto device_kv = ToDevice(kv);
    const auto device_latent = ToDevice(latent);
    auto device_k = ToDevice(k);
    const auto device_positions = ToDevice(positions);
    const auto device_cosines = ToDevice(cosines);
    const auto device_sines = ToDevice(sines);
    const auto args = [&](Bf16* q_rows, const Bf16* kv_rows, const Bf16* k_rope, Bf16* k_rows) {
      return cuda::AssembleLatentArgs{.q = q_rows,
                                      .kv = kv_rows,
                                      .k_rope = k_rope,
                                      .k = k_rows,
                                      .rows = c.rows,
                                      .k_rope_stride = stride,
                                      .heads = c.heads,
                                      .nope_dim = c.nope,
                                      .rope_dim = c.rope,
                                      .v_dim = c.v,
                                      .interleaved = c.interleaved};
    };
    cuda::AssembleLatentArgs on_device =
        args(device_q.data(), device_kv.data(), device_latent.data() + 40, device_k.data());
    on_device.positions = device_positions.data();
    on_device.cosines = device_cosines.data();
    on_device.sines = device_sines.data();
    Finish(cuda::AssembleLatent(on_device, nullptr));
    cuda::AssembleLatentArgs on_host = args(q.data(), kv.data(), latent.data() + 40, k.data());
    on_host.positions = positions.data();
    on_host.cosines = cosines.data();
    on_host.sines = sines.data();
    reference::AssembleLatent(on_host);
    const std::string what =
        std::to_string(c.heads) + " heads of " + std::to_string(c.nope) + " + " + std::to_string(c.rope);
    ExpectSame(device_q.Download().value(), q, what + " q");
    ExpectSame(device_k.Download().value(), k, what + " k");
  }
}

TEST_F(DecoderCudaTest, RotateHeads) {
  struct Case {
    std::int64_t rows, q_heads, k_heads, head_dim, rotary_dims;
    bool interleaved, norms;
    NormRounding rounding;
    bool one_plus;
  };
  const std::vector<Case> cases = {
      {129, 9, 3, 64, 64, false, false, NormRounding::kHf, false},
      {127, 32, 8, 128, 128, false, false, NormRounding::kHf, false},
      {129, 32, 8, 128, 128, false, true, NormRounding::kHf, false},
      {1, 4, 1, 256, 256, false, true, NormRounding::kFused, true},
      {127, 4, 2, 96, 72, false, false, NormRounding::kHf, false},
      {129, 3, 1, 80, 80, false, true, NormRounding::kFused, false},
      {127, 2, 1, 64, 64, true, false, NormRounding::kHf, false},
      {5, 3, 3, 18, 10, false, true, NormRounding::kHf, false},
      {33, 5, 1, 24, 24, false, false, NormRounding::kHf, false},
      {7, 5, 2, 32, 32, false, true, NormRounding::kHf, false},
      {3, 40, 40, 64, 64, false, true, NormRounding::kFused, true},
  };
  for (const Case& c : cases) {
    const std::string what = std::to_string(c.head_dim) + " dims, " + std::to_string(c.rotary_dims) + " rotated";
    const std::int64_t stride = (c.q_heads + 2 * c.k_heads) * c.head_dim;
    std::vector<Bf16> heads = random_.Values(c.rows * stride);
    const std::vector<std::int32_t> positions = random_.Integers(c.rows, 50);
    const std::vector<float> cosines = random_.Floats(50 * c.rotary_dims / 2);
    const std::vector<float> sines = random_.Floats(50 * c.rotary_dims / 2);
    const std::vector<float> q_norm = random_.Weights(c.head_dim, 1.0F, 0.3F);
    const std::vector<float> k_norm = random_.Weights(c.head_dim, 1.0F, 0.3F);
    auto device_heads = ToDevice(heads);
    const auto device_positions = ToDevice(positions);
    const auto device_cosines = ToDevice(cosines);
    const auto device_sines = ToDevice(sines);
    const auto device_q_norm = ToDevice(q_norm);
    const auto device_k_norm = ToDevice(k_norm);
    RotateHeadsArgs args{.heads = device_heads.data(),
                         .positions = device_positions.data(),
                         .cosines = device_cosines.data(),
                         .sines = device_sines.data(),
                         .q_norm = c.norms ? device_q_norm.data() : nullptr,
                         .k_norm = c.norms ? device_k_norm.data() : nullptr,
                         .rows = c.rows,
                         .row_stride = stride,
                         .q_heads = c.q_heads,
                         .k_heads = c.k_heads,
                         .head_dim = c.head_dim,
                         .rotary_dims = c.rotary_dims,
                         .interleaved = c.interleaved,
                         .epsilon = 1e-6F,
                         .norm_rounding = c.rounding,
                         .one_plus = c.one_plus};
    Finish(cuda::RotateHeads(args, nullptr));
    args.heads = heads.data();
    args.positions = positions.data();
    args.cosines = cosines.data();
    args.sines = sines.data();
    args.q_norm = c.norms ? q_norm.data() : nullptr;
    args.k_norm = c.norms ? k_norm.data() : nullptr;
    reference::RotateHeads(args);
    const std::vector<Bf16> got = device_heads.Download().value();
    // Rotation cancels: what one rounding moves is small beside the pair, not beside the difference.
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(ToFloat(got[i]), ToFloat(heads[i]), c.norms ? 0.05F : 0.0F) << what << ": place " << i;
    }
  }
}

TEST_F(DecoderCudaTest, Gate) {
  for (const GateKind kind : {GateKind::kSilu, GateKind::kGeluTanh, GateKind::kClampedSwiglu}) {
    for (const auto& [rows, width] :
         std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 8}, {127, 1536}, {129, 33}, {129, 2880}, {3, 14336}}) {
      const std::vector<Bf16> gate_up = random_.Values(rows * 2 * width, 0.0F, 4.0F);
      std::vector<Bf16> out = Poisoned(rows * width);
      const auto device_gate_up = ToDevice(gate_up);
      auto device_out = ToDevice(out);
      cuda::GateArgs args{device_gate_up.data(), device_out.data(), rows, width, kind, 7.0F};
      Finish(cuda::Gate(args, nullptr));
      args.gate_up = gate_up.data();
      args.out = out.data();
      reference::Gate(args);
      ExpectClose(device_out.Download().value(), out, std::to_string(rows) + " x " + std::to_string(width));
    }
  }
}

TEST_F(DecoderCudaTest, EmbedRows) {
  for (const auto& [rows, cols, scale] : std::vector<std::tuple<std::int64_t, std::int64_t, float>>{
           {129, 576, 1.0F}, {127, 45, 55.5F}, {1, 4096, 1.0F}}) {
    const std::vector<Bf16> table = random_.Values(77 * cols);
    const std::vector<std::int32_t> ids = random_.Integers(rows, 77);
    std::vector<Bf16> out = Poisoned(rows * cols);
    const auto device_table = ToDevice(table);
    const auto device_ids = ToDevice(ids);
    auto device_out = ToDevice(out);
    Finish(cuda::EmbedRows({device_table.data(), device_ids.data(), device_out.data(), rows, cols, scale}, nullptr));
    reference::EmbedRows({table.data(), ids.data(), out.data(), rows, cols, scale});
    ExpectClose(device_out.Download().value(), out, std::to_string(cols));
  }
}

TEST_F(DecoderCudaTest, ApplySinks) {
  for (const auto& [rows, heads, dims] :
       std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>>{{129, 64, 64}, {1, 3, 20}}) {
    std::vector<Bf16> out = random_.Values(rows * heads * dims);
    const std::vector<float> lse = random_.Floats(heads * rows);
    const std::vector<float> sinks = random_.Weights(heads, 0.0F, 1.0F);
    auto device_out = ToDevice(out);
    const auto device_lse = ToDevice(lse);
    const auto device_sinks = ToDevice(sinks);
    Finish(cuda::ApplySinks({device_out.data(), device_lse.data(), device_sinks.data(), rows, heads, dims}, nullptr));
    reference::ApplySinks({out.data(), lse.data(), sinks.data(), rows, heads, dims});
    ExpectClose(device_out.Download().value(), out, std::to_string(dims));
  }
}

TEST_F(DecoderCudaTest, MarkNonFinite) {
  for (const std::int64_t cols : {3, 64, 16384}) {
    std::vector<Bf16> values = random_.Values(129 * cols);
    values[static_cast<std::size_t>(128 * cols + cols - 1)].bits = 0x7f80;  // infinity in the last place
    values[static_cast<std::size_t>(5 * cols)].bits = 0xffc0;               // NaN
    std::vector<std::int32_t> owner(129);
    for (std::size_t r = 0; r < owner.size(); ++r) owner[r] = static_cast<std::int32_t>(r / 2);
    const auto device_values = ToDevice(values);
    const auto device_owner = ToDevice(owner);
    auto device_bad = ToDevice(std::vector<std::int32_t>(65));
    Finish(cuda::MarkNonFinite({device_values.data(), device_owner.data(), device_bad.data(), 129, cols}, nullptr));
    std::vector<std::int32_t> want(65);
    want[64] = 1;
    want[2] = 1;
    EXPECT_EQ(device_bad.Download().value(), want) << cols;
  }
}

TEST_F(DecoderCudaTest, NoRowsIsNoWork) {
  EXPECT_TRUE(cuda::AddNorm({}, nullptr).ok());
  EXPECT_TRUE(cuda::RotateHeads({}, nullptr).ok());
  EXPECT_TRUE(cuda::Gate({}, nullptr).ok());
}

// ---- the reference
// ---------------------------------------------------------------------------------------------------

TEST(DecoderReferenceTest, AddNormAddsCapturesAndNormalises) {
  Random random;
  constexpr std::int64_t kCols = 100;
  std::vector<Bf16> residual = random.Values(2 * kCols);
  const std::vector<Bf16> before = residual;
  const std::vector<Bf16> branch = random.Values(2 * kCols);
  const std::vector<float> weight = random.Weights(kCols, 1.0F, 0.3F);
  std::vector<Bf16> out = Poisoned(2 * kCols);
  std::vector<Bf16> capture = Poisoned(4 * kCols);
  reference::AddNorm({.residual = residual.data(),
                      .branch = branch.data(),
                      .branch_weight = nullptr,
                      .weight = weight.data(),
                      .out = out.data(),
                      .capture = capture.data(),
                      .capture_stride = 2 * kCols,
                      .rows = 2,
                      .cols = kCols,
                      .epsilon = 1e-6F,
                      .rounding = NormRounding::kFused,
                      .one_plus = false});
  for (std::size_t r = 0; r < 2; ++r) {
    double square = 0;
    for (std::size_t i = 0; i < kCols; ++i) {
      const std::size_t at = r * kCols + i;
      EXPECT_EQ(residual[at].bits, ToBf16(ToFloat(before[at]) + ToFloat(branch[at])).bits);
      EXPECT_EQ(capture[r * 2 * kCols + i].bits, residual[at].bits);
      EXPECT_EQ(capture[r * 2 * kCols + kCols + i].bits, kPoison);
      square += static_cast<double>(ToFloat(residual[at])) * ToFloat(residual[at]);
    }
    const double inverse = 1.0 / std::sqrt(square / kCols + 1e-6);
    for (std::size_t i = 0; i < kCols; ++i) {
      const double want = ToFloat(residual[r * kCols + i]) * inverse * weight[i];
      EXPECT_NEAR(ToFloat(out[r * kCols + i]), want, std::abs(want) * 0.005);
    }
  }
}

TEST(DecoderReferenceTest, ABranchNormComesBeforeTheAdd) {
  std::vector<Bf16> residual(4, ToBf16(1.0F));
  const std::vector<Bf16> branch(4, ToBf16(100.0F));
  const std::vector<float> weight(4, 1.0F);
  reference::AddNorm({.residual = residual.data(),
                      .branch = branch.data(),
                      .branch_weight = weight.data(),
                      .rows = 1,
                      .cols = 4,
                      .epsilon = 0.0F,
                      .rounding = NormRounding::kFused,
                      .one_plus = true});
  for (const Bf16 value : residual) EXPECT_EQ(ToFloat(value), 3.0F);  // 1 + 100 / rms * (1 + 1)
}

TEST(DecoderReferenceTest, BothRotationsTurnTheirPairs) {
  const std::vector<std::int32_t> positions = {1};
  const std::vector<float> cosines = {9, 9, 0, 1};  // position 1: a quarter turn of the first pair, none of the second
  const std::vector<float> sines = {9, 9, 1, 0};
  for (const bool interleaved : {false, true}) {
    std::vector<Bf16> head = {ToBf16(1), ToBf16(2), ToBf16(3), ToBf16(4), ToBf16(5)};
    reference::RotateHeads({.heads = head.data(),
                            .positions = positions.data(),
                            .cosines = cosines.data(),
                            .sines = sines.data(),
                            .rows = 1,
                            .row_stride = 5,
                            .q_heads = 1,
                            .k_heads = 0,
                            .head_dim = 4,
                            .rotary_dims = 4,
                            .interleaved = interleaved});
    const std::vector<float> want =
        interleaved ? std::vector<float>{-2, 1, 3, 4, 5} : std::vector<float>{-3, 2, 1, 4, 5};
    for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(ToFloat(head[i]), want[i]) << interleaved << " " << i;
  }
}

TEST(DecoderReferenceTest, GatesFollowTheirFormulas) {
  const std::vector<Bf16> row = {ToBf16(8.0F), ToBf16(-1.0F), ToBf16(9.0F), ToBf16(0.5F)};
  std::vector<Bf16> out(2);
  const auto gate = [&](GateKind kind) {
    reference::Gate({row.data(), out.data(), 1, 2, kind, 7.0F});
    return std::vector<float>{ToFloat(out[0]), ToFloat(out[1])};
  };
  EXPECT_NEAR(gate(GateKind::kSilu)[1], -0.26894 * 0.5, 1e-3);
  EXPECT_NEAR(gate(GateKind::kGeluTanh)[1], -0.15881 * 0.5, 1e-3);
  EXPECT_NEAR(gate(GateKind::kClampedSwiglu)[0], 7.0 * 8.0, 0.3);  // gate 7, up 7 + 1
  EXPECT_NEAR(gate(GateKind::kClampedSwiglu)[1], -1.0 / (1.0 + std::exp(1.702)) * 1.5, 2e-3);
}

TEST(DecoderReferenceTest, ASinkIsOneMoreLogitOfTheSoftmax) {
  // Two keys with logits 0 and 1 and values 2 and 6; the sink's logit is 0.5.
  const float sum = 1.0F + std::exp(1.0F);
  std::vector<Bf16> out = {ToBf16((2.0F + 6.0F * std::exp(1.0F)) / sum)};
  const std::vector<float> lse = {std::log(sum)};
  const std::vector<float> sinks = {0.5F};
  reference::ApplySinks({out.data(), lse.data(), sinks.data(), 1, 1, 1});
  EXPECT_NEAR(ToFloat(out[0]), (2.0F + 6.0F * std::exp(1.0F)) / (sum + std::exp(0.5F)), 0.02);
}

}  // namespace
}  // namespace draftmill

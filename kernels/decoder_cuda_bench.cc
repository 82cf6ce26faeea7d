// How near the kernels come to the rate at which this GPU copies. Sizes of an 8B model and a batch of 32,768 tokens;
// each line shows bytes read and written per second, and its share of a device-to-device copy measured first.
#include <benchmark/benchmark.h>

#include "kernels/cuda_bench.h"
#include "kernels/decoder_cuda.h"

namespace draftmill {
namespace {

using cuda::AddNormArgs;
using cuda::DeviceBuffer;
using cuda::RotateHeadsArgs;

constexpr std::int64_t kRows = 32768;
constexpr std::int64_t kHidden = 4096;
constexpr std::int64_t kWidth = 14336;

void BM_AddNorm(benchmark::State& state) {
  if (cuda::DeviceCount() == 0) return state.SkipWithError("no GPU on this machine");
  const bool captures = state.range(0) != 0;
  auto residual = RandomValues(kRows * kHidden);
  auto branch = RandomValues(kRows * kHidden);
  auto weight = RandomWeights(kHidden);
  auto out = RandomValues(kRows * kHidden);
  auto capture = RandomValues(kRows * kHidden * 2);
  const AddNormArgs args{.residual = residual.data(),
                         .branch = branch.data(),
                         .branch_weight = nullptr,
                         .weight = weight.data(),
                         .out = out.data(),
                         .capture = captures ? capture.data() : nullptr,
                         .capture_stride = 2 * kHidden,
                         .rows = kRows,
                         .cols = kHidden,
                         .epsilon = 1e-5F,
                         .rounding = NormRounding::kHf,
                         .one_plus = false};
  Measure(state, kRows * kHidden * 2 * (captures ? 5 : 4), [&] { return cuda::AddNorm(args, nullptr); });
}

void BM_RotateHeads(benchmark::State& state) {
  if (cuda::DeviceCount() == 0) return state.SkipWithError("no GPU on this machine");
  constexpr std::int64_t kHeads = 40;
  constexpr std::int64_t kDims = 128;
  auto heads = RandomValues(kRows * 48 * kDims);
  auto norm = RandomWeights(kDims);
  auto positions = Filled<std::int32_t>(kRows, [](std::int64_t i) { return static_cast<std::int32_t>(i % 4096); });
  auto table = Filled<float>(4096 * kDims / 2, [](std::int64_t i) { return static_cast<float>(i % 7) * 0.1F; });
  const RotateHeadsArgs args{.heads = heads.data(),
                             .positions = positions.data(),
                             .cosines = table.data(),
                             .sines = table.data(),
                             .q_norm = state.range(0) != 0 ? norm.data() : nullptr,
                             .k_norm = state.range(0) != 0 ? norm.data() : nullptr,
                             .rows = kRows,
                             .row_stride = 48 * kDims,
                             .q_heads = 32,
                             .k_heads = 8,
                             .head_dim = kDims,
                             .rotary_dims = kDims,
                             .interleaved = false,
                             .epsilon = 1e-6F};
  Measure(state, kRows * kHeads * kDims * 2 * 2, [&] { return cuda::RotateHeads(args, nullptr); });
}

void BM_Gate(benchmark::State& state) {
  if (cuda::DeviceCount() == 0) return state.SkipWithError("no GPU on this machine");
  auto gate_up = RandomValues(kRows * 2 * kWidth);
  auto out = DeviceBuffer<Bf16>::Make(kRows * kWidth).value();
  const cuda::GateArgs args{gate_up.data(), out.data(), kRows, kWidth, static_cast<GateKind>(state.range(0)), 7.0F};
  Measure(state, kRows * kWidth * 2 * 3, [&] { return cuda::Gate(args, nullptr); });
}

void BM_MarkNonFinite(benchmark::State& state) {
  if (cuda::DeviceCount() == 0) return state.SkipWithError("no GPU on this machine");
  auto values = RandomValues(kRows * 4 * kHidden);
  auto owner = Filled<std::int32_t>(kRows, [](std::int64_t) { return 0; });
  auto bad = Filled<std::int32_t>(1, [](std::int64_t) { return 0; });
  const cuda::MarkNonFiniteArgs args{values.data(), owner.data(), bad.data(), kRows, 4 * kHidden};
  Measure(state, kRows * 4 * kHidden * 2, [&] { return cuda::MarkNonFinite(args, nullptr); });
}

BENCHMARK(BM_AddNorm)->ArgName("capture")->Arg(0)->Arg(1)->UseManualTime()->Iterations(5);
BENCHMARK(BM_RotateHeads)->ArgName("norms")->Arg(0)->Arg(1)->UseManualTime()->Iterations(5);
BENCHMARK(BM_Gate)->ArgName("kind")->Arg(0)->Arg(1)->Arg(2)->UseManualTime()->Iterations(5);
BENCHMARK(BM_MarkNonFinite)->UseManualTime()->Iterations(5);

}  // namespace
}  // namespace draftmill

BENCHMARK_MAIN();

// How near the kernels of experts and latent attention come to the rate at which this GPU copies, in the shape of a
// Kimi-K2.5 layer and a block of 65,536 tokens; and what attention's own kernel makes of the card's product rate.
#include <benchmark/benchmark.h>

#include <algorithm>

#include "kernels/attention_cuda.h"
#include "kernels/cuda_bench.h"
#include "kernels/decoder_cuda.h"
#include "kernels/expand_cuda.h"
#include "kernels/experts_cuda.h"

namespace draftmill {
namespace {

using cuda::DeviceBuffer;

constexpr std::int64_t kRows = 65536;
constexpr std::int64_t kHidden = 7168;
constexpr std::int64_t kExperts = 384;
constexpr std::int64_t kTopK = 8;
constexpr std::int64_t kWidth = 2048;

/// Choices in ascending order, as a router gives them.
DeviceBuffer<std::int32_t> RandomChoices() {
  return Filled<std::int32_t>(kRows * kTopK, [](std::int64_t i) {
    const std::int64_t part = kExperts / kTopK;
    return static_cast<std::int32_t>(i % kTopK * part + (i / kTopK * 2654435761LL) % part);
  });
}

void BM_RouteRows(benchmark::State& state) {
  if (cuda::DeviceCount() == 0) return state.SkipWithError("no GPU on this machine");
  auto logits = Filled<float>(
      kRows * kExperts, [](std::int64_t i) { return static_cast<float>((i * 2654435761LL) % 2001 - 1000) * 1e-3F; });
  auto bias = RandomWeights(kExperts);
  auto chosen = DeviceBuffer<std::int32_t>::Make(kRows * kTopK).value();
  auto weights = DeviceBuffer<float>::Make(kRows * kTopK).value();
  const cuda::RouteRowsArgs args{.logits = logits.data(),
                                 .choice_bias = bias.data(),
                                 .chosen = chosen.data(),
                                 .weights = weights.data(),
                                 .rows = kRows,
                                 .experts = kExperts,
                                 .top_k = kTopK,
                                 .kind = RouterKind::kSigmoidBiased,
                                 .renormalise = true};
  Measure(state, kRows * (kExperts + 2 * kTopK) * 4, [&] { return cuda::RouteRows(args, nullptr); });
}

void BM_PlanSlots(benchmark::State& state) {
  if (cuda::DeviceCount() == 0) return state.SkipWithError("no GPU on this machine");
  auto chosen = RandomChoices();
  auto slots = DeviceBuffer<std::int32_t>::Make(kRows * kTopK).value();
  auto first = DeviceBuffer<std::int32_t>::Make(kExperts + 1).value();
  auto scratch = DeviceBuffer<std::int32_t>::Make(cuda::PlanSlotsScratch(kRows, kExperts)).value();
  const cuda::PlanSlotsArgs args{chosen.data(), slots.data(), first.data(), scratch.data(), kRows, kTopK, kExperts};
  Measure(state, kRows * kTopK * 4 * 4, [&] { return cuda::PlanSlots(args, nullptr); });
}

/// Every place once, far from each other for one row.
DeviceBuffer<std::int32_t> ScatteredSlots() {
  return Filled<std::int32_t>(kRows * kTopK,
                              [](std::int64_t i) { return static_cast<std::int32_t>((i * 40503) % (kRows * kTopK)); });
}

void BM_SpreadRows(benchmark::State& state) {
  if (cuda::DeviceCount() == 0) return state.SkipWithError("no GPU on this machine");
  auto in = RandomValues(kRows * kHidden);
  auto slots = ScatteredSlots();
  auto out = DeviceBuffer<Bf16>::Make(kRows * kTopK * kHidden).value();
  Measure(state, kRows * (kTopK + 1) * kHidden * 2, [&] {
    return cuda::SpreadRows({in.data(), slots.data(), out.data(), kRows, kTopK, kHidden}, nullptr);
  });
}

void BM_JoinExperts(benchmark::State& state) {
  if (cuda::DeviceCount() == 0) return state.SkipWithError("no GPU on this machine");
  auto expert_rows = DeviceBuffer<Bf16>::Make(kRows * kTopK * kHidden).value();
  auto slots = ScatteredSlots();
  auto weights = RandomWeights(kRows * kTopK);
  auto out = RandomValues(kRows * kHidden);
  const cuda::JoinExpertsArgs args{
      expert_rows.data(), slots.data(), weights.data(), out.data(), out.data(), kRows, kTopK, kHidden, false};
  Measure(state, kRows * (kTopK + 2) * kHidden * 2, [&] { return cuda::JoinExperts(args, nullptr); });
}

/// Four experts' gate and up: what the engine expands at a time.
void BM_ExpandMatrix(benchmark::State& state) {
  if (cuda::DeviceCount() == 0) return state.SkipWithError("no GPU on this machine");
  const auto kind = static_cast<cuda::ExpandKind>(state.range(0));
  const std::int64_t block = kind == cuda::ExpandKind::kFp8 ? 128 : 32;
  const std::int64_t row_bytes = kind == cuda::ExpandKind::kFp8 ? kHidden : kHidden / 2;
  const std::int64_t scale_bytes = kind == cuda::ExpandKind::kFp8 ? 4 : kind == cuda::ExpandKind::kMxfp4 ? 1 : 2;
  const std::int64_t rows = 2 * kWidth;
  const std::int64_t scale_rows = kind == cuda::ExpandKind::kFp8 ? rows / 128 : rows;
  const std::int64_t bytes = rows * row_bytes + scale_rows * (kHidden / block) * scale_bytes;
  auto packed = Filled<std::byte>(
      4 * bytes, [](std::int64_t i) { return static_cast<std::byte>((i * 2654435761LL >> 8) & 0x3f); });
  auto out = DeviceBuffer<Bf16>::Make(4 * rows * kHidden).value();
  const cuda::ExpandMatrixArgs args{.kind = kind,
                                    .values = packed.data(),
                                    .scales = packed.data() + rows * row_bytes,
                                    .out = out.data(),
                                    .matrices = 4,
                                    .matrix_bytes = bytes,
                                    .out_distance = rows * kHidden,
                                    .rows = rows,
                                    .columns = kHidden,
                                    .row_bytes = row_bytes,
                                    .stack_rows = rows / 2,
                                    .block_rows = rows / scale_rows,
                                    .block_columns = block,
                                    .scale_columns = kHidden / block};
  Measure(state, 4 * (bytes + rows * kHidden * 2), [&] { return cuda::ExpandMatrix(args, nullptr); });
}

void BM_AssembleLatent(benchmark::State& state) {
  if (cuda::DeviceCount() == 0) return state.SkipWithError("no GPU on this machine");
  constexpr std::int64_t kLatentRows = 32768;
  constexpr std::int64_t kHeads = 64;
  auto q = RandomValues(kLatentRows * kHeads * 192);
  auto kv = RandomValues(kLatentRows * kHeads * 256);
  auto latent = RandomValues(kLatentRows * 576);
  auto k = DeviceBuffer<Bf16>::Make(kLatentRows * kHeads * 192).value();
  auto positions =
      Filled<std::int32_t>(kLatentRows, [](std::int64_t i) { return static_cast<std::int32_t>(i % 4096); });
  auto table = Filled<float>(4096 * 32, [](std::int64_t i) { return static_cast<float>(i % 7) * 0.1F; });
  const cuda::AssembleLatentArgs args{.q = q.data(),
                                      .kv = kv.data(),
                                      .k_rope = latent.data() + 512,
                                      .k = k.data(),
                                      .positions = positions.data(),
                                      .cosines = table.data(),
                                      .sines = table.data(),
                                      .rows = kLatentRows,
                                      .k_rope_stride = 576,
                                      .heads = kHeads,
                                      .nope_dim = 128,
                                      .rope_dim = 64,
                                      .v_dim = 128,
                                      .interleaved = true};
  // Read: the rotated part of q, the nope part of kv; written: that part of q and the keys.
  Measure(state, kLatentRows * kHeads * (64 + 128 + 64 + 192) * 2, [&] { return cuda::AssembleLatent(args, nullptr); });
}

/// Sixteen sequences of 2,048 tokens; the rate counts what causal attention needs.
void BM_Attend(benchmark::State& state) {
  if (cuda::DeviceCount() == 0) return state.SkipWithError("no GPU on this machine");
  const std::int64_t head_dim = state.range(0);
  const std::int64_t value_dim = state.range(1);
  const bool capped = state.range(2) != 0;
  constexpr std::int64_t kSequences = 16;
  constexpr std::int64_t kTokens = 2048;
  const std::int64_t heads = 8192 / std::max<std::int64_t>(head_dim, 128);
  const auto q = RandomValues(kSequences * kTokens * heads * head_dim);
  const auto k = RandomValues(kSequences * kTokens * heads * head_dim);
  const auto v = RandomValues(kSequences * kTokens * heads * value_dim);
  auto out = DeviceBuffer<Bf16>::Make(kSequences * kTokens * heads * value_dim).value();
  const auto starts =
      Filled<std::int32_t>(kSequences + 1, [](std::int64_t i) { return static_cast<std::int32_t>(i * kTokens); });
  const cuda::AttendArgs args{.q = q.data(),
                              .k = k.data(),
                              .v = v.data(),
                              .out = out.data(),
                              .q_token = heads * head_dim,
                              .q_head = head_dim,
                              .k_token = heads * head_dim,
                              .k_head = head_dim,
                              .v_token = heads * value_dim,
                              .v_head = value_dim,
                              .starts = starts.data(),
                              .sequences = kSequences,
                              .longest = kTokens,
                              .heads = heads,
                              .kv_heads = heads,
                              .head_dim = head_dim,
                              .value_dim = value_dim,
                              .scale = 0.1F,
                              .softcap = capped ? 50.0F : 0.0F};
  double seconds = 0;
  for (auto _ : state) {
    Status status;
    seconds = SecondsOf([&] { status = cuda::Attend(args, nullptr); });
    state.SetIterationTime(seconds);
    if (!status.ok()) return state.SkipWithError(status.ToString().c_str());
  }
  const double flops = 2.0 * static_cast<double>(kSequences * heads * (head_dim + value_dim)) *
                       static_cast<double>(kTokens * (kTokens + 1) / 2);
  state.counters["tflops"] = flops / seconds * 1e-12;
}

BENCHMARK(BM_RouteRows)->UseManualTime()->Iterations(3);
BENCHMARK(BM_PlanSlots)->UseManualTime()->Iterations(3);
BENCHMARK(BM_SpreadRows)->UseManualTime()->Iterations(3);
BENCHMARK(BM_JoinExperts)->UseManualTime()->Iterations(3);
BENCHMARK(BM_ExpandMatrix)->ArgName("kind")->Arg(0)->Arg(1)->Arg(4)->UseManualTime()->Iterations(3);
BENCHMARK(BM_AssembleLatent)->UseManualTime()->Iterations(3);
BENCHMARK(BM_Attend)
    ->ArgNames({"dims", "values", "capped"})
    ->Args({64, 64, 0})
    ->Args({128, 128, 0})
    ->Args({192, 128, 0})
    ->Args({256, 256, 0})
    ->Args({256, 256, 1})
    ->UseManualTime()
    ->Iterations(2);

}  // namespace
}  // namespace draftmill

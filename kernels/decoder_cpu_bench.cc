// Rates of the decoder's element-wise kernels in SmolLM2-135M's shapes, for each instruction set of this machine.
#include <benchmark/benchmark.h>

#include <vector>

#include "kernels/decoder_cpu.h"

namespace draftmill {
namespace {

constexpr std::int64_t kRows = 256;

InstructionSet SetOf(const benchmark::State& state) { return static_cast<InstructionSet>(state.range(0)); }

void BenchRmsNorm(benchmark::State& state) {
  const std::int64_t cols = 576;
  const std::vector<float> x(static_cast<std::size_t>(kRows * cols), 0.5F),
      weight(static_cast<std::size_t>(cols), 1.0F);
  std::vector<float> out(x.size());
  for (auto _ : state) {
    DecoderKernelsFor<float>(SetOf(state))
        .rms_norm({x.data(), weight.data(), out.data(), kRows, cols, 1e-5F, NormRounding::kHf});
    benchmark::DoNotOptimize(out.data());
  }
  state.SetItemsProcessed(state.iterations() * kRows * cols);
}

void BenchGate(benchmark::State& state) {
  const std::int64_t width = 1536;
  const std::vector<float> gate_up(static_cast<std::size_t>(kRows * width * 2), 0.5F);
  std::vector<float> out(static_cast<std::size_t>(kRows * width));
  for (auto _ : state) {
    DecoderKernelsFor<float>(SetOf(state)).gate({gate_up.data(), out.data(), kRows, width, true});
    benchmark::DoNotOptimize(out.data());
  }
  state.SetItemsProcessed(state.iterations() * kRows * width);
}

void BenchSoftmax(benchmark::State& state) {
  const std::int64_t keys = 512;
  const std::vector<float> raw(static_cast<std::size_t>(kRows * keys), 0.5F);
  std::vector<float> scores = raw, maximum(kRows, -1e30F), sum(kRows), rescale(kRows);
  for (auto _ : state) {
    DecoderKernelsFor<float>(SetOf(state))
        .softmax_block({scores.data(), maximum.data(), sum.data(), rescale.data(), kRows, keys, 3, keys, 0, 0, 0.125F});
    benchmark::DoNotOptimize(scores.data());
  }
  state.SetItemsProcessed(state.iterations() * kRows * keys);
}

void AvailableSets(benchmark::internal::Benchmark* bench) {
  for (int set = 0; set <= static_cast<int>(DetectInstructionSet()); ++set) bench->Arg(set);
}

BENCHMARK(BenchRmsNorm)->Apply(AvailableSets);
BENCHMARK(BenchGate)->Apply(AvailableSets);
BENCHMARK(BenchSoftmax)->Apply(AvailableSets);

}  // namespace
}  // namespace draftmill

BENCHMARK_MAIN();

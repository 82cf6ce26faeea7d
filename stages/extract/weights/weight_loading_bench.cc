// Loading a checkpoint of 2 GB from a cold disk beside a plain reader of the same file: `share_of_plain` must be 0.9 or more.
// And the expansion of quantised values, by one thread.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <random>
#include <vector>

#include "stages/extract/model/test_checkpoint.h"
#include "stages/extract/weights/quantised_values.h"
#include "stages/extract/weights/weight_store.h"

namespace draftmill {
namespace {

constexpr const char* kConfig = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048,
  "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 8,
  "rms_norm_eps": 1e-5, "vocab_size": 32000, "max_position_embeddings": 4096, "tie_word_embeddings": true,
  "torch_dtype": "bfloat16"})";

/// Fills a checkpoint with noise that no disk can compress, without NaN or infinity.
void Fill(const HollowCheckpoint& checkpoint) {
  std::fstream file(checkpoint.path(), std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(checkpoint.data_start());
  std::mt19937_64 random(1);
  std::vector<std::uint64_t> noise(std::size_t{1} << 17);
  for (std::int64_t written = checkpoint.data_start(); written < checkpoint.file_bytes();) {
    for (std::uint64_t& word : noise) word = random() & 0xbfffbfffbfffbfffULL;
    const std::int64_t count = std::min(checkpoint.file_bytes() - written, static_cast<std::int64_t>(noise.size() * 8));
    file.write(reinterpret_cast<const char*>(noise.data()), count);
    written += count;
  }
}

/// Writes the file back and drops it from the page cache.
void MakeCold(const HollowCheckpoint& checkpoint) {
  const int descriptor = open(checkpoint.path().c_str(), O_RDONLY);
  fsync(descriptor);
  posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
  close(descriptor);
}

/// Seconds of a reader that does nothing but read, 4 MiB at a time, from the first byte to the last.
double ReadPlainly(const HollowCheckpoint& checkpoint) {
  const auto start = std::chrono::steady_clock::now();
  const int descriptor = open(checkpoint.path().c_str(), O_RDONLY);
  posix_fadvise(descriptor, 0, 0, POSIX_FADV_SEQUENTIAL);
  std::vector<char> buffer(std::size_t{4} << 20);
  while (read(descriptor, buffer.data(), buffer.size()) > 0) benchmark::DoNotOptimize(buffer.data());
  close(descriptor);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void BenchLoading(benchmark::State& state) {
  const HollowCheckpoint checkpoint(json::Parse(kConfig).value());
  Fill(checkpoint);
  const ModelFolder model = OpenModelFolder(checkpoint.folder(), {16}).value();
  double plain = 0;
  double loading = 0;
  for (auto _ : state) {
    MakeCold(checkpoint);
    plain += ReadPlainly(checkpoint);
    MakeCold(checkpoint);
    const auto start = std::chrono::steady_clock::now();
    benchmark::DoNotOptimize(WeightStore<Bf16>::Open(model, {WeightPolicy::kResident}).value()->final_norm());
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    loading += seconds;
    state.SetIterationTime(seconds);
  }
  state.SetBytesProcessed(state.iterations() * checkpoint.file_bytes());
  state.counters["plain_bytes_per_second"] = static_cast<double>(state.iterations() * checkpoint.file_bytes()) / plain;
  state.counters["share_of_plain"] = plain / loading;
}

constexpr std::int64_t kColumns = 7168;

template <typename Expand>
void BenchExpand(benchmark::State& state, const Expand& expand) {
  std::vector<Bf16> out(static_cast<std::size_t>(kColumns));
  for (auto _ : state) {
    expand(out.data());
    benchmark::DoNotOptimize(out.data());
  }
  state.SetItemsProcessed(state.iterations() * kColumns);
}

void BenchExpandFp8(benchmark::State& state) {
  const std::vector<std::byte> values(static_cast<std::size_t>(kColumns), std::byte{0x35});
  const std::vector<float> scales(kColumns / 128, 0.01F);
  BenchExpand(state, [&](Bf16* out) { ExpandFp8(values.data(), scales.data(), 128, 0, kColumns, out); });
}

void BenchExpandInt4(benchmark::State& state) {
  const std::vector<std::byte> values(static_cast<std::size_t>(kColumns / 2), std::byte{0x35});
  const std::vector<Bf16> scales(kColumns / 32, ToBf16(0.01F));
  const auto* const stored = reinterpret_cast<const std::byte*>(scales.data());
  BenchExpand(state, [&](Bf16* out) { ExpandInt4(values.data(), stored, ScaleType::kBfloat16, 32, 0, kColumns, out); });
}

void BenchExpandMxfp4(benchmark::State& state) {
  const std::vector<std::byte> values(static_cast<std::size_t>(kColumns / 2), std::byte{0x35});
  const std::vector<std::uint8_t> scales(kColumns / 32, 120);
  BenchExpand(state, [&](Bf16* out) { ExpandMxfp4(values.data(), scales.data(), 32, 0, kColumns, out); });
}

BENCHMARK(BenchExpandFp8);
BENCHMARK(BenchExpandInt4);
BENCHMARK(BenchExpandMxfp4);
BENCHMARK(BenchLoading)->UseManualTime()->Iterations(3)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace draftmill

BENCHMARK_MAIN();

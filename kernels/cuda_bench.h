// What the benchmarks of CUDA kernels share: filled buffers, times by events, the rate of a copy on the same card.
#pragma once

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <vector>

#include "kernels/bfloat16.h"
#include "kernels/device_buffer.h"

namespace draftmill {

inline constexpr int kRepeats = 20;

template <typename T>
cuda::DeviceBuffer<T> Filled(std::int64_t count, const std::function<T(std::int64_t)>& value) {
  std::vector<T> host(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) host[static_cast<std::size_t>(i)] = value(i);
  auto buffer = cuda::DeviceBuffer<T>::Make(count).value();
  if (!buffer.Upload(host).ok()) std::fprintf(stderr, "copy to the GPU failed\n");
  return buffer;
}
inline cuda::DeviceBuffer<Bf16> RandomValues(std::int64_t count) {
  return Filled<Bf16>(
      count, [](std::int64_t i) { return ToBf16(static_cast<float>((i * 2654435761LL) % 2001 - 1000) * 1e-3F); });
}

inline cuda::DeviceBuffer<float> RandomWeights(std::int64_t count) {
  return Filled<float>(count, [](std::int64_t i) { return 1.0F + static_cast<float>(i % 17) * 0.01F; });
}

/// Seconds of one call: the mean of kRepeats, after one that warms up.
inline double SecondsOf(const std::function<void()>& call) {
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  call();
  cudaEventRecord(begin, nullptr);
  for (int i = 0; i < kRepeats; ++i) call();
  cudaEventRecord(end, nullptr);
  cudaEventSynchronize(end);
  float milliseconds = 0;
  cudaEventElapsedTime(&milliseconds, begin, end);
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return static_cast<double>(milliseconds) * 1e-3 / kRepeats;
}

inline double CopyRate() {
  static const double rate = [] {
    const std::int64_t bytes = std::int64_t{4} << 30;
    auto from = cuda::DeviceBuffer<std::byte>::Make(bytes).value();
    auto to = cuda::DeviceBuffer<std::byte>::Make(bytes).value();
    const double seconds = SecondsOf([&] {
      cudaMemcpyAsync(to.data(), from.data(), static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice, nullptr);
    });
    return 2.0 * static_cast<double>(bytes) / seconds;
  }();
  return rate;
}

inline void Measure(benchmark::State& state, std::int64_t bytes, const std::function<Status()>& launch) {
  if (cuda::DeviceCount() == 0) return state.SkipWithError("no GPU on this machine");
  for (auto _ : state) {
    Status status;
    state.SetIterationTime(SecondsOf([&] { status = launch(); }));
    if (!status.ok()) return state.SkipWithError(status.ToString().c_str());
  }
  state.SetBytesProcessed(state.iterations() * bytes);
  state.counters["copy_share"] =
      benchmark::Counter(static_cast<double>(bytes) / CopyRate(), benchmark::Counter::kIsIterationInvariantRate);
}

}  // namespace draftmill

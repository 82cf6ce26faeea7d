// What the tests of CUDA kernels share: random values, copies to the GPU, comparison with the reference. Without a GPU
// the tests of the fixture are skipped.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernels/bfloat16.h"
#include "kernels/device_buffer.h"

namespace draftmill {

inline constexpr std::uint16_t kPoison = 0x7fc1;

class Random {
 public:
  std::vector<Bf16> Values(std::int64_t count, float mean = 0.0F, float deviation = 1.0F) {
    std::normal_distribution<float> normal(mean, deviation);
    std::vector<Bf16> values(static_cast<std::size_t>(count));
    for (Bf16& value : values) value = ToBf16(normal(engine_));
    return values;
  }
  std::vector<float> Weights(std::int64_t count, float mean, float deviation) {
    std::vector<float> weights;
    for (const Bf16 value : Values(count, mean, deviation)) weights.push_back(ToFloat(value));
    return weights;
  }
  std::vector<float> Floats(std::int64_t count) {
    std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = uniform(engine_);
    return values;
  }
  std::vector<std::int32_t> Integers(std::int64_t count, std::int32_t below) {
    std::uniform_int_distribution<std::int32_t> uniform(0, below - 1);
    std::vector<std::int32_t> values(static_cast<std::size_t>(count));
    for (std::int32_t& value : values) value = uniform(engine_);
    return values;
  }

 private:
  std::mt19937 engine_{11};
};

inline std::vector<Bf16> Poisoned(std::int64_t count) {
  return std::vector<Bf16>(static_cast<std::size_t>(count), Bf16{kPoison});
}

/// The kernel may differ from the reference by one step of bfloat16, where a sum in another order crosses a rounding
/// boundary, and only in few places. Two roundings on the way make two steps; where terms cancel, `absolute` is a step
/// of the larger one.
inline void ExpectClose(const std::vector<Bf16>& got, const std::vector<Bf16>& want, const std::string& what,
                        float absolute = 0.0F) {
  ASSERT_EQ(got.size(), want.size()) << what;
  std::size_t different = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i].bits == want[i].bits) continue;
    ++different;
    const float a = ToFloat(got[i]);
    const float b = ToFloat(want[i]);
    ASSERT_LE(std::abs(a - b), 0.016F * std::abs(b) + absolute) << what << ": place " << i << ", " << a << " for " << b;
  }
  EXPECT_LE(static_cast<double>(different), 0.02 * static_cast<double>(got.size()) + 2) << what;
}

/// Bit for bit, but that any NaN is as good as another.
inline void ExpectSame(const std::vector<Bf16>& got, const std::vector<Bf16>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(ToFloat(got[i])) && std::isnan(ToFloat(want[i]))) continue;
    ASSERT_EQ(got[i].bits, want[i].bits) << what << ": place " << i << ", " << ToFloat(got[i]) << " for "
                                         << ToFloat(want[i]);
  }
}

class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::DeviceCount() == 0) GTEST_SKIP() << "no GPU on this machine: the kernels were compiled, not run";
  }

  template <typename T>
  cuda::DeviceBuffer<T> ToDevice(const std::vector<T>& values) {
    auto buffer = cuda::DeviceBuffer<T>::Make(static_cast<std::int64_t>(values.size())).value();
    EXPECT_TRUE(buffer.Upload(values).ok());
    return buffer;
  }
  static void Finish(const Status& launched) {
    ASSERT_TRUE(launched.ok()) << launched.ToString();
    const Status done = cuda::Check(cudaDeviceSynchronize(), "synchronize");
    ASSERT_TRUE(done.ok()) << done.ToString();
  }

  Random random_;
};

}  // namespace draftmill

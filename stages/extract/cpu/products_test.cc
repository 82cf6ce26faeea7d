#include "stages/extract/cpu/products.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace draftmill {
namespace {

/// Row lengths that fill the libraries' tiles and that do not, numbers of rows on both sides of theirs.
TEST(ProductsTest, ARowThatIsNotFiniteSpoilsNoOther) {
  PrepareProductThread();
  for (const std::int64_t inputs : {48, 64, 80}) {
    for (const std::int64_t rows : {2, 5, 17, 33, 100}) {
      for (const unsigned bits : {0x7fc0U, 0x7f80U, 0xff80U}) {
        constexpr std::int64_t kOutputs = 80;
        std::vector<Bf16> a(static_cast<std::size_t>(rows * inputs), ToBf16(0.5F));
        const std::vector<Bf16> weight(static_cast<std::size_t>(kOutputs * inputs), ToBf16(0.25F));
        std::vector<Bf16> out(static_cast<std::size_t>(rows * kOutputs));
        const std::int64_t bad = rows / 2;
        a[static_cast<std::size_t>(bad * inputs + 5)].bits = static_cast<std::uint16_t>(bits);
        Linear(LinearArgs<Bf16>{a.data(), weight.data(), nullptr, out.data(), rows, inputs, kOutputs});
        for (std::int64_t row = 0; row < rows; ++row) {
          for (std::int64_t i = 0; i < kOutputs; ++i) {
            const float value = ToFloat(out[static_cast<std::size_t>(row * kOutputs + i)]);
            ASSERT_EQ(std::isfinite(value), row != bad) << inputs << " inputs, row " << row << " of " << rows;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace draftmill

#include "stages/extract/model/rope.h"

#include <gtest/gtest.h>

#include <vector>

namespace draftmill {
namespace {

/// llama3's parameters over a plain base of 10,000.
RopeConfig Llama3(std::int64_t dims, double factor, double low, double high, std::int64_t original) {
  RopeConfig rope;
  rope.type = RopeType::kLlama3;
  rope.rotary_dims = dims;
  rope.factor = factor;
  rope.low_freq_factor = low;
  rope.high_freq_factor = high;
  rope.original_max_positions = original;
  return rope;
}

// The numbers are transformers' own, bit for bit: at position 100,000 the last bit of a frequency is some thousandths of a radian.
TEST(PublishedFrequencies, OfLlama3AreThoseOfTransformers) {
  EXPECT_EQ(PublishedFrequencies(Llama3(18, 8.0, 1.0, 4.0, 64)),
            (std::vector<float>{0x1.000000p+0F, 0x1.4b947ap-2F, 0x1.cb4538p-6F, 0x1.7c3d2ap-8F, 0x1.114d36p-9F,
                                0x1.88e0c0p-11F, 0x1.1a62d2p-12F, 0x1.95efe6p-14F, 0x1.23c5c2p-15F}));
  EXPECT_EQ(PublishedFrequencies(Llama3(32, 3.7, 0.5, 2.2, 50)),
            (std::vector<float>{0x1.000000p+0F, 0x1.1feb34p-1F, 0x1.43d136p-2F, 0x1.e2faa4p-4F, 0x1.4569acp-5F,
                                0x1.f20588p-7F, 0x1.180ee4p-7F, 0x1.3af9fep-8F, 0x1.623fa6p-9F, 0x1.8e6ad4p-10F,
                                0x1.c017d2p-11F, 0x1.f7f664p-12F, 0x1.1b6620p-12F, 0x1.3ebbdcp-13F, 0x1.667976p-14F,
                                0x1.932b82p-15F}));
}

}  // namespace
}  // namespace draftmill

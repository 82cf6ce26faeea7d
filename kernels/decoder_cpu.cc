// The tables of decoder_cpu.h and experts_cpu.h by instruction set.
#include "kernels/decoder_cpu.h"

#include "kernels/experts_cpu.h"

namespace draftmill {

#define DRAFTMILL_DECLARE_KERNELS(name)                  \
  namespace name {                                       \
  extern const DecoderKernels<float> kFloatKernels;      \
  extern const DecoderKernels<Bf16> kBf16Kernels;        \
  extern const ExpertKernels<float> kFloatExpertKernels; \
  extern const ExpertKernels<Bf16> kBf16ExpertKernels;   \
  }
DRAFTMILL_DECLARE_KERNELS(kernels_baseline)
#if defined(__x86_64__)
DRAFTMILL_DECLARE_KERNELS(kernels_avx2)
DRAFTMILL_DECLARE_KERNELS(kernels_avx512)
#else
// One table for all sets.
namespace kernels_avx2 = kernels_baseline;
namespace kernels_avx512 = kernels_baseline;
#endif

namespace {

/// The same table of each set.
template <typename Table>
const Table& TableFor(InstructionSet set, const Table& baseline, const Table& avx2, const Table& avx512) {
  switch (set) {
    case InstructionSet::kBaseline: return baseline;
    case InstructionSet::kAvx2: return avx2;
    case InstructionSet::kAvx512: return avx512;
  }
  return baseline;
}

}  // namespace

template <>
const DecoderKernels<float>& DecoderKernelsFor(InstructionSet set) {
  return TableFor(set, kernels_baseline::kFloatKernels, kernels_avx2::kFloatKernels, kernels_avx512::kFloatKernels);
}
template <>
const DecoderKernels<Bf16>& DecoderKernelsFor(InstructionSet set) {
  return TableFor(set, kernels_baseline::kBf16Kernels, kernels_avx2::kBf16Kernels, kernels_avx512::kBf16Kernels);
}
template <>
const ExpertKernels<float>& ExpertKernelsFor(InstructionSet set) {
  return TableFor(set, kernels_baseline::kFloatExpertKernels, kernels_avx2::kFloatExpertKernels,
                  kernels_avx512::kFloatExpertKernels);
}
template <>
const ExpertKernels<Bf16>& ExpertKernelsFor(InstructionSet set) {
  return TableFor(set, kernels_baseline::kBf16ExpertKernels, kernels_avx2::kBf16ExpertKernels,
                  kernels_avx512::kBf16ExpertKernels);
}

}  // namespace draftmill

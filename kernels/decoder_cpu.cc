#include "kernels/decoder_cpu.h"

namespace draftmill {

#define DRAFTMILL_DECLARE_KERNELS(name)              \
  namespace name {                                   \
  extern const DecoderKernels<float> kFloatKernels;  \
  extern const DecoderKernels<Bf16> kBf16Kernels;    \
  }
DRAFTMILL_DECLARE_KERNELS(kernels_baseline)
#if defined(__x86_64__)
DRAFTMILL_DECLARE_KERNELS(kernels_avx2)
DRAFTMILL_DECLARE_KERNELS(kernels_avx512)
#endif

namespace {

/// The same member of each set's tables.
template <typename T>
struct Tables {
  const DecoderKernels<T>& baseline;
  const DecoderKernels<T>& avx2;
  const DecoderKernels<T>& avx512;

  const DecoderKernels<T>& For(InstructionSet set) const {
    switch (set) {
      case InstructionSet::kBaseline: return baseline;
      case InstructionSet::kAvx2: return avx2;
      case InstructionSet::kAvx512: return avx512;
    }
    return baseline;
  }
};

}  // namespace

#if defined(__x86_64__)
template <>
const DecoderKernels<float>& DecoderKernelsFor(InstructionSet set) {
  return Tables<float>{kernels_baseline::kFloatKernels, kernels_avx2::kFloatKernels, kernels_avx512::kFloatKernels}.For(set);
}
template <>
const DecoderKernels<Bf16>& DecoderKernelsFor(InstructionSet set) {
  return Tables<Bf16>{kernels_baseline::kBf16Kernels, kernels_avx2::kBf16Kernels, kernels_avx512::kBf16Kernels}.For(set);
}
#else
template <>
const DecoderKernels<float>& DecoderKernelsFor(InstructionSet) { return kernels_baseline::kFloatKernels; }
template <>
const DecoderKernels<Bf16>& DecoderKernelsFor(InstructionSet) { return kernels_baseline::kBf16Kernels; }
#endif

}  // namespace draftmill

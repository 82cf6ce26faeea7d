#include "kernels/instruction_set.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <cstring>

namespace draftmill {

#if defined(__x86_64__)

InstructionSet DetectInstructionSet() {
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    return InstructionSet::kAvx512;
  }
  return __builtin_cpu_supports("avx2") ? InstructionSet::kAvx2 : InstructionSet::kBaseline;
}

bool HasBf16Products() {
  return DetectInstructionSet() == InstructionSet::kAvx512 && __builtin_cpu_supports("avx512bf16");
}

std::string ProcessorVendor() {
  unsigned eax = 0;
  unsigned registers[3] = {0, 0, 0};
  if (__get_cpuid(0, &eax, &registers[0], &registers[2], &registers[1]) == 0) return "unknown";
  char text[sizeof(registers)];
  std::memcpy(text, registers, sizeof(registers));
  return {text, sizeof(text)};
}

#else

InstructionSet DetectInstructionSet() { return InstructionSet::kBaseline; }
bool HasBf16Products() { return false; }
std::string ProcessorVendor() { return "unknown"; }

#endif

const char* InstructionSetName(InstructionSet set) {
  switch (set) {
    case InstructionSet::kBaseline: return "x86-64";
    case InstructionSet::kAvx2: return "avx2";
    case InstructionSet::kAvx512: return "avx512";
  }
  return "unknown";
}

}  // namespace draftmill

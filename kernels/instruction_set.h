// Which vector instructions this machine has, as far as draftmill's kernels and choices depend on it.
#pragma once

#include <cstdint>
#include <string>

namespace draftmill {

enum class InstructionSet : std::uint8_t { kBaseline, kAvx2, kAvx512 };

/// The best set for which kernels are compiled.
InstructionSet DetectInstructionSet();
/// "x86-64", "avx2", "avx512".
const char* InstructionSetName(InstructionSet set);
/// True where bfloat16 products have instructions of their own (AVX-512 BF16 or AMX): elsewhere they are several times
/// slower than float32 products of the same values.
bool HasBf16Products();
/// The processor's maker, e.g. "AuthenticAMD": libraries choose their kernels by it.
std::string ProcessorVendor();

}  // namespace draftmill

// What the parts of the CPU decoder share: the model, where it rounds, and the kernels of this machine.
#pragma once

#include "kernels/decoder_cpu.h"
#include "kernels/experts_cpu.h"
#include "kernels/instruction_set.h"
#include "stages/extract/model/model_config.h"

namespace draftmill {

/// T is the type of the products' operands. Constant; safe from any thread.
template <typename T>
struct DecoderNumerics {
  DecoderNumerics(const ModelConfig& model_config, bool fused_norms)
      : config(model_config),
        kernels(DecoderKernelsFor<T>(DetectInstructionSet())),
        expert_kernels(ExpertKernelsFor<T>(DetectInstructionSet())),
        rounds(config.compute == ComputeType::kBfloat16),
        norm_rounding(!rounds                                          ? NormRounding::kNone
                      : fused_norms || config.norm_multiplies_in_float ? NormRounding::kFused
                                                                       : NormRounding::kHf),
        norm_weight_offset(config.norm_one_plus ? 1.0F : 0.0F) {}

  const ModelConfig config;
  const DecoderKernels<T>& kernels;
  const ExpertKernels<T>& expert_kernels;
  const bool rounds;
  const NormRounding norm_rounding;
  const float norm_weight_offset;

  bool IsSliding(std::int64_t layer) const {
    for (const std::int32_t sliding : config.sliding_layers) {
      if (sliding == layer) return true;
    }
    return false;
  }
};

}  // namespace draftmill

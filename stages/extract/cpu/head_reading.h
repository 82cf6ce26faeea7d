// Reading a model's head over a few states, for the self-check (stages/extract/self_check.h). The product runs on the calling thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/status.h"
#include "kernels/decoder_cpu.h"
#include "stages/extract/self_check.h"

namespace draftmill {

/// The tokens that a position's readings are compared with.
struct CheckedTokens {
  std::int32_t here = 0;
  std::int32_t next = 0;
  std::int32_t after_next = 0;
};

/// A model's final norm and head.
struct ModelHead {
  std::int64_t hidden = 0;
  std::int64_t vocab_rows = 0;
  const float* norm_weight = nullptr;  ///< [hidden]
  float norm_epsilon = 0;
  float norm_weight_offset = 0;  ///< 1 for Gemma
  NormRounding norm_rounding = NormRounding::kHf;
  /// Rows of the head as float32.
  std::function<Status(std::int64_t first, std::int64_t count, float* rows)> read_rows;
};

/// Reads `states`, [tokens.size(), hidden] of x_n before the final norm, and adds to `agreement`.
Status ReadHead(const ModelHead& head, std::span<const float> states, std::span<const CheckedTokens> tokens,
                HeadAgreement& agreement);

/// The same with the final norm and the head read from a model folder, no other weight of it. kUnsupported in builds
/// without the engine.
Result<HeadAgreement> ReadHeadOfFolder(const std::string& model_folder, std::span<const float> states,
                                       std::span<const CheckedTokens> tokens);

}  // namespace draftmill

// final_norm.safetensors: the target's final norm, so that the post-norm state can be derived from a stored x_n without
// the model (docs/formats.md, "Final norm").
//
//   DRAFTMILL_RETURN_IF_ERROR(WriteFinalNorm(file_system, work_folder, norm));
//   DRAFTMILL_ASSIGN_OR_RETURN(FinalNorm norm, ReadFinalNorm(file_system, work_folder));
//
// The computation that these numbers are for stands in exports/post_norm.h.
//
// Errors: kNotFound, kCorrupt, kUnsupported (a later format), kIo, kDiskFull. Functions are safe from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "state/file_system.h"

namespace draftmill {

struct FinalNorm {
  std::vector<float> weight;  ///< [H] as stored in the checkpoint; exact for bfloat16, float16 and float32
  double epsilon = 0;
  bool adds_one = false;          ///< Gemma's 1 + w
  std::string rounding = "hf";    ///< hf: before and after the weight; fused: after it alone
  std::string model_fingerprint;  ///< of the model that it was taken from

  friend bool operator==(const FinalNorm&, const FinalNorm&) = default;
};

/// In the work folder.
inline constexpr std::string_view kFinalNormName = "final_norm.safetensors";
std::string FinalNormPath(const std::string& work_folder);

/// Publishes the file atomically, unless it is there with the same content.
Status WriteFinalNorm(FileSystem& file_system, const std::string& work_folder, const FinalNorm& norm);
Result<FinalNorm> ReadFinalNorm(FileSystem& file_system, const std::string& work_folder);

}  // namespace draftmill

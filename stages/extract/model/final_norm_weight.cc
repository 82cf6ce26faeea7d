#include "stages/extract/model/final_norm_weight.h"

#include <bit>
#include <memory>

#include "kernels/bfloat16.h"
#include "stages/extract/model/model_config.h"
#include "stages/extract/model/weights_index.h"

namespace draftmill {
namespace {

/// IEEE half precision as float32, exactly.
float HalfToFloat(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1FU;
  const std::uint32_t fraction = half & 0x3FFU;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
    return sign == 0 ? magnitude : -magnitude;
  }
  const std::uint32_t widened = exponent == 31 ? 255U : exponent + 112U;
  return std::bit_cast<float>(sign | (widened << 23) | (fraction << 13));
}

Result<std::vector<float>> ReadAsFloats(ReadableFile& file, const std::string& path,
                                        const safetensors::TensorInfo& tensor) {
  if (tensor.dtype == safetensors::Dtype::kF32) return safetensors::ReadTensor<float>(file, path, tensor);
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<std::uint16_t> bits,
                             safetensors::ReadTensor<std::uint16_t>(file, path, tensor));
  const bool is_half = tensor.dtype == safetensors::Dtype::kF16;
  std::vector<float> values;
  values.reserve(bits.size());
  for (const std::uint16_t value : bits) values.push_back(is_half ? HalfToFloat(value) : ToFloat(Bf16{value}));
  return values;
}

}  // namespace

Result<FinalNorm> ReadFinalNormOfModel(const ExtractOptions& options, const ModelDescription& model) {
  DRAFTMILL_ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(options.model_folder));
  DRAFTMILL_ASSIGN_OR_RETURN(const WeightsIndex index, OpenWeightsIndex(options.model_folder));
  DRAFTMILL_ASSIGN_OR_RETURN(const CheckpointTensors tensors, MatchTensors(index, config));
  const TensorPlace& place = tensors.Get("norm.weight");
  const std::string path = JoinPath(options.model_folder, index.files[static_cast<std::size_t>(place.file)].name);
  DRAFTMILL_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file, RealFileSystem().OpenForReading(path));
  FinalNorm norm;
  DRAFTMILL_ASSIGN_OR_RETURN(norm.weight, ReadAsFloats(*file, path, place.info));
  norm.epsilon = config.norm_eps;
  norm.adds_one = config.norm_one_plus;
  norm.rounding = options.numerics == "fused" || config.norm_multiplies_in_float ? "fused" : "hf";
  norm.model_fingerprint = model.model_fingerprint;
  return norm;
}

}  // namespace draftmill

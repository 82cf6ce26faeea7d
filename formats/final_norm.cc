#include "formats/final_norm.h"

#include <charconv>
#include <cmath>

#include "base/hash.h"
#include "base/json.h"
#include "formats/tensor_file.h"

namespace draftmill {
namespace {

constexpr FileFormat kFinalNormFormat{.name = "draftmill.final_norm", .version = 1};

std::string WeightDigest(const FinalNorm& norm) { return ToHex(HashBytes128(BytesOf(norm.weight))); }

safetensors::Metadata MetadataOf(const FinalNorm& norm) {
  safetensors::Metadata metadata = FormatMetadata(kFinalNormFormat);
  metadata.emplace_back("epsilon", json::PythonRepr(norm.epsilon));
  metadata.emplace_back("kind", norm.adds_one ? "1+w" : "w");
  metadata.emplace_back("rounding", norm.rounding);
  metadata.emplace_back("model_fingerprint", norm.model_fingerprint);
  metadata.emplace_back("weight_digest", WeightDigest(norm));
  return metadata;
}

Result<double> NumberOf(const std::string& text, const std::string& path) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || !(number >= 0) || !std::isfinite(number)) {
    return Corrupt(path + ": its metadata says epsilon '" + text + "', expected a number from 0");
  }
  return number;
}

}  // namespace

std::string FinalNormPath(const std::string& work_folder) { return JoinPath(work_folder, kFinalNormName); }

Status WriteFinalNorm(FileSystem& file_system, const std::string& work_folder, const FinalNorm& norm) {
  const Result<FinalNorm> present = ReadFinalNorm(file_system, work_folder);
  if (present.ok() && *present == norm) return OkStatus();
  const TensorData weight{.spec = {"weight", safetensors::Dtype::kF32, {static_cast<std::int64_t>(norm.weight.size())}},
                          .bytes = BytesOf(norm.weight)};
  return PublishTensorFile(file_system, work_folder, std::string(kFinalNormName), {weight}, MetadataOf(norm)).status();
}

Result<FinalNorm> ReadFinalNorm(FileSystem& file_system, const std::string& work_folder) {
  const std::string path = FinalNormPath(work_folder);
  DRAFTMILL_ASSIGN_OR_RETURN(TensorFile file, TensorFile::Open(file_system, path, kFinalNormFormat));
  FinalNorm norm;
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string epsilon, file.RequireMetadata("epsilon"));
  DRAFTMILL_ASSIGN_OR_RETURN(norm.epsilon, NumberOf(epsilon, path));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string kind, file.RequireMetadata("kind"));
  if (kind != "w" && kind != "1+w")
    return Unsupported(path + ": a norm of kind '" + kind + "'; a later draftmill may know it");
  norm.adds_one = kind == "1+w";
  DRAFTMILL_ASSIGN_OR_RETURN(norm.rounding, file.RequireMetadata("rounding"));
  if (norm.rounding != "hf" && norm.rounding != "fused") {
    return Unsupported(path + ": a norm rounded as '" + norm.rounding + "'; a later draftmill may know it");
  }
  DRAFTMILL_ASSIGN_OR_RETURN(norm.model_fingerprint, file.RequireMetadata("model_fingerprint"));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string digest, file.RequireMetadata("weight_digest"));
  const safetensors::TensorInfo* weight = file.header().Find("weight");
  if (weight == nullptr || weight->shape.size() != 1)
    return Corrupt(path + ": it lacks a tensor 'weight' of one extent");
  DRAFTMILL_ASSIGN_OR_RETURN(norm.weight, file.Read<float>("weight", safetensors::Dtype::kF32, weight->shape));
  if (WeightDigest(norm) != digest) return Corrupt(path + ": the weight's digest is not the recorded one");
  return norm;
}

}  // namespace draftmill

#include "stages/extract/random_checkpoint.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "base/hash.h"
#include "base/json.h"
#include "formats/safetensors.h"
#include "kernels/bfloat16.h"
#include "stages/extract/model_config.h"
#include "stages/extract/model_family.h"
#include "state/file_system.h"

namespace draftmill {
namespace {

/// Values are taken from one table, each tensor from a place of its own; a prime length keeps rows from repeating.
constexpr std::size_t kTableLength = 4194301;
constexpr float kDeviation = 0.02F;

std::vector<Bf16> RandomTable(std::uint64_t seed, float mean) {
  std::mt19937_64 random(seed);
  std::vector<Bf16> table(kTableLength);
  // The sum of twelve uniform numbers is normal enough, and the same with every standard library.
  for (Bf16& value : table) {
    float sum = -6.0F;
    std::uint64_t bits = 0;
    for (int i = 0; i < 12; ++i) {
      bits = i % 4 == 0 ? random() : bits >> 16;
      sum += static_cast<float>(bits & 0xffffU) / 65536.0F;
    }
    value = ToBf16(mean + kDeviation * sum);
  }
  return table;
}

Status WriteTensor(const safetensors::TensorInfo& tensor, const std::vector<Bf16>& table, WritableFile& file) {
  std::size_t at = HashBytes64(tensor.name) % kTableLength;
  for (std::int64_t done = 0; done < tensor.bytes;) {
    const std::size_t values = std::min(kTableLength - at, static_cast<std::size_t>(tensor.bytes - done) / sizeof(Bf16));
    DRAFTMILL_RETURN_IF_ERROR(file.WriteAt(tensor.offset + done, std::as_bytes(std::span(table).subspan(at, values))));
    done += static_cast<std::int64_t>(values * sizeof(Bf16));
    at = 0;
  }
  return OkStatus();
}

Result<ModelConfig> ReadConfig(const std::string& text, const std::string& path) {
  DRAFTMILL_ASSIGN_OR_RETURN(const json::Value value, json::Parse(text));
  DRAFTMILL_ASSIGN_OR_RETURN(ModelConfig config, ParseModelConfig(value, path));
  if (config.quantization.method == QuantizationMethod::kNone) return config;
  return Unsupported(path + ": random checkpoints of quantised configurations are not made; leave the quantisation out");
}

std::vector<safetensors::TensorSpec> SpecsOf(const ModelConfig& config) {
  std::vector<safetensors::TensorSpec> specs;
  for (const ExpectedTensor& tensor : ExpectedTensors(config)) {
    if (!tensor.required) continue;
    const bool of_body = !tensor.name.starts_with("lm_head");
    specs.push_back({(of_body ? "model." : "") + tensor.name, safetensors::Dtype::kBf16, tensor.shape});
  }
  return specs;
}

}  // namespace

Result<std::int64_t> WriteRandomCheckpoint(const std::string& config_path, const std::string& folder, std::uint64_t seed) {
  FileSystem& files = RealFileSystem();
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string text, files.ReadAll(config_path));
  DRAFTMILL_ASSIGN_OR_RETURN(const ModelConfig config, ReadConfig(text, config_path));
  if (files.Exists(JoinPath(folder, "config.json"))) {
    return Conflict(folder + " already holds a model; nothing was written. Name another folder");
  }
  DRAFTMILL_RETURN_IF_ERROR(files.MakeFolder(folder));
  DRAFTMILL_ASSIGN_OR_RETURN(const safetensors::BuiltHeader header, safetensors::BuildHeader(SpecsOf(config), {{"format", "pt"}}));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file,
                             files.OpenForWriting(JoinPath(folder, "model.safetensors"), OpenMode::kCreate));
  DRAFTMILL_RETURN_IF_ERROR(file->WriteAt(0, std::as_bytes(std::span(header.bytes))));
  const std::vector<Bf16> matrices = RandomTable(seed, 0.0F);
  const std::vector<Bf16> vectors = RandomTable(seed + 1, 1.0F);
  std::int64_t bytes = 0;
  for (const safetensors::TensorInfo& tensor : header.header.tensors()) {
    const bool is_norm = tensor.shape.size() == 1 && tensor.name.ends_with("weight");
    DRAFTMILL_RETURN_IF_ERROR(WriteTensor(tensor, is_norm ? vectors : matrices, *file));
    bytes += tensor.bytes;
  }
  DRAFTMILL_RETURN_IF_ERROR(file->Close());
  DRAFTMILL_RETURN_IF_ERROR(files.WriteAtomically(JoinPath(folder, "config.json"), text));
  return bytes;
}

}  // namespace draftmill

#include "stages/extract/model/random_checkpoint.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/json.h"
#include "formats/safetensors.h"
#include "kernels/bfloat16.h"
#include "stages/extract/model/layer_tensors.h"
#include "stages/extract/model/model_config.h"
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

/// What the parts of a quantised matrix hold: bytes that are numbers of their format, with products as small as plain
/// weights.
struct Contents {
  std::vector<std::byte> matrices;  ///< bfloat16, as the others of plain numbers
  std::vector<std::byte> vectors;
  std::vector<std::byte> codes;  ///< any byte: int4, MXFP4
  std::vector<std::byte> fp8;    ///< any but NaN
  std::vector<std::byte> bf16_scales;
  std::vector<std::byte> fp32_scales;
  std::vector<std::byte> exponents;  ///< MXFP4: 2^-8 .. 2^-6
};

template <typename T>
std::vector<std::byte> BytesOf(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

std::vector<std::byte> RandomBytes(std::uint64_t seed, std::byte (*make)(std::uint64_t random)) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(kTableLength);
  for (std::byte& byte : bytes) byte = make(random());
  return bytes;
}

Contents MakeContents(std::uint64_t seed) {
  Contents contents;
  contents.matrices = BytesOf(RandomTable(seed, 0.0F));
  contents.vectors = BytesOf(RandomTable(seed + 1, 1.0F));
  contents.codes = RandomBytes(seed + 2, [](std::uint64_t random) { return static_cast<std::byte>(random & 0xffU); });
  contents.fp8 = RandomBytes(seed + 3, [](std::uint64_t random) {
    const auto byte = static_cast<std::byte>(random & 0xffU);
    return (byte & std::byte{0x7f}) == std::byte{0x7f} ? std::byte{0} : byte;
  });
  contents.bf16_scales = BytesOf(std::vector<Bf16>(kTableLength, ToBf16(kDeviation / 4)));
  contents.fp32_scales = BytesOf(std::vector<float>(kTableLength, kDeviation / 128));
  contents.exponents =
      RandomBytes(seed + 4, [](std::uint64_t random) { return static_cast<std::byte>(119 + random % 3); });
  return contents;
}

/// A tensor of the checkpoint and the table that fills it.
struct Filling {
  std::vector<std::byte> Contents::*table = nullptr;
  std::vector<std::int32_t> numbers;  ///< instead of a table: the shape of an int4 matrix
};
struct PlannedTensor {
  safetensors::TensorSpec spec;
  Filling filling;
};

PlannedTensor PlanTensor(const std::string& prefix, const StoredTensor& stored,
                         const std::vector<std::int64_t>& matrix) {
  using safetensors::Dtype;
  const auto filled = [&](Dtype dtype, std::vector<std::byte> Contents::*table) {
    return PlannedTensor{{prefix + stored.name, dtype, stored.shape}, {table, {}}};
  };
  switch (stored.role) {
    case TensorRole::kPlain: break;
    case TensorRole::kFp8Values: return filled(Dtype::kF8E4M3, &Contents::fp8);
    case TensorRole::kFp8Scales: return filled(Dtype::kF32, &Contents::fp32_scales);
    case TensorRole::kInt4Values: return filled(Dtype::kI32, &Contents::codes);
    case TensorRole::kInt4Scales: return filled(Dtype::kBf16, &Contents::bf16_scales);
    case TensorRole::kInt4Shape:
      return {{prefix + stored.name, Dtype::kI32, stored.shape},
              {nullptr, {static_cast<std::int32_t>(matrix[0]), static_cast<std::int32_t>(matrix[1])}}};
    case TensorRole::kMxfp4Values: return filled(Dtype::kU8, &Contents::codes);
    case TensorRole::kMxfp4Scales: return filled(Dtype::kU8, &Contents::exponents);
  }
  const bool is_norm = stored.shape.size() == 1 && stored.name.ends_with("weight");
  return filled(Dtype::kBf16, is_norm ? &Contents::vectors : &Contents::matrices);
}

Status WriteTensor(const safetensors::TensorInfo& tensor, const Filling& filling, const Contents& contents,
                   WritableFile& file) {
  if (filling.table == nullptr) return file.WriteAt(tensor.offset, std::as_bytes(std::span(filling.numbers)));
  const std::vector<std::byte>& table = contents.*filling.table;
  const auto width = static_cast<std::size_t>(safetensors::DtypeBits(tensor.dtype) / 8);
  std::size_t at = HashBytes64(tensor.name) % (table.size() / width) * width;
  for (std::int64_t done = 0; done < tensor.bytes;) {
    const std::size_t bytes =
        std::min(table.size() / width * width - at, static_cast<std::size_t>(tensor.bytes - done));
    DRAFTMILL_RETURN_IF_ERROR(file.WriteAt(tensor.offset + done, std::span(table).subspan(at, bytes)));
    done += static_cast<std::int64_t>(bytes);
    at = 0;
  }
  return OkStatus();
}

Result<ModelConfig> ReadConfig(const std::string& text, const std::string& path) {
  DRAFTMILL_ASSIGN_OR_RETURN(const json::Value value, json::Parse(text));
  return ParseModelConfig(value, path);
}

std::vector<PlannedTensor> PlanTensors(const ModelConfig& config) {
  std::vector<PlannedTensor> planned;
  const auto plain = [&](const char* prefix, const char* name, std::vector<std::int64_t> shape) {
    planned.push_back(PlanTensor(prefix, {name, std::move(shape), TensorRole::kPlain}, {}));
  };
  plain("model.", "embed_tokens.weight", {config.vocab_size, config.hidden_size});
  for (std::int64_t layer = 0; layer < config.num_layers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    for (const LayerTensor& tensor : LayerTensors(config, layer)) {
      for (const StoredTensor& stored : StoredTensors(config.quantization, tensor)) {
        planned.push_back(PlanTensor(prefix, stored, tensor.shape));
      }
    }
  }
  plain("model.", "norm.weight", {config.hidden_size});
  if (!config.tied_embeddings) plain("", "lm_head.weight", {config.vocab_size, config.hidden_size});
  return planned;
}

}  // namespace

Result<std::int64_t> WriteRandomCheckpoint(const std::string& config_path, const std::string& folder,
                                           std::uint64_t seed) {
  FileSystem& files = RealFileSystem();
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string text, files.ReadAll(config_path));
  DRAFTMILL_ASSIGN_OR_RETURN(const ModelConfig config, ReadConfig(text, config_path));
  const std::string weights = JoinPath(folder, "model.safetensors");
  if (files.Exists(JoinPath(folder, "config.json")) || files.Exists(weights)) {
    return Conflict(folder + " already holds a model; nothing was written. Name another folder");
  }
  DRAFTMILL_RETURN_IF_ERROR(files.MakeFolder(folder));
  std::vector<safetensors::TensorSpec> specs;
  std::map<std::string, Filling, std::less<>> fillings;
  for (PlannedTensor& tensor : PlanTensors(config)) {
    fillings.emplace(tensor.spec.name, std::move(tensor.filling));
    specs.push_back(std::move(tensor.spec));
  }
  DRAFTMILL_ASSIGN_OR_RETURN(const safetensors::BuiltHeader header,
                             safetensors::BuildHeader(specs, {{"format", "pt"}}));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file,
                             files.OpenForWriting(weights + ".partial", OpenMode::kCreate));
  DRAFTMILL_RETURN_IF_ERROR(file->WriteAt(0, std::as_bytes(std::span(header.bytes))));
  const Contents contents = MakeContents(seed);
  std::int64_t bytes = 0;
  for (const safetensors::TensorInfo& tensor : header.header.tensors()) {
    DRAFTMILL_RETURN_IF_ERROR(WriteTensor(tensor, fillings.find(tensor.name)->second, contents, *file));
    bytes += tensor.bytes;
  }
  DRAFTMILL_RETURN_IF_ERROR(file->Close());
  DRAFTMILL_RETURN_IF_ERROR(files.Rename(weights + ".partial", weights));
  DRAFTMILL_RETURN_IF_ERROR(files.WriteAtomically(JoinPath(folder, "config.json"), text));
  return bytes;
}

}  // namespace draftmill

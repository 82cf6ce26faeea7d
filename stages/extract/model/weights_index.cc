#include "stages/extract/model/weights_index.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <set>
#include <span>
#include <system_error>
#include <utility>

#include "base/json.h"
#include "stages/extract/model/model_family.h"
#include "state/file_system.h"

namespace draftmill {
namespace {

constexpr std::int64_t kMaxIndexBytes = std::int64_t{256} << 20;
constexpr std::size_t kMaxFiles = 100000;
/// How many names one message lists of a kind.
constexpr std::size_t kMaxListed = 1000;
constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr const char* kSingleName = "model.safetensors";

/// Where the body and the head of a checkpoint stand, in the order in which they are tried.
struct NamePrefix {
  std::string_view body;
  std::string_view head;
};
constexpr std::array<NamePrefix, 4> kPrefixes = {{
    {"model.", ""},
    {"", ""},
    {"language_model.model.", "language_model."},
    {"model.language_model.", ""},
}};

Result<Hash128> HashHeader(ReadableFile& file, const std::string& path, std::int64_t header_bytes) {
  StreamingHash hash;
  std::vector<std::byte> buffer(std::size_t{1} << 20);
  for (std::int64_t offset = 0; offset < header_bytes;) {
    const std::size_t want = std::min(buffer.size(), static_cast<std::size_t>(header_bytes - offset));
    DRAFTMILL_ASSIGN_OR_RETURN(const std::size_t got, file.ReadAt(offset, std::span(buffer).first(want)));
    if (got != want) return InvalidInput(path + ": the file shrank while its header was read");
    hash.Update(std::span<const std::byte>(buffer).first(got));
    offset += static_cast<std::int64_t>(got);
  }
  return hash.Digest128();
}

struct FileHeader {
  WeightsFile file;
  safetensors::Header header;
};

Result<FileHeader> ReadFileHeader(const std::string& model_folder, const std::string& name) {
  const std::string path = JoinPath(model_folder, name);
  DRAFTMILL_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file, RealFileSystem().OpenForReading(path));
  DRAFTMILL_ASSIGN_OR_RETURN(safetensors::Header header, safetensors::ReadHeader(*file, path));
  DRAFTMILL_ASSIGN_OR_RETURN(const Hash128 hash, HashHeader(*file, path, header.data_start()));
  const std::int64_t size = header.file_bytes();
  return FileHeader{{name, size, hash}, std::move(header)};
}

/// tensor name -> file name, as the index says.
using WeightMap = std::map<std::string, std::string, std::less<>>;

Result<WeightMap> ReadWeightMap(const std::string& path) {
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string text, RealFileSystem().ReadAll(path, kMaxIndexBytes));
  json::ParseLimits limits;
  limits.max_depth = 16;
  Result<json::Value> index = json::Parse(text, limits);
  if (!index.ok()) return index.status().WithContext(path);
  const json::Value* map = index.value().Find("weight_map");
  if (map == nullptr || !map->is_object() || map->as_object().empty()) {
    return InvalidInput(path + ": weight_map must be an object from tensor names to file names");
  }
  WeightMap weights;
  for (const json::Member& member : map->as_object()) {
    if (!member.second.is_string()) return InvalidInput(path + ": weight_map." + member.first + " must be a file name");
    const std::string& file = member.second.as_string();
    if (file.empty() || file.find('/') != std::string::npos || file.find('\0') != std::string::npos) {
      return InvalidInput(path + ": weight_map." + member.first + " must name a file of the same folder, not \"" +
                          file + "\"");
    }
    weights.emplace(member.first, file);
  }
  return weights;
}

std::set<std::string> FilesOf(const WeightMap& weight_map) {
  std::set<std::string> names;
  for (const auto& [tensor, file] : weight_map) names.insert(file);
  return names;
}

/// Names of the safetensors files that the index leaves out.
Result<std::vector<std::string>> FilesBeside(const std::string& model_folder, const std::set<std::string>& named) {
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<FileInfo> entries, RealFileSystem().List(model_folder));
  std::vector<std::string> beside;
  for (const FileInfo& entry : entries) {
    if (entry.name.ends_with(".safetensors") && !named.contains(entry.name)) beside.push_back(entry.name);
  }
  return beside;
}

/// Folders of a download cache hold links; one whose file has not come yet would else count as absent.
Status RefuseBrokenLink(const std::string& path) {
  std::error_code ignored;
  if (RealFileSystem().Exists(path) || !std::filesystem::is_symlink(path, ignored)) return OkStatus();
  return NotFound(path +
                  ": is a link to a file that is not there; the download is unfinished, or the file was removed");
}

/// What a folder without the expected files holds instead, for a message.
std::string OtherWeights(const std::string& model_folder) {
  constexpr std::size_t kMaxNamed = 5;
  const Result<std::vector<FileInfo>> entries = RealFileSystem().List(model_folder);
  if (!entries.ok()) return "";
  std::vector<std::string> names;
  for (const FileInfo& entry : *entries) {
    for (const std::string_view ending : {".safetensors", ".bin", ".gguf", ".pth", ".pt", ".incomplete", ".part"}) {
      if (entry.name.ends_with(ending)) names.push_back(entry.name);
    }
  }
  if (names.empty()) return "";
  std::sort(names.begin(), names.end());
  std::string list;
  for (std::size_t i = 0; i < std::min(names.size(), kMaxNamed); ++i) list += (i > 0 ? ", " : "") + names[i];
  return " (there is " + list + (names.size() > kMaxNamed ? ", ..." : "") + ")";
}

Status AddFile(FileHeader read, const WeightMap* weight_map, WeightsIndex& index) {
  const auto file = static_cast<std::int32_t>(index.files.size());
  for (const safetensors::TensorInfo& tensor : read.header.tensors()) {
    if (weight_map != nullptr) {
      const auto named = weight_map->find(tensor.name);
      if (named != weight_map->end() && named->second != read.file.name) {
        index.notes.push_back(read.file.name + " holds a second copy of " + tensor.name +
                              "; the index takes the one in " + named->second);
        continue;
      }
    }
    const auto added = index.tensors.emplace(tensor.name, TensorPlace{file, tensor});
    if (!added.second) {
      return InvalidInput(JoinPath(index.model_folder, read.file.name) + ": holds " + tensor.name +
                          ", which the index does not name and another file holds too");
    }
  }
  index.files.push_back(std::move(read.file));
  return OkStatus();
}

Result<WeightsIndex> OpenSharded(const std::string& model_folder, const std::string& index_path) {
  DRAFTMILL_ASSIGN_OR_RETURN(const WeightMap weight_map, ReadWeightMap(index_path));
  const std::set<std::string> names = FilesOf(weight_map);
  if (names.size() > kMaxFiles)
    return InvalidInput(index_path + ": names more than " + std::to_string(kMaxFiles) + " files");
  WeightsIndex index;
  index.model_folder = model_folder;
  for (const std::string& name : names) {
    Result<FileHeader> read = ReadFileHeader(model_folder, name);
    if (!read.ok()) return read.status().WithContext(index_path + " names " + name);
    DRAFTMILL_RETURN_IF_ERROR(AddFile(std::move(read).value(), &weight_map, index));
  }
  for (const auto& [tensor, file] : weight_map) {
    if (!index.tensors.contains(tensor))
      return InvalidInput(index_path + ": says that " + file + " holds " + tensor + ", but it does not");
  }
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<std::string> beside, FilesBeside(model_folder, names));
  for (const std::string& name : beside) index.notes.push_back(name + " lies beside the indexed files and is ignored");
  return index;
}

std::string ListNames(const std::vector<std::string>& names) {
  std::string list;
  for (std::size_t i = 0; i < std::min(names.size(), kMaxListed); ++i) list += "\n  " + names[i];
  if (names.size() > kMaxListed) list += "\n  and " + std::to_string(names.size() - kMaxListed) + " more";
  return list;
}

std::string ShapeText(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

/// The element types that a tensor of a role may have, in the order in which messages name them.
std::span<const safetensors::Dtype> TypesOf(TensorRole role) {
  using safetensors::Dtype;
  static constexpr std::array kPlain = {Dtype::kBf16, Dtype::kF16, Dtype::kF32};
  static constexpr std::array kFp8 = {Dtype::kF8E4M3};
  static constexpr std::array kWords = {Dtype::kI32};
  static constexpr std::array kShapes = {Dtype::kI64, Dtype::kI32};
  static constexpr std::array kBytes = {Dtype::kU8};
  switch (role) {
    case TensorRole::kPlain:
    case TensorRole::kFp8Scales:
    case TensorRole::kInt4Scales: return kPlain;
    case TensorRole::kFp8Values: return kFp8;
    case TensorRole::kInt4Values: return kWords;
    case TensorRole::kInt4Shape: return kShapes;
    case TensorRole::kMxfp4Values:
    case TensorRole::kMxfp4Scales: return kBytes;
  }
  return kPlain;
}

std::string TypeNames(TensorRole role) {
  const auto types = TypesOf(role);
  std::string names;
  for (std::size_t i = 0; i < types.size(); ++i) {
    names += (i == 0 ? "" : i + 1 == types.size() ? " or " : ", ") + std::string(safetensors::DtypeName(types[i]));
  }
  return names;
}

bool HasTypeOf(TensorRole role, safetensors::Dtype dtype) {
  const auto types = TypesOf(role);
  return std::find(types.begin(), types.end(), dtype) != types.end();
}

ScaleType ScaleTypeOf(safetensors::Dtype dtype) {
  if (dtype == safetensors::Dtype::kF16) return ScaleType::kFloat16;
  return dtype == safetensors::Dtype::kF32 ? ScaleType::kFloat32 : ScaleType::kBfloat16;
}

NamePrefix FindPrefix(const WeightsIndex& index) {
  for (const NamePrefix& prefix : kPrefixes) {
    if (index.tensors.contains(std::string(prefix.body) + "embed_tokens.weight")) return prefix;
  }
  return kPrefixes[0];
}

/// The four lists that one message shows.
struct Mismatches {
  std::vector<std::string> missing;
  std::vector<std::string> surplus;
  std::vector<std::string> misshapen;

  Status AsStatus(const std::string& model_folder) const {
    if (missing.empty() && surplus.empty() && misshapen.empty()) return OkStatus();
    std::string message = model_folder + ": the weights are not those of the model that config.json describes";
    if (!missing.empty()) message += "\nmissing (" + std::to_string(missing.size()) + "):" + ListNames(missing);
    if (!misshapen.empty())
      message += "\nof another shape or type (" + std::to_string(misshapen.size()) + "):" + ListNames(misshapen);
    if (!surplus.empty()) message += "\nsurplus (" + std::to_string(surplus.size()) + "):" + ListNames(surplus);
    return InvalidInput(message +
                        "\nNothing was loaded. Check that config.json and the safetensors files belong together.");
  }
};

}  // namespace

Result<WeightsIndex> OpenWeightsIndex(const std::string& model_folder) {
  const std::string index_path = JoinPath(model_folder, kIndexName);
  if (RealFileSystem().Exists(index_path)) return OpenSharded(model_folder, index_path);
  for (const char* const name : {kIndexName, kSingleName}) {
    DRAFTMILL_RETURN_IF_ERROR(RefuseBrokenLink(JoinPath(model_folder, name)));
  }
  if (!RealFileSystem().Exists(JoinPath(model_folder, kSingleName))) {
    return NotFound(model_folder + ": holds neither " + kSingleName + " nor " + kIndexName +
                    OtherWeights(model_folder) +
                    "; draftmill reads safetensors checkpoints only. Name a folder that holds one in model.path");
  }
  WeightsIndex index;
  index.model_folder = model_folder;
  DRAFTMILL_ASSIGN_OR_RETURN(FileHeader read, ReadFileHeader(model_folder, kSingleName));
  DRAFTMILL_RETURN_IF_ERROR(AddFile(std::move(read), nullptr, index));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<std::string> beside, FilesBeside(model_folder, {kSingleName}));
  for (const std::string& name : beside)
    index.notes.push_back(name + " lies beside " + kSingleName + " and is ignored");
  return index;
}

const TensorPlace& CheckpointTensors::Get(std::string_view name) const {
  const auto place = places_.find(name);
  DRAFTMILL_CHECK(place != places_.end(), "no such tensor in the family's list: " + std::string(name));
  return place->second;
}

Result<WeightsIndex> OpenIndexNames(const std::string& model_folder) {
  DRAFTMILL_ASSIGN_OR_RETURN(const WeightMap weight_map, ReadWeightMap(JoinPath(model_folder, kIndexName)));
  WeightsIndex index;
  index.model_folder = model_folder;
  std::map<std::string, std::int32_t, std::less<>> numbers;
  for (const std::string& name : FilesOf(weight_map)) {
    numbers.emplace(name, static_cast<std::int32_t>(index.files.size()));
    index.files.push_back({name, 0, {}});
  }
  for (const auto& [tensor, file] : weight_map) {
    TensorPlace place;
    place.file = numbers.at(file);
    place.info.name = tensor;
    index.tensors.emplace(tensor, std::move(place));
  }
  return index;
}

Result<CheckpointTensors> MatchTensors(const WeightsIndex& index, const ModelConfig& config, MatchMode mode) {
  const NamePrefix prefix = FindPrefix(index);
  CheckpointTensors matched;
  matched.prefix_ = prefix.body;
  Mismatches mismatches;
  std::set<std::string, std::less<>> used;
  const safetensors::TensorInfo* first_scale = nullptr;
  for (const ExpectedTensor& expected : ExpectedTensors(config)) {
    const bool is_head = expected.name.starts_with("lm_head.");
    const std::string stored = std::string(is_head ? prefix.head : prefix.body) + expected.name;
    const auto found = index.tensors.find(stored);
    if (found == index.tensors.end()) {
      if (expected.required) mismatches.missing.push_back(stored + " " + ShapeText(expected.shape));
      continue;
    }
    used.insert(stored);
    const safetensors::TensorInfo& info = found->second.info;
    const bool fits = info.shape == expected.shape && HasTypeOf(expected.role, info.dtype);
    if (mode == MatchMode::kWhole && !fits) {
      mismatches.misshapen.push_back(stored + ": " + safetensors::DescribeTensor(info) +
                                     ", needed: " + TypeNames(expected.role) + " " + ShapeText(expected.shape));
      continue;
    }
    if (mode == MatchMode::kWhole && expected.role == TensorRole::kInt4Scales) {
      const ScaleType type = ScaleTypeOf(info.dtype);
      if (first_scale == nullptr) matched.scale_type_ = type;
      if (first_scale == nullptr) first_scale = &found->second.info;
      if (type != matched.scale_type_) {
        mismatches.misshapen.push_back(stored + ": " + safetensors::DescribeTensor(info) +
                                       ", needed: " + std::string(safetensors::DtypeName(first_scale->dtype)) + " as " +
                                       first_scale->name);
        continue;
      }
    }
    matched.total_bytes_ += info.bytes;
    matched.places_.emplace(expected.name, found->second);
  }
  for (const auto& [name, place] : index.tensors) {
    if (used.contains(name)) continue;
    if (IsIgnoredTensor(config, prefix.body, name)) {
      ++matched.ignored_;
    } else {
      mismatches.surplus.push_back(name + " (" + index.files[static_cast<std::size_t>(place.file)].name + ")");
    }
  }
  DRAFTMILL_RETURN_IF_ERROR(mismatches.AsStatus(index.model_folder));
  return matched;
}

}  // namespace draftmill

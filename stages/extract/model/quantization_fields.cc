#include "stages/extract/model/quantization_fields.h"

#include <cstdint>
#include <string_view>
#include <vector>

#include "stages/extract/model/config_fields.h"
#include "state/file_system.h"

namespace draftmill {
namespace {

constexpr std::int64_t kMaxSideFileBytes = std::int64_t{16} << 20;
constexpr std::int64_t kMaxBlock = 65536;

Status RefuseMethod(const std::string& path, const std::string& what) {
  return Unsupported(path + ": " + what +
                     ": quantised checkpoints of this form are not supported (known: fp8 in blocks, "
                     "compressed-tensors pack-quantized int4, mxfp4 of gpt-oss); use the unquantised weights");
}

/// A list of names; anything else in it is malformed.
std::vector<std::string> Names(ConfigFields& fields, std::string_view name) {
  std::vector<std::string> names;
  const json::Value* list = fields.Find(name);
  if (list == nullptr) return names;
  if (!list->is_array()) {
    fields.FailInput(std::string(name) + " must be a list of names");
    return names;
  }
  for (const json::Value& value : list->as_array()) {
    if (!value.is_string()) {
      fields.FailInput(std::string(name) + " must be a list of names");
      return names;
    }
    names.push_back(value.as_string());
  }
  return names;
}

Result<Quantization> ReadFp8(ConfigFields& fields) {
  Quantization read;
  read.method = QuantizationMethod::kBlockFp8;
  if (fields.Find("weight_block_size") == nullptr) return RefuseMethod(fields.path(), "fp8 without weight_block_size");
  if (const std::string format = fields.TextOr("fmt", "e4m3"); format != "e4m3") {
    return RefuseMethod(fields.path(), "fp8 of the format " + format);
  }
  if (const std::string scheme = fields.TextOr("activation_scheme", "dynamic"); scheme != "dynamic") {
    return RefuseMethod(fields.path(), "fp8 with the activation scheme " + scheme);
  }
  const std::vector<std::int64_t> block = fields.Integers("weight_block_size", 1, kMaxBlock);
  if (fields.status().ok() && block.size() != 2) fields.FailInput("weight_block_size must hold two numbers");
  DRAFTMILL_RETURN_IF_ERROR(fields.status());
  read.block_rows = block[0];
  read.block_columns = block[1];
  read.not_quantised = Names(fields, "modules_to_not_convert");
  DRAFTMILL_RETURN_IF_ERROR(fields.status());
  return read;
}

/// "weight" and "static" say in which order the columns were rounded; groups stay where they are, and g_idx is not stored.
bool KeepsGroupOrder(const ConfigFields& fields) {
  const json::Value* order = fields.Find("actorder");
  if (order == nullptr || (order->is_bool() && !order->as_bool())) return true;
  return order->is_string() && (order->as_string() == "weight" || order->as_string() == "static");
}

/// One entry of config_groups: what "weights" says there.
Status ReadGroup(const json::Value& group, const std::string& path, Quantization& read) {
  const json::Value* weights = group.Find("weights");
  if (weights == nullptr || !weights->is_object()) return RefuseMethod(path, "compressed-tensors without weights");
  for (const std::string_view name : {"input_activations", "output_activations"}) {
    const json::Value* activations = group.Find(name);
    if (activations != nullptr && !activations->is_null())
      return RefuseMethod(path, "compressed-tensors with " + std::string(name) + " (rounded while the model runs)");
  }
  ConfigFields fields(*weights, path + ": weights");
  const std::int64_t bits = fields.Integer("num_bits", 1, 64);
  const std::string type = fields.TextOr("type", "int");
  const std::string strategy = fields.TextOr("strategy", "group");
  if (fields.status().ok() && (bits != 4 || type != "int")) {
    return RefuseMethod(path, "compressed-tensors with weights of " + std::to_string(bits) + " bits, type " + type);
  }
  if (!fields.BoolOr("symmetric", true))
    return RefuseMethod(path, "compressed-tensors with zero points (symmetric: false)");
  if (strategy != "group") return RefuseMethod(path, "compressed-tensors with the strategy " + strategy);
  if (!KeepsGroupOrder(fields)) return RefuseMethod(path, "compressed-tensors with actorder that regroups columns");
  const std::int64_t columns = fields.Integer("group_size", 1, kMaxBlock);
  DRAFTMILL_RETURN_IF_ERROR(fields.status());
  if (read.block_columns != 0 && read.block_columns != columns) {
    return RefuseMethod(path, "compressed-tensors with groups of several sizes");
  }
  const json::Value* targets = group.Find("targets");
  const bool all_linear = targets != nullptr && targets->is_array() && targets->as_array().size() == 1 &&
                          targets->as_array()[0].is_string() && targets->as_array()[0].as_string() == "Linear";
  if (!all_linear) return RefuseMethod(path, "compressed-tensors with targets other than Linear");
  read.block_columns = columns;
  return OkStatus();
}

Result<Quantization> ReadCompressedTensors(ConfigFields& fields) {
  Quantization read;
  read.method = QuantizationMethod::kPackedInt4;
  read.block_rows = 1;
  const std::string format = fields.TextOr("format", "");
  if (format != "pack-quantized") {
    return RefuseMethod(fields.path(), "compressed-tensors of the format " + (format.empty() ? "(unnamed)" : format));
  }
  if (const json::Value* sparsity = fields.Find("sparsity_config"); sparsity != nullptr && sparsity->is_object()) {
    const std::string kind = ConfigFields(*sparsity, fields.path()).TextOr("format", "dense");
    if (kind != "dense") return RefuseMethod(fields.path(), "compressed-tensors with the sparsity_config " + kind);
  }
  const json::Value* groups = fields.Find("config_groups");
  if (groups == nullptr || !groups->is_object() || groups->as_object().empty()) {
    return InvalidInput(fields.path() + ": config_groups must be an object with at least one group");
  }
  for (const auto& [name, group] : groups->as_object()) {
    if (!group.is_object()) return InvalidInput(fields.path() + ": config_groups." + name + " must be an object");
    DRAFTMILL_RETURN_IF_ERROR(ReadGroup(group, fields.path() + ": config_groups." + name, read));
  }
  read.not_quantised = Names(fields, "ignore");
  DRAFTMILL_RETURN_IF_ERROR(fields.status());
  return read;
}

Result<Quantization> ReadMxfp4(ConfigFields& fields) {
  Quantization read;
  read.method = QuantizationMethod::kMxfp4;
  read.block_rows = 1;
  read.block_columns = 32;
  read.not_quantised = Names(fields, "modules_to_not_convert");
  DRAFTMILL_RETURN_IF_ERROR(fields.status());
  return read;
}

}  // namespace

const char* QuantizationName(QuantizationMethod method) {
  switch (method) {
    case QuantizationMethod::kNone: return "none";
    case QuantizationMethod::kBlockFp8: return "fp8";
    case QuantizationMethod::kPackedInt4: return "compressed-tensors";
    case QuantizationMethod::kMxfp4: return "mxfp4";
  }
  return "unknown";
}

Result<Quantization> ReadQuantization(const json::Value& config, const std::string& path) {
  for (const std::string_view key : {"quantization_config", "quantization", "compression_config"}) {
    const json::Value* section = config.Find(key);
    if (section == nullptr || section->is_null()) continue;
    const std::string where = path + ": " + std::string(key);
    if (!section->is_object()) return InvalidInput(where + " must be an object");
    ConfigFields fields(*section, where);
    const std::string method = fields.TextOr("quant_method", "");
    DRAFTMILL_RETURN_IF_ERROR(fields.status());
    if (method == "fp8") return ReadFp8(fields);
    if (method == "compressed-tensors") return ReadCompressedTensors(fields);
    if (method == "mxfp4") return ReadMxfp4(fields);
    return RefuseMethod(where, method.empty() ? "without quant_method" : method);
  }
  return Quantization{};
}

Status RefuseQuantizationBeside(const std::string& model_folder, const Quantization& quantization) {
  if (quantization.method != QuantizationMethod::kNone) return OkStatus();
  for (const std::string_view name : {"hf_quant_config.json", "quantize_config.json", "quant_config.json"}) {
    const std::string path = JoinPath(model_folder, name);
    if (!RealFileSystem().Exists(path)) continue;
    DRAFTMILL_ASSIGN_OR_RETURN(const std::string text, RealFileSystem().ReadAll(path, kMaxSideFileBytes));
    const Result<json::Value> content = json::Parse(text);
    if (!content.ok()) return content.status().WithContext(path);
    const json::Value* section = content->Find("quantization");
    const json::Value* algorithm = section == nullptr ? nullptr : section->Find("quant_algo");
    const std::string what = algorithm != nullptr && algorithm->is_string() ? algorithm->as_string() : "unnamed method";
    return Unsupported(
        path + ": says that the weights are quantised (" + what +
        "), which config.json does not mention; this form is not supported, use the unquantised weights");
  }
  return OkStatus();
}

}  // namespace draftmill

// Small random checkpoints for tests, of any family and quantisation, written without any library of others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/json.h"
#include "formats/safetensors.h"
#include "kernels/bfloat16.h"
#include "stages/extract/model/model_family.h"

namespace draftmill {

/// A model folder in a temporary place, removed with its owner.
class TestCheckpoint {
 public:
  explicit TestCheckpoint(json::Value config) : config_(std::move(config)) {
    std::string pattern = (std::filesystem::temp_directory_path() / "draftmill-checkpoint-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    std::ofstream(folder_ + "/config.json") << json::Write(config_);
    WriteWeights([](const std::string&, std::vector<Bf16>&) {});
  }
  ~TestCheckpoint() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  TestCheckpoint(const TestCheckpoint&) = delete;
  TestCheckpoint& operator=(const TestCheckpoint&) = delete;

  /// Writes model.safetensors anew, the same values each time; `change` may alter each tensor of plain numbers.
  void WriteWeights(const std::function<void(const std::string& name, std::vector<Bf16>& values)>& change) const {
    const ModelConfig config = ParseModelConfig(config_, "config.json").value();
    std::mt19937 random(7);
    json::Object header;
    std::string data;
    for (const ExpectedTensor& tensor : ExpectedTensors(config)) {
      if (!tensor.required) continue;
      const std::string name = (tensor.name.starts_with("lm_head") ? "" : "model.") + tensor.name;
      json::Array shape;
      for (const std::int64_t extent : tensor.shape) shape.emplace_back(extent);
      const auto begin = static_cast<std::int64_t>(data.size());
      const char* const dtype = AppendTensor(config, tensor, name, change, random, data);
      header.emplace_back(name,
                          json::Object{{"dtype", dtype},
                                       {"shape", shape},
                                       {"data_offsets", json::Array{begin, static_cast<std::int64_t>(data.size())}}});
    }
    const std::string text = json::Write(json::Value(header));
    std::ofstream file(folder_ + "/model.safetensors", std::ios::binary);
    for (int i = 0; i < 8; ++i) file.put(static_cast<char>((text.size() >> (8 * i)) & 0xff));
    file << text << data;
  }

  const std::string& folder() const { return folder_; }

 private:
  static std::size_t Count(const ExpectedTensor& tensor) {
    std::int64_t count = 1;
    for (const std::int64_t extent : tensor.shape) count *= extent;
    return static_cast<std::size_t>(count);
  }

  /// Appends a tensor's bytes and returns its element type.
  static const char* AppendTensor(const ModelConfig& config, const ExpectedTensor& tensor, const std::string& name,
                                  const std::function<void(const std::string& name, std::vector<Bf16>& values)>& change,
                                  std::mt19937& random, std::string& data) {
    switch (tensor.role) {
      case TensorRole::kPlain: break;
      case TensorRole::kFp8Values: return AppendBytes(Count(tensor), 0xf7, random, data), "F8_E4M3";
      case TensorRole::kInt4Values: return AppendBytes(4 * Count(tensor), 0xff, random, data), "I32";
      case TensorRole::kMxfp4Values: return AppendBytes(Count(tensor), 0xff, random, data), "U8";
      case TensorRole::kInt4Shape: return AppendShape(config, tensor, data), "I64";
      case TensorRole::kMxfp4Scales:
        for (std::size_t i = 0; i < Count(tensor); ++i) data += static_cast<char>(118 + random() % 6);
        return "U8";
      case TensorRole::kFp8Scales:
        for (std::size_t i = 0; i < Count(tensor); ++i)
          AppendFloat(0.001F * static_cast<float>(1 + random() % 9), data);
        return "F32";
      case TensorRole::kInt4Scales:
        for (std::size_t i = 0; i < Count(tensor); ++i)
          AppendBf16(ToBf16(0.01F * static_cast<float>(1 + random() % 9)), data);
        return "BF16";
    }
    std::normal_distribution<float> normal(0.0F, 0.1F);
    std::vector<Bf16> values(Count(tensor));
    const bool centred = tensor.shape.size() > 1 || tensor.name.ends_with("bias") || tensor.name.ends_with("sinks");
    for (Bf16& value : values) value = ToBf16((centred || config.norm_one_plus ? 0.0F : 1.0F) + normal(random));
    change(name, values);
    const bool in_float32 = tensor.name.ends_with("e_score_correction_bias");
    for (const Bf16 value : values) {
      if (in_float32) {
        AppendFloat(7.0F + ToFloat(value) / 64, data);
      } else {
        AppendBf16(value, data);
      }
    }
    return in_float32 ? "F32" : "BF16";
  }

  static void AppendBytes(std::size_t count, unsigned mask, std::mt19937& random, std::string& data) {
    for (std::size_t i = 0; i < count; ++i) data += static_cast<char>(random() & mask);
  }
  static void AppendBf16(Bf16 value, std::string& data) {
    data += static_cast<char>(value.bits & 0xff);
    data += static_cast<char>(value.bits >> 8);
  }
  static void AppendFloat(float value, std::string& data) {
    data.append(reinterpret_cast<const char*>(&value), sizeof value);
  }

  /// weight_shape of a packed matrix: what its name says of the model.
  static void AppendShape(const ModelConfig& config, const ExpectedTensor& tensor, std::string& data) {
    const std::string suffix = "_shape";
    const std::string plain = tensor.name.substr(0, tensor.name.size() - suffix.size());
    for (std::int64_t layer = 0; layer < config.num_layers; ++layer) {
      for (const LayerTensor& of_layer : LayerTensors(config, layer)) {
        if ("layers." + std::to_string(layer) + "." + of_layer.name != plain) continue;
        for (const std::int64_t extent : of_layer.shape)
          data.append(reinterpret_cast<const char*>(&extent), sizeof extent);
      }
    }
  }

  json::Value config_;
  std::string folder_;
};

/// A checkpoint of any size that takes no space on the disk: a header, then a hole. Unquantised families only.
class HollowCheckpoint {
 public:
  explicit HollowCheckpoint(const json::Value& config_json) {
    std::string pattern = (std::filesystem::temp_directory_path() / "draftmill-hollow-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    std::ofstream(folder_ + "/config.json") << json::Write(config_json);
    std::vector<safetensors::TensorSpec> tensors;
    for (const ExpectedTensor& tensor : ExpectedTensors(ParseModelConfig(config_json, "config.json").value())) {
      if (!tensor.required) continue;
      const std::string name = (tensor.name.starts_with("lm_head") ? "" : "model.") + tensor.name;
      tensors.push_back({name, safetensors::Dtype::kBf16, tensor.shape});
    }
    const safetensors::BuiltHeader header = safetensors::BuildHeader(tensors, {}).value();
    std::ofstream(path(), std::ios::binary) << header.bytes;
    std::filesystem::resize_file(path(), static_cast<std::size_t>(header.header.file_bytes()));
    data_start_ = header.header.data_start();
    file_bytes_ = header.header.file_bytes();
  }
  ~HollowCheckpoint() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  HollowCheckpoint(const HollowCheckpoint&) = delete;
  HollowCheckpoint& operator=(const HollowCheckpoint&) = delete;

  const std::string& folder() const { return folder_; }
  std::string path() const { return folder_ + "/model.safetensors"; }
  std::int64_t data_start() const { return data_start_; }
  std::int64_t file_bytes() const { return file_bytes_; }

 private:
  std::string folder_;
  std::int64_t data_start_ = 0;
  std::int64_t file_bytes_ = 0;
};

}  // namespace draftmill

// Small random checkpoints for tests, written without any library of others.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "kernels/bfloat16.h"
#include "stages/extract/model_family.h"

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

  /// Writes model.safetensors anew, the same values each time; `change` may alter each tensor.
  void WriteWeights(const std::function<void(const std::string& name, std::vector<Bf16>& values)>& change) const {
    const ModelConfig config = ParseModelConfig(config_, "config.json").value();
    std::mt19937 random(7);
    std::normal_distribution<float> normal(0.0F, 0.1F);
    json::Object header;
    std::string data;
    for (const ExpectedTensor& tensor : ExpectedTensors(config)) {
      if (!tensor.required) continue;
      const std::string name = (tensor.name.starts_with("lm_head") ? "" : "model.") + tensor.name;
      std::int64_t count = 1;
      json::Array shape;
      for (const std::int64_t extent : tensor.shape) {
        count *= extent;
        shape.emplace_back(extent);
      }
      std::vector<Bf16> values(static_cast<std::size_t>(count));
      const float mean = tensor.shape.size() == 1 && !tensor.name.ends_with("bias") ? 1.0F : 0.0F;
      for (Bf16& value : values) value = ToBf16(mean + normal(random));
      change(name, values);
      const auto begin = static_cast<std::int64_t>(data.size());
      for (const Bf16 value : values) {
        data += static_cast<char>(value.bits & 0xff);
        data += static_cast<char>(value.bits >> 8);
      }
      header.emplace_back(name, json::Object{{"dtype", "BF16"}, {"shape", shape},
                                             {"data_offsets", json::Array{begin, static_cast<std::int64_t>(data.size())}}});
    }
    const std::string text = json::Write(json::Value(header));
    std::ofstream file(folder_ + "/model.safetensors", std::ios::binary);
    for (int i = 0; i < 8; ++i) file.put(static_cast<char>((text.size() >> (8 * i)) & 0xff));
    file << text << data;
  }

  const std::string& folder() const { return folder_; }

 private:
  json::Value config_;
  std::string folder_;
};

}  // namespace draftmill

#include "stages/extract/weights_index.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "base/test_data.h"
#include "stages/extract/extractor.h"
#include "stages/extract/model_family.h"
#include "state/file_system.h"

namespace draftmill {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kConfig = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8,
  "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
  "rms_norm_eps": 1e-5, "vocab_size": 10, "max_position_embeddings": 64, "tie_word_embeddings": true})";

/// A model folder in a temporary place, built tensor by tensor.
class WeightsIndexTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = std::filesystem::temp_directory_path() / "draftmill-weights-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    Write("config.json", kConfig);
    config_ = ParseModelConfig(json::Parse(kConfig).value(), "config.json").value();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& name, const std::string& content) {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << content;
  }

  /// A BF16 safetensors file of zeros; `cut` bytes are missing at its end.
  void WriteTensors(const std::string& name, const std::vector<ExpectedTensor>& tensors, std::size_t cut = 0) {
    json::Object header;
    std::int64_t offset = 0;
    for (const ExpectedTensor& tensor : tensors) {
      std::int64_t bytes = 2;
      json::Array shape;
      for (const std::int64_t extent : tensor.shape) {
        bytes *= extent;
        shape.emplace_back(extent);
      }
      header.emplace_back(tensor.name, json::Object{{"dtype", "BF16"}, {"shape", shape},
                                                    {"data_offsets", json::Array{offset, offset + bytes}}});
      offset += bytes;
    }
    const std::string text = json::Write(json::Value(header));
    std::string content;
    for (int i = 0; i < 8; ++i) content += static_cast<char>((text.size() >> (8 * i)) & 0xff);
    content += text + std::string(static_cast<std::size_t>(offset), '\0');
    Write(name, content.substr(0, content.size() - cut));
  }

  /// The model's tensors under a prefix, without the optional head.
  std::vector<ExpectedTensor> Tensors(const std::string& prefix = "model.") const {
    std::vector<ExpectedTensor> tensors;
    for (ExpectedTensor tensor : ExpectedTensors(config_)) {
      if (!tensor.required) continue;
      tensor.name = prefix + tensor.name;
      tensors.push_back(tensor);
    }
    return tensors;
  }

  Status Describe() const { return DescribeModel(folder_, {1}).status(); }
  std::string Refusal() const { return Describe().message(); }

  std::string folder_;
  ModelConfig config_;
};

TEST_F(WeightsIndexTest, AcceptsEveryKnownPrefix) {
  for (const std::string prefix : {"model.", "", "language_model.model.", "model.language_model."}) {
    WriteTensors("model.safetensors", Tensors(prefix));
    EXPECT_TRUE(Describe().ok()) << prefix << Describe().ToString();
  }
}

TEST_F(WeightsIndexTest, ListsEveryMissingSurplusAndMisshapenTensor) {
  auto tensors = Tensors();
  tensors.erase(tensors.begin() + 1, tensors.begin() + 3);
  tensors.back().shape = {9};
  tensors.push_back({"model.layers.0.extra.weight", {3}});
  WriteTensors("model.safetensors", tensors);
  const std::string message = Refusal();
  EXPECT_THAT(message, HasSubstr("model.layers.0.input_layernorm.weight"));
  EXPECT_THAT(message, HasSubstr("model.layers.0.self_attn.q_proj.weight"));
  EXPECT_THAT(message, HasSubstr("model.norm.weight: BF16 [9]"));
  EXPECT_THAT(message, HasSubstr("model.layers.0.extra.weight"));
  EXPECT_THAT(message, Not(HasSubstr("k_proj")));
}

TEST_F(WeightsIndexTest, RefusesATruncatedFile) {
  WriteTensors("model.safetensors", Tensors(), 7);
  EXPECT_THAT(Refusal(), HasSubstr("model.safetensors"));
  EXPECT_FALSE(Describe().ok());
}

TEST_F(WeightsIndexTest, RefusesAHeaderOf2To60Bytes) {
  Write("model.safetensors", std::string("\0\0\0\0\0\0\0\x10{}", 10));
  EXPECT_THAT(Refusal(), HasSubstr("model.safetensors"));
  EXPECT_FALSE(Describe().ok());
}

TEST_F(WeightsIndexTest, RefusesAnIndexThatNamesAnAbsentFile) {
  Write("model.safetensors.index.json", R"({"weight_map": {"model.norm.weight": "gone.safetensors"}})");
  EXPECT_THAT(Refusal(), HasSubstr("gone.safetensors"));
  EXPECT_FALSE(Describe().ok());
}

TEST_F(WeightsIndexTest, RefusesAnIndexThatLeavesTheFolder) {
  Write("model.safetensors.index.json", R"({"weight_map": {"model.norm.weight": "../other.safetensors"}})");
  EXPECT_THAT(Refusal(), HasSubstr("../other.safetensors"));
}

TEST_F(WeightsIndexTest, TheIndexDecidesBetweenTwoCopies) {
  auto tensors = Tensors();
  const std::vector<ExpectedTensor> second{tensors.back()};
  WriteTensors("a.safetensors", tensors);
  WriteTensors("b.safetensors", second);
  json::Object map;
  for (const auto& tensor : tensors) map.emplace_back(tensor.name, "a.safetensors");
  map.back().second = "b.safetensors";
  Write("model.safetensors.index.json", json::Write(json::Value(json::Object{{"weight_map", map}})));
  const auto index = OpenWeightsIndex(folder_);
  ASSERT_TRUE(index.ok()) << index.status().ToString();
  const auto matched = MatchTensors(*index, config_);
  ASSERT_TRUE(matched.ok()) << matched.status().ToString();
  EXPECT_EQ(index->files[static_cast<std::size_t>(matched->Get("norm.weight").file)].name, "b.safetensors");
  EXPECT_EQ(index->notes.size(), 1U);
}

TEST_F(WeightsIndexTest, RefusesAFolderWithoutSafetensors) {
  EXPECT_THAT(Refusal(), HasSubstr("model.safetensors"));
}

TEST_F(WeightsIndexTest, FingerprintFollowsConfigAndHeadersOnly) {
  WriteTensors("model.safetensors", Tensors());
  const std::string before = DescribeModel(folder_, {1})->model_fingerprint;
  EXPECT_EQ(DescribeModel(folder_, {0})->model_fingerprint, before);
  Write("config.json", std::string(kConfig) + " ");
  EXPECT_NE(DescribeModel(folder_, {1})->model_fingerprint, before);
}

TEST(FieldCases, ModelFoldersEndAsTheirCaseSays) {
  DRAFTMILL_TEST_DATA_OR_SKIP(folder, "field_cases/model");
  int judged = 0;
  const std::vector<FileInfo> entries = RealFileSystem().List(folder).value();
  for (const FileInfo& entry : entries) {
    const std::string case_folder = folder + "/" + entry.name;
    if (!entry.is_folder || !RealFileSystem().Exists(case_folder + "/config.json")) continue;
    const json::Value the_case = json::Parse(RealFileSystem().ReadAll(case_folder + "/case.json").value()).value();
    const json::Value& right = *the_case.Find("right");
    const std::string uses = the_case.Find("uses") == nullptr ? "" : the_case.Find("uses")->as_string();
    const auto config = ReadModelConfig(case_folder);
    if (!config.ok() && config.status().message().find("the architecture") != std::string::npos) continue;
    const bool headers = uses.find("headers") != std::string::npos || uses.find("folder") != std::string::npos;
    const Status status = headers && config.ok() ? DescribeModel(case_folder, {1}).status() : config.status();
    ++judged;
    const bool must_refuse = right.Find("verdict")->as_string() == "refuse" && right.Find("also_right") == nullptr;
    EXPECT_EQ(status.ok(), !must_refuse) << entry.name << ": " << status.ToString();
    if (must_refuse && !status.ok()) {
      for (const json::Value& needle : right.Find("message_names")->as_array()) {
        EXPECT_THAT(status.message(), HasSubstr(needle.as_string())) << entry.name;
      }
    }
  }
  EXPECT_GE(judged, 20);
}

}  // namespace
}  // namespace draftmill

#include "stages/extract/model/weights_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/test_data.h"
#include "stages/extract/extractor.h"
#include "stages/extract/model/model_family.h"
#include "stages/extract/model/model_folder.h"
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
      header.emplace_back(
          tensor.name,
          json::Object{{"dtype", "BF16"}, {"shape", shape}, {"data_offsets", json::Array{offset, offset + bytes}}});
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
  std::erase_if(tensors, [](const ExpectedTensor& tensor) {
    return tensor.name.ends_with("input_layernorm.weight") || tensor.name.ends_with("q_proj.weight");
  });
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

TEST_F(WeightsIndexTest, RefusesAFolderWithoutSafetensors) { EXPECT_THAT(Refusal(), HasSubstr("model.safetensors")); }

TEST_F(WeightsIndexTest, NamesTheWeightsThatAreThereInstead) {
  Write("consolidated.safetensors", "");
  Write("pytorch_model.bin", "");
  Write("notes.txt", "");
  EXPECT_THAT(Refusal(), HasSubstr("(there is consolidated.safetensors, pytorch_model.bin)"));
}

TEST_F(WeightsIndexTest, SaysThatADownloadIsUnfinished) {
  std::filesystem::create_symlink("../blobs/gone", folder_ + "/model.safetensors");
  EXPECT_THAT(Refusal(), HasSubstr("model.safetensors: is a link to a file that is not there"));
  std::filesystem::remove(folder_ + "/model.safetensors");
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 4976698672\n";
  Write("model.safetensors", pointer);
  EXPECT_THAT(Refusal(), HasSubstr("model.safetensors: holds the pointer of Git LFS"));
  Write("config.json", pointer);
  EXPECT_THAT(ReadModelConfig(folder_).status().message(), HasSubstr("config.json: holds the pointer of Git LFS"));
  const auto of_file = ReadModelConfig(folder_ + "/model.safetensors");
  EXPECT_THAT(of_file.status().message(), HasSubstr("is a file; name the folder"));
  EXPECT_EQ(of_file.status().code(), StatusCode::kInvalidInput);
}

TEST_F(WeightsIndexTest, TellsTheRevisionsOfADownloadCache) {
  std::filesystem::create_directories(folder_ + "/snapshots/abc");
  EXPECT_TRUE(ReadModelConfig(folder_).ok()) << "a model's folder may hold one of that name";
  std::filesystem::rename(folder_ + "/config.json", folder_ + "/snapshots/abc/config.json");
  EXPECT_THAT(ReadModelConfig(folder_).status().message(), HasSubstr("name one of the revisions in"));
  EXPECT_TRUE(ReadModelConfig(folder_ + "/snapshots/abc").ok());
}

TEST_F(WeightsIndexTest, RefusesQuantisationThatOnlyAFileBesideTells) {
  for (const std::string name : {"hf_quant_config.json", "quantize_config.json", "quant_config.json"}) {
    Write(name, R"({"bits": 4})");
    const auto config = ReadModelConfig(folder_);
    EXPECT_THAT(config.status().message(), HasSubstr(name));
    std::filesystem::remove(folder_ + "/" + name);
    EXPECT_TRUE(ReadModelConfig(folder_).ok());
  }
}

TEST_F(WeightsIndexTest, FingerprintFollowsConfigAndHeadersOnly) {
  WriteTensors("model.safetensors", Tensors());
  const std::string before = DescribeModel(folder_, {1})->model_fingerprint;
  EXPECT_EQ(DescribeModel(folder_, {0})->model_fingerprint, before);
  Write("config.json", std::string(kConfig) + " ");
  EXPECT_NE(DescribeModel(folder_, {1})->model_fingerprint, before);
}

/// What a case looks at, by its own words.
Status Judge(const std::string& folder, const std::string& uses) {
  if (uses.find("config.json only") != std::string::npos || uses.find("names only") != std::string::npos) {
    return ReportModel(folder, ReportScope::kConfigOnly).status();
  }
  if (uses.find("union of the three files") != std::string::npos) return ReadModelConfig(folder).status();
  return ReportModel(folder, ReportScope::kHeaders).status();
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
    const Status status = Judge(case_folder, the_case.Find("uses")->as_string());
    ++judged;
    const bool must_refuse = right.Find("verdict")->as_string() == "refuse" && right.Find("also_right") == nullptr;
    EXPECT_EQ(status.ok(), !must_refuse) << entry.name << ": " << status.ToString();
    if (must_refuse && !status.ok()) {
      for (const json::Value& needle : right.Find("message_names")->as_array()) {
        EXPECT_THAT(status.message(), HasSubstr(needle.as_string())) << entry.name;
      }
    }
  }
  EXPECT_GE(judged, 35);
}

/// The facts of a case that is read and accepted.
json::Value FactsOfCase(const std::string& name, ReportScope scope = ReportScope::kConfigOnly) {
  const auto root = TestDataPath("field_cases/model/" + name);
  const auto facts = ReportModel(*root, scope);
  EXPECT_TRUE(facts.ok()) << name << ": " << facts.status().ToString();
  return facts.ok() ? *facts : json::Value(json::Object{});
}

std::string Text(const json::Value* value) {
  return value == nullptr ? "absent" : json::Write(*value, json::Style::kCanonical);
}

TEST(FieldCases, NumbersOfTheCases) {
  DRAFTMILL_TEST_DATA_OR_SKIP(folder, "field_cases/model");
  const json::Value gemma2 = FactsOfCase("gemma2_defaults");
  EXPECT_EQ(Text(gemma2.Find("sliding_window")->Find("layers")), "[0,2,4]");
  EXPECT_EQ(Text(gemma2.Find("sliding_window")->Find("tokens_including_self")), "8");
  EXPECT_EQ(Text(gemma2.Find("tied_embeddings")), "true");
  EXPECT_DOUBLE_EQ(gemma2.Find("softmax_scale")->as_double(), 0.25);
  const json::Value hub = FactsOfCase("gemma3_hub_prefix");
  EXPECT_EQ(Text(hub.Find("prefix")), "\"language_model.model.\"");
  EXPECT_EQ(Text(hub.Find("ignored_tensors")), "3");
  const json::Value minimal = FactsOfCase("gemma3_minimal_text_config");
  EXPECT_EQ(Text(minimal.Find("vocab_size")), "262208");
  EXPECT_EQ(Text(minimal.Find("max_position_embeddings")), "131072");
  EXPECT_EQ(Text(minimal.Find("sliding_window")->Find("layers")), "[0,1,2,3,4,6,7]");
  EXPECT_DOUBLE_EQ(minimal.Find("softmax_scale")->as_double(), 0.2041241452319315);
  EXPECT_DOUBLE_EQ(minimal.Find("rope")->Find("local")->Find("theta")->as_double(), 1e4);
  EXPECT_EQ(Text(minimal.Find("rope")->Find("type")), "\"linear\"");
  const json::Value mla = FactsOfCase("yarn_mscale_mla");
  EXPECT_DOUBLE_EQ(mla.Find("softmax_scale")->as_double(), 0.5409351154435204);
  EXPECT_EQ(Text(mla.Find("head_dim")), "12");
  EXPECT_DOUBLE_EQ(mla.Find("rope")->Find("cos_sin_factor")->as_double(), 1.0);
  EXPECT_EQ(Text(FactsOfCase("mtp_layer_beyond_the_last").Find("ignored_tensors")), "12");
  EXPECT_EQ(Text(FactsOfCase("eos_in_three_places").Find("eos_ids")), "[2,11,12]");
  EXPECT_EQ(Text(FactsOfCase("inv_freq_buffers", ReportScope::kHeaders).Find("ignored_tensors")), "2");
  EXPECT_EQ(Text(FactsOfCase("qwen2_window_switched_off").Find("sliding_window")), "null");
  EXPECT_EQ(Text(FactsOfCase("head_dim_null").Find("head_dim")), "8");
  EXPECT_EQ(Text(FactsOfCase("config_group_other_name").Find("quantisation")->Find("group")), "32");
  const json::Value half = FactsOfCase("f16_weights_bf16_config", ReportScope::kHeaders);
  EXPECT_EQ(Text(half.Find("compute_dtype")), "\"bfloat16\"");
}

TEST(FieldCases, LongRopeOfAPartlyRotatedHead) {
  DRAFTMILL_TEST_DATA_OR_SKIP(folder, "field_cases/model/longrope_partial_rotary");
  const ModelConfig config = ReadModelConfig(folder).value();
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.rope.rotary_dims, 12);
  EXPECT_DOUBLE_EQ(config.rope.cos_sin_factor, 1.3093073414159544);
  const std::vector<double> expected_long = {1.0,
                                             0.17235477520255071,
                                             0.03094392555741853,
                                             0.005714285714285714,
                                             0.0010772173450159421,
                                             0.00020629283704945678};
  const std::vector<double> frequencies = InverseFrequencies(config.rope, true);
  ASSERT_EQ(frequencies.size(), expected_long.size());
  for (std::size_t i = 0; i < frequencies.size(); ++i)
    EXPECT_NEAR(frequencies[i], expected_long[i], 1e-12 * expected_long[i]);
}

}  // namespace
}  // namespace draftmill

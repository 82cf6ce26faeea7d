// Weights against a second reading of the same file that shares no code with the first.
#include "stages/extract/weights/weight_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/test_data.h"
#include "formats/safetensors.h"
#include "kernels/experts_cpu.h"
#include "stages/extract/model/test_checkpoint.h"
#include "stages/extract/model/test_models.h"
#include "stages/extract/weights/expert_weights.h"
#include "stages/extract/weights/quantised_values.h"
#include "stages/extract/weights/weight_files.h"
#include "state/file_system.h"

namespace draftmill {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// The tensors of a file, one element at a time.
class StoredFile {
 public:
  explicit StoredFile(const std::string& path) {
    bytes_ = RealFileSystem().ReadAll(path).value();
    header_ = safetensors::ReadHeader(RealFileSystem(), path).value();
  }

  const safetensors::TensorInfo& Info(const std::string& name) const { return *header_.Find(name); }

  std::uint8_t Byte(const std::string& name, std::int64_t i) const {
    return static_cast<std::uint8_t>(bytes_[static_cast<std::size_t>(Info(name).offset + i)]);
  }
  float Float(const std::string& name, std::int64_t i) const {
    const safetensors::TensorInfo& info = Info(name);
    if (info.dtype == safetensors::Dtype::kF32) {
      float value = 0;
      std::memcpy(&value, bytes_.data() + info.offset + 4 * i, 4);
      return value;
    }
    return ToFloat(Bf16{static_cast<std::uint16_t>(Byte(name, 2 * i) | Byte(name, 2 * i + 1) << 8)});
  }
  bool Has(const std::string& name) const { return header_.Find(name) != nullptr; }

 private:
  std::string bytes_;
  safetensors::Header header_;
};

float NaiveE4m3(int bits) {
  const int exponent = bits >> 3 & 15;
  const int mantissa = bits & 7;
  if (exponent == 15 && mantissa == 7) return std::nanf("");
  const double magnitude =
      exponent == 0 ? mantissa / 8.0 * std::pow(2.0, -6) : (1 + mantissa / 8.0) * std::pow(2.0, exponent - 7);
  return static_cast<float>((bits & 128) != 0 ? -magnitude : magnitude);
}

/// Element [row, column] of a matrix named without ".weight", whatever its form; blocks and groups as in test_models.h.
float StoredValue(const StoredFile& file, const std::string& module, std::int64_t row, std::int64_t column,
                  std::int64_t columns) {
  if (file.Has(module + ".weight_scale_inv")) {
    const float scale = file.Float(module + ".weight_scale_inv", row / 24 * ((columns + 19) / 20) + column / 20);
    return RoundToBf16(NaiveE4m3(file.Byte(module + ".weight", row * columns + column)) * scale);
  }
  if (file.Has(module + ".weight_packed")) {
    const std::int64_t word = row * ((columns + 7) / 8) + column / 8;
    std::uint32_t bits = 0;
    for (int b = 3; b >= 0; --b) bits = bits << 8 | file.Byte(module + ".weight_packed", 4 * word + b);
    const int nibble = static_cast<int>(bits >> (4 * (column % 8)) & 15U);
    return RoundToBf16(static_cast<float>(nibble - 8) *
                       file.Float(module + ".weight_scale", row * ((columns + 31) / 32) + column / 32));
  }
  return file.Float(module + ".weight", row * columns + column);
}

struct OpenedModel {
  std::unique_ptr<TestCheckpoint> checkpoint;
  ModelFolder folder;
  std::unique_ptr<WeightStore<Bf16>> store;
};

OpenedModel OpenModel(const json::Value& config, WeightStoreOptions options = {}) {
  OpenedModel opened;
  opened.checkpoint = std::make_unique<TestCheckpoint>(config);
  auto folder = OpenModelFolder(opened.checkpoint->folder(), {1});
  EXPECT_TRUE(folder.ok()) << folder.status().ToString();
  if (!folder.ok()) return opened;
  opened.folder = std::move(folder).value();
  auto store = WeightStore<Bf16>::Open(opened.folder, options);
  EXPECT_TRUE(store.ok()) << store.status().ToString();
  if (store.ok()) opened.store = std::move(store).value();
  return opened;
}

/// Rows `first` .. of a part must be those of the file's matrix.
void ExpectMatrix(const StoredFile& file, const std::string& module, const Bf16* part, std::int64_t rows,
                  std::int64_t columns) {
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      ASSERT_EQ(ToFloat(part[row * columns + column]), StoredValue(file, module, row, column, columns))
          << module << " [" << row << ", " << column << "]";
    }
  }
}

/// Every expert of a layer with one tensor per expert and matrix.
void ExpectExperts(const StoredFile& file, const std::string& prefix, const ModelConfig& config,
                   const LayerView<Bf16>& view) {
  std::vector<Bf16> scratch(static_cast<std::size_t>(ExpertScratchElements(*view.layout)));
  const std::int64_t width = config.experts->expert_intermediate;
  for (std::int64_t e = 0; e < config.experts->experts; ++e) {
    const ExpertView<Bf16> expert = ExpertOf(view, e, scratch.data());
    const std::string module = prefix + "mlp.experts." + std::to_string(e);
    ExpectMatrix(file, module + ".gate_proj", expert.gate_up, width, config.hidden_size);
    ExpectMatrix(file, module + ".up_proj", expert.gate_up + width * config.hidden_size, width, config.hidden_size);
    ExpectMatrix(file, module + ".down_proj", expert.down, config.hidden_size, width);
  }
}

TEST(WeightStore, FusesQkvAndGateUp) {
  const OpenedModel model = OpenModel(TestModelConfig("llama"));
  const StoredFile file(model.checkpoint->folder() + "/model.safetensors");
  const ModelConfig& config = model.folder.config;
  const LayerView<Bf16> view = model.store->Acquire(1).value();
  const std::string prefix = "model.layers.1.";
  const std::int64_t hidden = config.hidden_size;
  const Bf16* const qkv = view.matrices + view.layout->qkv;
  ExpectMatrix(file, prefix + "self_attn.q_proj", qkv, 64, hidden);
  ExpectMatrix(file, prefix + "self_attn.k_proj", qkv + 64 * hidden, 32, hidden);
  ExpectMatrix(file, prefix + "self_attn.v_proj", qkv + 96 * hidden, 32, hidden);
  ExpectMatrix(file, prefix + "mlp.gate_proj", view.matrices + view.layout->gate_up, 96, hidden);
  ExpectMatrix(file, prefix + "mlp.up_proj", view.matrices + view.layout->gate_up + 96 * hidden, 96, hidden);
  for (std::int64_t i = 0; i < 32; ++i) {
    EXPECT_EQ(view.vectors[view.layout->qkv_bias + 96 + i], file.Float(prefix + "self_attn.v_proj.bias", i));
    EXPECT_EQ(view.vectors[view.layout->gate_up_bias + 96 + i], file.Float(prefix + "mlp.up_proj.bias", i));
  }
  EXPECT_EQ(view.vectors[view.layout->mlp_norm + 5], file.Float(prefix + "post_attention_layernorm.weight", 5));
}

TEST(WeightStore, GptOssGateAndUpAreSortedOutOfPairs) {
  const OpenedModel model = OpenModel(TestModelConfig("gpt_oss"));
  const StoredFile file(model.checkpoint->folder() + "/model.safetensors");
  const LayerView<Bf16> view = model.store->Acquire(0).value();
  const std::string prefix = "model.layers.0.mlp.experts.";
  for (std::int64_t e = 0; e < 4; ++e) {
    const ExpertView<Bf16> expert = ExpertOf<Bf16>(view, e, nullptr);
    for (std::int64_t row = 0; row < 64; ++row) {
      const std::int64_t stored = row < 32 ? 2 * row : 2 * (row - 32) + 1;
      EXPECT_EQ(view.vectors[view.layout->experts_gate_up_bias + e * 64 + row],
                file.Float(prefix + "gate_up_proj_bias", e * 64 + stored));
      for (std::int64_t in = 0; in < 64; ++in) {
        ASSERT_EQ(ToFloat(expert.gate_up[row * 64 + in]),
                  file.Float(prefix + "gate_up_proj", (e * 64 + in) * 64 + stored));
      }
    }
    for (std::int64_t row = 0; row < 64; ++row) {
      for (std::int64_t in = 0; in < 32; ++in) {
        ASSERT_EQ(ToFloat(expert.down[row * 32 + in]), file.Float(prefix + "down_proj", (e * 32 + in) * 64 + row));
      }
    }
  }
}

TEST(WeightStore, MxfpNibblesLowFirstAndRowsOutOfPairs) {
  const OpenedModel model = OpenModel(QuantisedTestModel("gpt_oss", kTestMxfp4));
  const StoredFile file(model.checkpoint->folder() + "/model.safetensors");
  const LayerView<Bf16> view = model.store->Acquire(1).value();
  ASSERT_EQ(view.layout->packed.method, QuantizationMethod::kMxfp4);
  std::vector<Bf16> scratch(static_cast<std::size_t>(ExpertScratchElements(*view.layout)));
  const float values[] = {0, .5F, 1, 1.5F, 2, 3, 4, 6};
  const std::string name = "model.layers.1.mlp.experts.gate_up_proj";
  for (std::int64_t e = 0; e < 4; ++e) {
    const ExpertView<Bf16> expert = ExpertOf(view, e, scratch.data());
    for (std::int64_t row = 0; row < 64; ++row) {
      const std::int64_t stored = e * 64 + (row < 32 ? 2 * row : 2 * (row - 32) + 1);
      for (std::int64_t in = 0; in < 64; ++in) {
        const int byte = file.Byte(name + "_blocks", stored * 32 + in / 2);
        const int nibble = in % 2 == 0 ? byte & 15 : byte >> 4;
        const float magnitude =
            values[nibble & 7] *
            std::pow(2.0F, static_cast<float>(file.Byte(name + "_scales", stored * 2 + in / 32) - 127));
        ASSERT_EQ(ToFloat(expert.gate_up[row * 64 + in]), (nibble & 8) != 0 ? -magnitude : magnitude);
      }
    }
  }
}

TEST(WeightStore, BlockFp8IsExpandedAndExpertsStayPacked) {
  const OpenedModel model = OpenModel(QuantisedTestModel("deepseek_v3", kTestFp8));
  const StoredFile file(model.checkpoint->folder() + "/model.safetensors");
  const LayerView<Bf16> dense = model.store->Acquire(0).value();
  ExpectMatrix(file, "model.layers.0.mlp.down_proj", dense.matrices + dense.layout->down, 64, 96);
  ExpectMatrix(file, "model.layers.0.self_attn.kv_a_proj_with_mqa", dense.matrices + dense.layout->kv_a, 40, 64);
  const LayerView<Bf16> view = model.store->Acquire(1).value();
  EXPECT_EQ(view.layout->experts_gate_up, -1);
  ExpectExperts(file, "model.layers.1.", model.folder.config, view);
  ExpectMatrix(file, "model.layers.1.mlp.shared_experts.up_proj", view.matrices + view.layout->shared_gate_up + 64 * 64,
               64, 64);
}

TEST(WeightStore, Int4OfExpertsAndOfDenseMatrices) {
  const OpenedModel model = OpenModel(QuantisedTestModel("deepseek_v3", kTestInt4));
  const StoredFile file(model.checkpoint->folder() + "/model.safetensors");
  EXPECT_TRUE(file.Has("model.layers.1.mlp.shared_experts.up_proj.weight"));
  EXPECT_TRUE(file.Has("model.layers.0.self_attn.o_proj.weight"));
  const LayerView<Bf16> dense = model.store->Acquire(0).value();
  ExpectMatrix(file, "model.layers.0.mlp.gate_proj", dense.matrices + dense.layout->gate_up, 96, 64);
  const LayerView<Bf16> view = model.store->Acquire(1).value();
  ExpectExperts(file, "model.layers.1.", model.folder.config, view);
}

/// One kind of the experts' matrices is plain: all of the layer are expanded while they are read.
TEST(WeightStore, ExpertsThatAreQuantisedInPart) {
  json::Value quantization = json::Parse(kTestFp8).value();
  quantization.Set("modules_to_not_convert", json::Array{"down_proj"});
  const OpenedModel model = OpenModel(QuantisedTestModel("deepseek_v3", json::Write(quantization)));
  const StoredFile file(model.checkpoint->folder() + "/model.safetensors");
  EXPECT_FALSE(file.Has("model.layers.1.mlp.experts.0.down_proj.weight_scale_inv"));
  EXPECT_TRUE(file.Has("model.layers.1.mlp.experts.0.up_proj.weight_scale_inv"));
  const LayerView<Bf16> view = model.store->Acquire(1).value();
  EXPECT_EQ(view.layout->packed.bytes, 0);
  ExpectExperts(file, "model.layers.1.", model.folder.config, view);
}

TEST(WeightStore, ScalesOfInt4AreOfOneType) {
  const TestCheckpoint checkpoint(QuantisedTestModel("deepseek_v3", kTestInt4));
  const ModelConfig config = ReadModelConfig(checkpoint.folder()).value();
  WeightsIndex index = OpenWeightsIndex(checkpoint.folder()).value();
  EXPECT_EQ(MatchTensors(index, config)->scale_type(), ScaleType::kBfloat16);
  for (auto& [name, place] : index.tensors) {
    if (name.ends_with("weight_scale")) place.info.dtype = safetensors::Dtype::kF16;
  }
  EXPECT_EQ(MatchTensors(index, config)->scale_type(), ScaleType::kFloat16);
  index.tensors.find("model.layers.1.mlp.experts.3.up_proj.weight_scale")->second.info.dtype = safetensors::Dtype::kF32;
  EXPECT_THAT(MatchTensors(index, config).status().message(),
              AllOf(HasSubstr("experts.3.up_proj.weight_scale: F32"), HasSubstr("needed: F16 as ")));
}

TEST(WeightStore, CorrectionBiasStaysFloat32) {
  const OpenedModel model = OpenModel(TestModelConfig("deepseek_v3"));
  const StoredFile file(model.checkpoint->folder() + "/model.safetensors");
  const LayerView<Bf16> view = model.store->Acquire(2).value();
  bool finer_than_bf16 = false;
  for (std::int64_t e = 0; e < 8; ++e) {
    const float bias = view.vectors[view.layout->correction_bias + e];
    EXPECT_EQ(bias, file.Float("model.layers.2.mlp.gate.e_score_correction_bias", e));
    finer_than_bf16 |= bias != RoundToBf16(bias);
  }
  EXPECT_TRUE(finer_than_bf16);
}

/// Every layer of every family, resident and streamed, twice over.
TEST(WeightStore, StreamedGivesTheSameBytes) {
  std::vector<json::Value> models;
  for (const TestModel& model : kTestModels) models.push_back(TestModelConfig(model.name));
  models.push_back(QuantisedTestModel("deepseek_v3", kTestFp8));
  models.push_back(QuantisedTestModel("gpt_oss", kTestMxfp4));
  for (const json::Value& config : models) {
    const OpenedModel resident = OpenModel(config);
    for (const int slots : {2, 3}) {
      auto streamed = WeightStore<Bf16>::Open(resident.folder, {WeightPolicy::kStreamed, slots});
      ASSERT_TRUE(streamed.ok()) << streamed.status().ToString();
      EXPECT_EQ((*streamed)->digest(), resident.store->digest());
      for (std::int64_t pass = 0; pass < 2; ++pass) {
        for (std::int64_t layer = 0; layer < resident.folder.config.num_layers; ++layer) {
          const LayerView<Bf16> expected = resident.store->Acquire(layer).value();
          const auto view = (*streamed)->Acquire(layer);
          ASSERT_TRUE(view.ok()) << view.status().ToString();
          const LayerLayout& layout = *view->layout;
          for (const LayerTensor& tensor : LayerTensors(resident.folder.config, layer)) {
            if (tensor.stays_packed) continue;
            const std::int64_t first = layout.*tensor.part + tensor.first;
            const auto count = static_cast<std::size_t>(tensor.elements());
            const bool same = tensor.is_matrix
                                  ? std::memcmp(view->matrices + first, expected.matrices + first, 2 * count) == 0
                                  : std::memcmp(view->vectors + first, expected.vectors + first, 4 * count) == 0;
            EXPECT_TRUE(same) << tensor.name;
          }
          if (layer > 0) (*streamed)->Release(layer - 1);
        }
        (*streamed)->Release(resident.folder.config.num_layers - 1);
      }
      std::vector<Bf16> rows(3 * 96);
      std::vector<Bf16> expected_rows(3 * 96);
      const std::vector<std::int32_t> ids = {7, 99, 7};
      ASSERT_TRUE((*streamed)->EmbeddingRows(ids, rows.data()).ok());
      ASSERT_TRUE(resident.store->EmbeddingRows(ids, expected_rows.data()).ok());
      EXPECT_EQ(std::memcmp(rows.data(), expected_rows.data(), rows.size() * 2), 0);
    }
  }
}

TEST(WeightStore, RefusesAPackedShapeThatContradictsTheConfiguration) {
  const TestCheckpoint checkpoint(QuantisedTestModel("deepseek_v3", kTestInt4));
  const std::string path = checkpoint.folder() + "/model.safetensors";
  std::string bytes = RealFileSystem().ReadAll(path).value();
  const auto header = safetensors::ReadHeader(RealFileSystem(), path).value();
  bytes[static_cast<std::size_t>(header.Find("model.layers.1.mlp.experts.3.up_proj.weight_shape")->offset)] = 9;
  std::ofstream(path, std::ios::binary) << bytes;
  const auto folder = OpenModelFolder(checkpoint.folder(), {1});
  ASSERT_TRUE(folder.ok()) << folder.status().ToString();
  EXPECT_THAT(WeightStore<Bf16>::Open(*folder, {}).status().message(), HasSubstr("experts.3.up_proj.weight_shape"));
}

TEST(WeightFiles, DirectAndBufferedReadsAgreeOnTensorsThatBeginAnywhere) {
  const TestCheckpoint checkpoint(TestModelConfig("llama"));
  const auto folder = OpenModelFolder(checkpoint.folder(), {1});
  ASSERT_TRUE(folder.ok());
  std::vector<Hash128> of_mode[2];
  for (const bool direct : {false, true}) {
    auto files = WeightFiles::Open(folder->index).value();
    files->UseDirect(direct);
    std::vector<TensorRead> reads;
    for (const auto& [name, place] : folder->index.tensors) reads.push_back({&place, {}});
    ASSERT_TRUE(files->ReadTensors(reads, of_mode[direct ? 1 : 0]).ok());
  }
  EXPECT_EQ(of_mode[0], of_mode[1]);
}

TEST(QuantisedValues, AllOfE4m3) {
  for (int bits = 0; bits < 256; ++bits) {
    const float value = E4m3ToFloat(static_cast<std::uint8_t>(bits));
    const float expected = NaiveE4m3(bits);
    EXPECT_TRUE(value == expected || (std::isnan(value) && std::isnan(expected))) << bits;
  }
  EXPECT_EQ(E4m3ToFloat(0x7e), 448.0F);
}

/// Every half is its own rounding; between two the nearer, at ties the even one.
TEST(QuantisedValues, RoundingToHalf) {
  for (std::uint32_t bits = 0; bits + 1 < 0x7c00; ++bits) {
    const float half = HalfToFloat(static_cast<std::uint16_t>(bits));
    const float next = HalfToFloat(static_cast<std::uint16_t>(bits + 1));
    const float between = half + (next - half) / 2;
    ASSERT_EQ(RoundToHalf(half), half);
    ASSERT_EQ(RoundToHalf(-half), -half);
    ASSERT_EQ(RoundToHalf(between), bits % 2 == 0 ? half : next) << bits;
    ASSERT_EQ(RoundToHalf(std::nextafter(between, 0.0F)), half);
    ASSERT_EQ(RoundToHalf(std::nextafter(between, 1e9F)), next);
  }
  EXPECT_EQ(RoundToHalf(65519.0F), 65504.0F);
  EXPECT_TRUE(std::isinf(RoundToHalf(-65520.0F)));
  EXPECT_TRUE(std::isnan(RoundToHalf(std::nanf(""))));
}

/// Vector and plain forms: every value of a long row against the same value expanded alone, at every alignment.
TEST(QuantisedValues, StretchesOfAnyLengthGiveTheSameValues) {
  std::mt19937 random(3);
  std::vector<std::byte> bytes(300);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  std::vector<float> wide(20);
  std::vector<Bf16> narrow(20);
  std::vector<std::uint8_t> powers(20);
  for (std::size_t i = 0; i < 20; ++i) {
    wide[i] = std::ldexp(1.0F + static_cast<float>(random() % 1000) / 1000.0F, static_cast<int>(random() % 40) - 20);
    narrow[i] = ToBf16(i % 2 == 0 ? wide[i] : -wide[i]);
    powers[i] = static_cast<std::uint8_t>(random());
  }
  wide[5] = std::ldexp(1.0F, 125);
  narrow[4] = Bf16{0x7f80};
  powers[6] = 255;
  std::vector<std::uint16_t> halves(20);
  for (std::uint16_t& half : halves) half = static_cast<std::uint16_t>(random());
  halves[3] = 0x7bff;
  halves[4] = 0x0001;
  const std::pair<ScaleType, const std::byte*> int4_scales[] = {
      {ScaleType::kBfloat16, reinterpret_cast<const std::byte*>(narrow.data())},
      {ScaleType::kFloat16, reinterpret_cast<const std::byte*>(halves.data())},
      {ScaleType::kFloat32, reinterpret_cast<const std::byte*>(wide.data())}};
  const auto same = [](Bf16 a, Bf16 b) {
    return a.bits == b.bits || (std::isnan(ToFloat(a)) && std::isnan(ToFloat(b)));
  };
  for (std::int64_t column = 0; column < 70; column += 2) {
    for (const std::int64_t count : {1, 2, 31, 32, 33, 64, 130, 200}) {
      std::vector<Bf16> row(static_cast<std::size_t>(count));
      std::vector<float> one(2);
      const auto expect = [&](const char* what, auto expand_one) {
        for (std::int64_t i = 0; i < count; ++i) {
          expand_one(i / 2 * 2, std::min<std::int64_t>(2, count - i / 2 * 2));
          ASSERT_TRUE(same(row[static_cast<std::size_t>(i)], ToBf16(one[static_cast<std::size_t>(i % 2)])))
              << what << " " << column << "+" << i;
        }
      };
      ExpandFp8(bytes.data() + column, wide.data(), 32, column, count, row.data());
      expect("fp8", [&](std::int64_t i, std::int64_t n) {
        ExpandFp8(bytes.data() + column + i, wide.data(), 32, column + i, n, one.data());
      });
      for (const auto& [type, scales] : int4_scales) {
        ExpandInt4(bytes.data() + column / 2, scales, type, 32, column, count, row.data());
        expect("int4", [&, type = type, scales = scales](std::int64_t i, std::int64_t n) {
          ExpandInt4(bytes.data() + (column + i) / 2, scales, type, 32, column + i, n, one.data());
        });
      }
      ExpandMxfp4(bytes.data() + column / 2, powers.data(), 32, column, count, row.data());
      expect("mxfp4", [&](std::int64_t i, std::int64_t n) {
        ExpandMxfp4(bytes.data() + (column + i) / 2, powers.data(), 32, column + i, n, one.data());
      });
    }
  }
}

std::vector<std::byte> TensorBytes(const std::string& path, const std::string& name) {
  const StoredFile file(path);
  const safetensors::TensorInfo& info = file.Info(name);
  std::vector<std::byte> bytes(static_cast<std::size_t>(info.bytes));
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte{file.Byte(name, static_cast<std::int64_t>(i))};
  return bytes;
}

json::Value RightOf(const std::string& folder) {
  return *json::Parse(RealFileSystem().ReadAll(folder + "/case.json").value()).value().Find("right");
}

TEST(QuantisedValues, FieldCaseFp8WithARaggedBlock) {
  DRAFTMILL_TEST_DATA_OR_SKIP(folder, "field_cases/model/fp8_block_ragged");
  const std::string path = folder + "/w.safetensors";
  const auto values = TensorBytes(path, "w.weight");
  const auto scale_bytes = TensorBytes(path, "w.weight_scale_inv");
  std::vector<float> scales(scale_bytes.size() / 4);
  std::memcpy(scales.data(), scale_bytes.data(), scale_bytes.size());
  const json::Value right = RightOf(folder);
  for (const json::Value& value : right.Find("bf16_values")->as_array()) {
    const std::int64_t row = value.Find("at")->as_array()[0].as_integer();
    const std::int64_t column = value.Find("at")->as_array()[1].as_integer();
    std::vector<Bf16> out(96);
    ExpandFp8(values.data() + row * 96, scales.data() + row / 128, 128, 0, 96, out.data());
    EXPECT_EQ(static_cast<double>(ToFloat(out[static_cast<std::size_t>(column)])), value.Find("value")->as_double());
  }
}

TEST(QuantisedValues, FieldCaseInt4PackOrder) {
  DRAFTMILL_TEST_DATA_OR_SKIP(folder, "field_cases/model/int4_pack_order");
  const std::string path = folder + "/w.safetensors";
  const auto values = TensorBytes(path, "w.weight_packed");
  const auto scales = TensorBytes(path, "w.weight_scale");
  const json::Value right = RightOf(folder);
  const auto expect_row = [&](std::int64_t row, std::int64_t column, const json::Value& expected) {
    std::vector<Bf16> out(expected.as_array().size());
    ExpandInt4(values.data() + row * 32 + column / 2, scales.data() + row * 4, ScaleType::kBfloat16, 32, column,
               static_cast<std::int64_t>(out.size()), out.data());
    for (std::size_t i = 0; i < out.size(); ++i) {
      EXPECT_EQ(static_cast<double>(ToFloat(out[i])), expected.as_array()[i].as_double()) << row << " " << i;
    }
  };
  expect_row(0, 0, *right.Find("row_0"));
  expect_row(3, 56, *right.Find("row_3_last_8"));
}

TEST(QuantisedValues, FieldCaseMxfp4Nibbles) {
  DRAFTMILL_TEST_DATA_OR_SKIP(folder, "field_cases/model/mxfp4_nibbles_and_interleave");
  const std::string path = folder + "/mlp.safetensors";
  const auto header = safetensors::ReadHeader(RealFileSystem(), path).value();
  std::string blocks;
  for (const safetensors::TensorInfo& tensor : header.tensors()) {
    if (tensor.name.find("gate_up_proj_blocks") != std::string::npos) blocks = tensor.name;
  }
  ASSERT_FALSE(blocks.empty());
  const auto values = TensorBytes(path, blocks);
  const auto scale_bytes = TensorBytes(path, blocks.substr(0, blocks.size() - 6) + "scales");
  const auto* scales = reinterpret_cast<const std::uint8_t*>(scale_bytes.data());
  const json::Value right = RightOf(folder);
  const auto expect_row = [&](std::int64_t row, std::int64_t column, const json::Value& expected) {
    std::vector<Bf16> out(8);
    ExpandMxfp4(values.data() + row * 32 + column / 2, scales + row * 2, 32, column, 8, out.data());
    for (std::size_t i = 0; i < 8; ++i) {
      EXPECT_EQ(static_cast<double>(ToFloat(out[i])), expected.as_array()[i].as_double()) << row << " " << i;
    }
  };
  expect_row(0, 0, *right.Find("row_0_first_8"));
  expect_row(1, 0, *right.Find("row_1_first_8"));
  expect_row(3, 56, *right.Find("row_3_last_8"));
}

/// The experts of the case's tokens with the given bias, in the kernel's order, and their weights.
struct RoutedCase {
  std::vector<std::int32_t> chosen;
  std::vector<float> weights;
};

RoutedCase RouteCase(const StoredFile& file, const json::Value& right, bool bias_in_bf16) {
  constexpr std::int64_t kRows = 4;
  constexpr std::int64_t kExperts = 8;
  constexpr std::int64_t kHidden = 16;
  std::vector<float> logits(kRows * kExperts);
  std::vector<float> bias(kExperts);
  for (std::int64_t e = 0; e < kExperts; ++e) {
    const float stored = file.Float("mlp.gate.e_score_correction_bias", e);
    bias[static_cast<std::size_t>(e)] = bias_in_bf16 ? RoundToBf16(stored) : stored;
    for (std::int64_t r = 0; r < kRows; ++r) {
      float& logit = logits[static_cast<std::size_t>(r * kExperts + e)];
      for (std::int64_t i = 0; i < kHidden; ++i)
        logit += file.Float("x", r * kHidden + i) * file.Float("mlp.gate.weight", e * kHidden + i);
    }
  }
  const std::int64_t top_k = right.Find("top_k")->as_integer();
  RoutedCase routed;
  routed.chosen.resize(static_cast<std::size_t>(kRows * top_k));
  routed.weights.resize(static_cast<std::size_t>(kRows * top_k));
  std::vector<float> scratch(2 * kExperts);
  ExpertKernelsFor<float>(DetectInstructionSet())
      .route({.logits = logits.data(),
              .bias = bias.data(),
              .scratch = scratch.data(),
              .chosen = routed.chosen.data(),
              .weights = routed.weights.data(),
              .rows = kRows,
              .experts = kExperts,
              .top_k = top_k,
              .kind = RouterKind::kSigmoidBiased,
              .renormalise = true,
              .scaling = static_cast<float>(right.Find("scaling")->as_double())});
  return routed;
}

/// Each row's experts of a list of the case, ascending.
std::vector<std::int32_t> ChosenOf(const json::Value& rows) {
  std::vector<std::int32_t> all;
  for (const json::Value& row : rows.as_array()) {
    const std::size_t begin = all.size();
    for (const json::Value& expert : row.as_array()) all.push_back(static_cast<std::int32_t>(expert.as_integer()));
    std::sort(all.begin() + static_cast<std::ptrdiff_t>(begin), all.end());
  }
  return all;
}

TEST(Router, FieldCaseCorrectionBiasInFloat32) {
  DRAFTMILL_TEST_DATA_OR_SKIP(folder, "field_cases/model/router_bias_float32");
  const StoredFile file(folder + "/router.safetensors");
  const json::Value right = RightOf(folder);
  const RoutedCase routed = RouteCase(file, right, false);
  EXPECT_EQ(routed.chosen, ChosenOf(*right.Find("chosen")));
  const auto& weights = right.Find("weights")->as_array();
  for (std::size_t r = 0; r < weights.size(); ++r) {
    const auto& order = right.Find("chosen")->as_array()[r].as_array();
    for (std::size_t k = 0; k < order.size(); ++k) {
      const auto begin = routed.chosen.begin() + static_cast<std::ptrdiff_t>(r * order.size());
      const auto at = std::find(begin, begin + static_cast<std::ptrdiff_t>(order.size()),
                                static_cast<std::int32_t>(order[k].as_integer()));
      EXPECT_NEAR(routed.weights[static_cast<std::size_t>(at - routed.chosen.begin())],
                  weights[r].as_array()[k].as_double(), 1e-6);
    }
  }
  EXPECT_EQ(RouteCase(file, right, true).chosen, ChosenOf(*right.Find("chosen_if_bias_were_bf16")));
}

}  // namespace
}  // namespace draftmill

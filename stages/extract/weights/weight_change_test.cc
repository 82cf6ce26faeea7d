// Files of weights under a run: changed or only touched while they are streamed, and more of them than the usual limit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "stages/extract/model/test_checkpoint.h"
#include "stages/extract/model/test_models.h"
#include "stages/extract/weights/weight_files.h"
#include "stages/extract/weights/weight_store.h"

namespace draftmill {
namespace {

using ::testing::HasSubstr;

class ChangedWeights : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto folder = OpenModelFolder(checkpoint_.folder(), {1});
    ASSERT_TRUE(folder.ok()) << folder.status().ToString();
    auto store = WeightStore<Bf16>::Open(*folder, {WeightPolicy::kStreamed, 2});
    ASSERT_TRUE(store.ok()) << store.status().ToString();
    store_ = std::move(store).value();
  }

  /// Writes the file in place with one bit of a tensor changed.
  void Change(const std::string& tensor) {
    checkpoint_.WriteWeights([&tensor](const std::string& name, std::vector<Bf16>& values) {
      if (name == tensor) values[3].bits ^= 1;
    });
    MoveTime();
  }

  /// Gives the file another time of change, whatever the resolution of the file system's clock.
  void MoveTime() {
    const std::string path = checkpoint_.folder() + "/model.safetensors";
    std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) + std::chrono::seconds(2));
  }

  /// What stops some passes over all layers; empty where nothing does.
  std::string Passes() {
    for (std::int64_t pass = 0; pass < 3; ++pass) {
      for (std::int64_t layer = 0; layer < 3; ++layer) {
        const auto view = store_->Acquire(layer);
        if (!view.ok()) return view.status().message();
        store_->Release(layer);
      }
    }
    return "";
  }

  TestCheckpoint checkpoint_{TestModelConfig("llama")};
  std::unique_ptr<WeightStore<Bf16>> store_;
};

TEST_F(ChangedWeights, ALayerIsSeen) {
  ASSERT_TRUE(store_->Acquire(0).ok());
  ASSERT_TRUE(store_->Acquire(1).ok());
  Change("model.layers.0.mlp.up_proj.weight");
  store_->Release(0);
  store_->Release(1);
  EXPECT_THAT(Passes(), HasSubstr("layer 0 changed"));
}

TEST_F(ChangedWeights, TheEmbeddingIsSeen) {
  EXPECT_EQ(Passes(), "");
  Change("model.embed_tokens.weight");
  EXPECT_THAT(Passes(), HasSubstr("the embedding changed"));
}

TEST(WeightFiles, OpensMoreFilesThanTheSoftLimit) {
  const TestCheckpoint checkpoint(TestModelConfig("llama"));
  const auto folder = OpenModelFolder(checkpoint.folder(), {1});
  ASSERT_TRUE(folder.ok()) << folder.status().ToString();
  WeightsIndex index = folder->index;
  index.files.resize(40, index.files.front());
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 32;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  const Status status = WeightFiles::Open(index).status();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(status.ok()) << status.ToString();
}

TEST_F(ChangedWeights, AFileThatWasOnlyTouchedGoesOn) {
  EXPECT_EQ(Passes(), "");
  MoveTime();
  EXPECT_EQ(Passes(), "");
}

}  // namespace
}  // namespace draftmill

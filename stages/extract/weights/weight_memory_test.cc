// What weights take of the machine's memory, as the system counts it.
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <string>

#include "stages/extract/model/test_checkpoint.h"
#include "stages/extract/weights/weight_store.h"

namespace draftmill {
namespace {

constexpr std::int64_t kSlack = std::int64_t{8} << 20;

/// 600 MB.
constexpr const char* kConfig = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 1024,
  "intermediate_size": 2816, "num_hidden_layers": 24, "num_attention_heads": 16, "num_key_value_heads": 16,
  "rms_norm_eps": 1e-5, "vocab_size": 4000, "max_position_embeddings": 4096, "tie_word_embeddings": true,
  "torch_dtype": "bfloat16"})";

/// A figure of /proc/self/status in bytes: VmHWM is the peak of the resident set, VmRSS what it is now.
std::int64_t StatusBytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name + ":")) return std::stoll(line.substr(name.size() + 1)) * 1024;
  }
  return -1;
}

/// Makes the peak what the resident set is now.
bool ForgetPeak() {
  std::ofstream clear("/proc/self/clear_refs");
  clear << "5" << std::flush;
  return clear.good();
}

TEST(WeightMemory, StreamedStaysWithinItsFigure) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's own memory counts in the resident set";
#endif
  const HollowCheckpoint checkpoint(json::Parse(kConfig).value());
  const auto model = OpenModelFolder(checkpoint.folder(), {24});
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  const EngineMemory memory = model->description.memory;
  ASSERT_GT(memory.resident_bytes, 20 * memory.layer_bytes);
  for (const int slots : {2, 3}) {
    if (!ForgetPeak()) GTEST_SKIP() << "this system does not reset the peak of a process's memory";
    const std::int64_t before = StatusBytes("VmRSS");
    {
      auto store = WeightStore<Bf16>::Open(*model, {WeightPolicy::kStreamed, slots});
      ASSERT_TRUE(store.ok()) << store.status().ToString();
      for (std::int64_t layer = 0; layer < 24; ++layer) {
        ASSERT_TRUE((*store)->Acquire(layer).ok());
        if (layer > 0) (*store)->Release(layer - 1);
      }
      (*store)->Release(23);
    }
    const std::int64_t peak = StatusBytes("VmHWM") - before;
    EXPECT_LE(peak, slots * memory.layer_bytes + memory.reading_bytes + kSlack);
    EXPECT_GE(peak, slots * memory.layer_bytes);
  }
}

}  // namespace
}  // namespace draftmill

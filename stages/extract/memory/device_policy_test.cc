#include "stages/extract/memory/device_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace draftmill {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t kGib = std::int64_t{1} << 30;

/// 80 layers of 1.7 GB, as a 70B model has them.
ModelDescription LargeModel() {
  ModelDescription model;
  model.layers = {2, 40, 77, 80};
  model.hidden_size = 8192;
  model.device_memory.shared_bytes = 2 * kGib;
  model.device_memory.layer_bytes = 17 * kGib / 10;
  model.device_memory.resident_bytes = 2 * kGib + 80 * model.device_memory.layer_bytes;
  model.device_memory.token_bytes = 200'000;
  model.device_memory.block_token_bytes = 32'768;
  return model;
}

class DevicePolicyTest : public ::testing::Test {
 protected:
  DevicePolicyTest() {
    options_.device_count = 1;
    options_.device_bytes = 139 * kGib;
  }
  DevicePlan Plan() const {
    const Result<DevicePlan> plan = PlanDevices(model_, options_);
    EXPECT_TRUE(plan.ok()) << plan.status().ToString();
    return plan.ok() ? *plan : DevicePlan{};
  }

  ModelDescription model_ = LargeModel();
  ExtractOptions options_;
};

TEST_F(DevicePolicyTest, WeightsStayWhereTheyFit) {
  options_.device_bytes = 200 * kGib;
  const DevicePlan plan = Plan();
  EXPECT_EQ(plan.weights, DeviceWeightPolicy::kResident);
  EXPECT_EQ(plan.sizes.batch_tokens, 32768);
  EXPECT_EQ(plan.sizes.block_tokens, 32768) << "no other order saves anything";
  EXPECT_THAT(plan.reason, AllOf(HasSubstr("weights resident"), HasSubstr("200.0 GiB free")));
}

TEST_F(DevicePolicyTest, WhatFitsOnNoGpuIsStreamedAndOnAllTogetherSharded) {
  const DevicePlan one = Plan();
  EXPECT_EQ(one.weights, DeviceWeightPolicy::kStreamed);
  EXPECT_TRUE(one.from_memory) << "the host has no limit";
  EXPECT_EQ(one.sizes.block_tokens, 65536) << "so that a layer's way over the link hides behind its computing";
  EXPECT_THAT(one.reason, AllOf(HasSubstr("streamed from pinned host memory"), HasSubstr("do not fit on a GPU")));
  options_.device_count = 2;
  const DevicePlan two = Plan();
  EXPECT_EQ(two.weights, DeviceWeightPolicy::kSharded);
  EXPECT_THAT(two.reason, HasSubstr("sharded over 2 GPUs"));
  EXPECT_LE(two.device_bytes, options_.device_bytes);
}

TEST_F(DevicePolicyTest, AHostWithoutRoomForTheWeightsStreamsFromDiskInLargerBlocks) {
  options_.memory_bytes = 100 * kGib;
  const DevicePlan plan = Plan();
  EXPECT_EQ(plan.weights, DeviceWeightPolicy::kStreamed);
  EXPECT_FALSE(plan.from_memory);
  EXPECT_GT(plan.sizes.block_tokens, 65536);
  EXPECT_LE(plan.host_bytes, options_.memory_bytes);
  EXPECT_THAT(plan.reason, HasSubstr("streamed from disk"));
}

TEST_F(DevicePolicyTest, SizesShrinkToWhatIsFreeOnTheHostToo) {
  options_.device_bytes = 200 * kGib;
  options_.memory_bytes = 4 * kGib;  // 64 KiB of states a token, three batches
  EXPECT_EQ(Plan().sizes.batch_tokens, 16384);
  options_.memory_bytes = 0;
  options_.device_bytes = 145 * kGib;
  EXPECT_EQ(Plan().weights, DeviceWeightPolicy::kResident);
  EXPECT_LT(Plan().sizes.batch_tokens, 32768);
}

TEST_F(DevicePolicyTest, SettledSizesAreKeptWhateverIsFree) {
  options_.device_bytes = 200 * kGib;
  options_.batch_tokens = 5000;
  options_.block_tokens = 20000;
  EXPECT_EQ(Plan().sizes.batch_tokens, 5000);
  EXPECT_EQ(Plan().sizes.block_tokens, 20000);
  EXPECT_EQ(Plan().weights, DeviceWeightPolicy::kResident);
  // The next start finds less: another policy, the same sizes.
  options_.device_bytes = 60 * kGib;
  EXPECT_EQ(Plan().weights, DeviceWeightPolicy::kStreamed);
  EXPECT_EQ(Plan().sizes.batch_tokens, 5000);
  EXPECT_EQ(Plan().sizes.block_tokens, 20000);
}

TEST_F(DevicePolicyTest, LessIsInFlightBeforeAPlannedRunIsRefused) {
  options_.device_bytes = 200 * kGib;
  options_.batch_tokens = 32768;
  options_.block_tokens = 32768;
  EXPECT_EQ(Plan().blocks_in_flight, 2);
  options_.memory_bytes = 5 * kGib;  // two batches of 2 GiB, not three
  EXPECT_EQ(Plan().blocks_in_flight, 1);
  options_.memory_bytes = 3 * kGib;
  const Status status = PlanDevices(model_, options_).status();
  EXPECT_EQ(status.code(), StatusCode::kOutOfMemory);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("limits.memory"), HasSubstr("extract.batch_tokens"),
                                      HasSubstr(std::to_string(options_.memory_bytes))));
}

TEST_F(DevicePolicyTest, ANamedPolicyIsTakenOrRefusedWithBothNumbers) {
  options_.weights = "streamed";
  options_.device_bytes = 200 * kGib;
  EXPECT_EQ(Plan().weights, DeviceWeightPolicy::kStreamed);
  EXPECT_THAT(Plan().reason, HasSubstr("as extract.weights says"));
  options_.weights = "resident";
  options_.device_bytes = 100 * kGib;
  const Status status = PlanDevices(model_, options_).status();
  EXPECT_EQ(status.code(), StatusCode::kOutOfMemory);
  EXPECT_THAT(status.message(), AllOf(HasSubstr(std::to_string(options_.device_bytes)),
                                      HasSubstr("extract.weights to auto"), HasSubstr("Nothing was loaded")));
  options_.weights = "elsewhere";
  EXPECT_EQ(PlanDevices(model_, options_).status().code(), StatusCode::kInvalidConfig);
}

TEST_F(DevicePolicyTest, AGpuThatIsNearlyFullIsRefused) {
  options_.device_bytes = 4 * kGib;
  const Status status = PlanDevices(model_, options_).status();
  EXPECT_EQ(status.code(), StatusCode::kOutOfMemory);
  EXPECT_THAT(status.message(), HasSubstr("End what else runs on the GPU"));
}

TEST_F(DevicePolicyTest, ABlockThatIsGivenIsTakenOneAtATimeOrRefusedWithWhatItNeeds) {
  options_.weights = "streamed";
  options_.block_tokens = 262144;  // 16 GiB of states
  options_.memory_bytes = 30 * kGib;
  const DevicePlan plan = Plan();
  EXPECT_EQ(plan.sizes.block_tokens, 262144);
  EXPECT_EQ(plan.blocks_in_flight, 1);
  EXPECT_FALSE(plan.from_memory);
  options_.memory_bytes = 10 * kGib;
  const Status status = PlanDevices(model_, options_).status();
  EXPECT_EQ(status.code(), StatusCode::kOutOfMemory);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("blocks of 262144 tokens"), HasSubstr("lower extract.batch_tokens or "
                                                                                      "extract.block_tokens")));
  const std::string needed = "the host would need ";
  const std::size_t at = status.message().find(needed);
  ASSERT_NE(at, std::string::npos);
  EXPECT_GT(std::stoll(status.message().substr(at + needed.size())), options_.memory_bytes);
}

TEST_F(DevicePolicyTest, ExpertsGetLargeBlocks) {
  options_.device_bytes = 200 * kGib;
  model_.spans_blocks = true;
  EXPECT_EQ(Plan().weights, DeviceWeightPolicy::kResident);
  EXPECT_EQ(Plan().sizes.batch_tokens, 65536);
  EXPECT_EQ(Plan().sizes.block_tokens, 524288);
}

}  // namespace
}  // namespace draftmill

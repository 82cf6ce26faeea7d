#include "stages/extract/device/device_claim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <map>

#include "state/file_system.h"
#include "state/temporary_folder.h"

namespace draftmill {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t kGib = std::int64_t{1} << 30;

/// GPUs as a test says they are.
class PlannedGpus : public GpuReader {
 public:
  Result<GpuReading> Read(const std::string& bus_id) override {
    if (on_read) on_read();
    return gpus.at(bus_id);
  }
  std::map<std::string, GpuReading> gpus;
  std::function<void()> on_read;
};

class DeviceClaimTest : public ::testing::Test {
 protected:
  DeviceClaimTest() {
    gpus_.gpus["a"] = {"NVIDIA H200", 0, 139 * kGib, 140 * kGib, {}};
    gpus_.gpus["b"] = {"NVIDIA H200", 1, 139 * kGib, 140 * kGib, {}};
    for (const char* minor : {"0", "1"}) {
      EXPECT_TRUE(RealFileSystem().WriteAtomically(folder_.path() + "/nvidia" + minor, "").ok());
    }
    request_.bus_ids = {"a", "b"};
    request_.device_files = folder_.path() + "/nvidia";
    request_.poll = std::chrono::milliseconds(1);
  }

  TemporaryFolder folder_;
  PlannedGpus gpus_;
  ClaimRequest request_;
};

TEST_F(DeviceClaimTest, FreeGpusAreTakenOnceAtATime) {
  {
    const Result<DeviceClaim> first = ClaimDevices(request_, gpus_);
    ASSERT_TRUE(first.ok()) << first.status().ToString();
    const Result<DeviceClaim> second = ClaimDevices(request_, gpus_);
    EXPECT_EQ(second.status().code(), StatusCode::kConflict);
    EXPECT_THAT(second.status().message(), HasSubstr("another draftmill has claimed it"));
  }
  EXPECT_TRUE(ClaimDevices(request_, gpus_).ok()) << "a claim that is gone holds nothing";
}

TEST_F(DeviceClaimTest, AFailedClaimHoldsNothing) {
  gpus_.gpus["b"].processes = {{7, 3 * kGib, "python3 serve.py"}};
  ASSERT_FALSE(ClaimDevices(request_, gpus_).ok());
  request_.bus_ids = {"a"};
  EXPECT_TRUE(ClaimDevices(request_, gpus_).ok());
}

TEST_F(DeviceClaimTest, OccupantsAreNamedWithTheirMemory) {
  gpus_.gpus["b"].processes = {{4711, 71 * kGib, "python3 -m serve"}, {4712, -1, ""}};
  gpus_.gpus["b"].free_bytes = 68 * kGib;
  const Status status = ClaimDevices(request_, gpus_).status();
  EXPECT_EQ(status.code(), StatusCode::kConflict);
  EXPECT_THAT(
      status.message(),
      AllOf(HasSubstr("NVIDIA H200 at b is occupied"), HasSubstr("process 4711 (python3 -m serve) holds 71.0 GiB"),
            HasSubstr("process 4712 (not visible from here)"), HasSubstr("68.0 GiB of 140.0 GiB are free"),
            HasSubstr("Nothing was started"), HasSubstr("extract.occupied")));
}

TEST_F(DeviceClaimTest, ThisProcessIsNoOccupant) {
  gpus_.gpus["a"].processes = {{::getpid(), kGib, "this test"}};
  EXPECT_TRUE(ClaimDevices(request_, gpus_).ok());
}

TEST_F(DeviceClaimTest, WaitingSaysForWhomAndGoesOnWhenTheyLeave) {
  gpus_.gpus["a"].processes = {{4711, kGib, "serve"}};
  request_.when_occupied = WhenOccupied::kWait;
  std::vector<std::string> said;
  request_.say = [&](const std::string& text) { said.push_back(text); };
  int reads = 0;
  gpus_.on_read = [&] {
    if (++reads == 9) gpus_.gpus["a"].processes.clear();
  };
  ASSERT_TRUE(ClaimDevices(request_, gpus_).ok());
  EXPECT_GE(reads, 9);
  ASSERT_EQ(said.size(), 1U) << "once, not at every look";
  EXPECT_THAT(said[0], AllOf(HasSubstr("waiting for GPUs"), HasSubstr("process 4711")));
}

TEST_F(DeviceClaimTest, WaitingEndsOnRequest) {
  gpus_.gpus["a"].processes = {{4711, kGib, "serve"}};
  request_.when_occupied = WhenOccupied::kWait;
  int asked = 0;
  request_.should_stop = [&] { return ++asked > 3; };
  EXPECT_EQ(ClaimDevices(request_, gpus_).status().code(), StatusCode::kCancelled);
}

TEST_F(DeviceClaimTest, AGpuWithoutADeviceFileIsJudgedByItsProcessesAlone) {
  request_.device_files = folder_.path() + "/none";
  EXPECT_TRUE(ClaimDevices(request_, gpus_).ok());
  gpus_.gpus["a"].processes = {{4711, kGib, "serve"}};
  EXPECT_FALSE(ClaimDevices(request_, gpus_).ok());
}

TEST(GpuReaderTest, WithoutTheLibraryTheReasonIsTold) {
  const Result<GpuReader*> nvml = LoadNvml();
  if (nvml.ok()) GTEST_SKIP() << "this machine has NVML";
  EXPECT_EQ(nvml.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(nvml.status().message(), HasSubstr("libnvidia-ml.so.1"));
}

}  // namespace
}  // namespace draftmill

#include "stages/extract/device/device_fault.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace draftmill {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(DeviceFaultTest, AFaultNamesTheGpuWhatIsLostAndWhatToDo) {
  const Status status = DescribeDeviceFault(
      "GPU 1 (NVIDIA H200)", DeviceError("waiting for a batch: an illegal memory access was encountered"));
  EXPECT_EQ(status.code(), StatusCode::kDevice);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("GPU 1 (NVIDIA H200) failed"), HasSubstr("illegal memory access"),
                                      HasSubstr("everything published is safe"), HasSubstr("Run again")));
}

TEST(DeviceFaultTest, OtherFailuresStayWhatTheyAre) {
  EXPECT_TRUE(DescribeDeviceFault("GPU 0", OkStatus()).ok());
  EXPECT_EQ(DescribeDeviceFault("GPU 0", OutOfMemory("full")).ToString(), OutOfMemory("full").ToString());
}

TEST(DeviceFaultTest, TheSwitchIsReadWholeOrNotAtAll) {
  const std::optional<PlannedDeviceFault> fault = ParseDeviceFault("illegal_access:1:30");
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->kind, DeviceFaultKind::kIllegalAccess);
  EXPECT_EQ(fault->device, 1);
  EXPECT_EQ(fault->block, 30);
  EXPECT_EQ(ParseDeviceFault("lost:0:1")->kind, DeviceFaultKind::kLost);
  for (const char* text :
       {"", "lost", "lost:0", "lost:0:0", "lost:-1:1", "lost:0:1x", "lost:x:1", "gone:0:1", "lost:0:1:1"}) {
    EXPECT_FALSE(ParseDeviceFault(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace draftmill

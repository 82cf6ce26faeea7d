// Takes GPUs for this process before anything is loaded: names whoever computes on them already, and fails or waits.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(DeviceClaim claim, ClaimDevices({bus_ids, WhenOccupied::kFail}, gpus));
//
// A claim is a kernel lock on the GPU's device file, held until the claim is destroyed: of two runs that start at the
// same moment one gets the GPU, and a killed one leaves nothing behind. Programs other than draftmill do not look at
// it; they are seen once they compute. Ask before this process takes memory of a GPU: in a container it may not know
// itself in the driver's list. Safe from any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "stages/extract/device/gpu_reader.h"

namespace draftmill {

enum class WhenOccupied : std::uint8_t { kFail, kWait };

struct ClaimRequest {
  std::vector<std::string> bus_ids;
  WhenOccupied when_occupied = WhenOccupied::kFail;
  std::function<void(const std::string&)> say = {};  ///< told whom it waits for, when that changes
  std::function<bool()> should_stop = {};            ///< ends waiting
  std::chrono::milliseconds poll = std::chrono::seconds(5);
  std::string device_files = "/dev/nvidia";  ///< and the GPU's minor number
};

/// The locks of a claim. Movable.
class DeviceClaim {
 public:
  DeviceClaim() = default;
  DeviceClaim(DeviceClaim&& other) noexcept;
  DeviceClaim& operator=(DeviceClaim&& other) noexcept;
  ~DeviceClaim();

 private:
  friend class Claimer;
  std::vector<int> locks_;
};

/// All GPUs or none. kConflict names GPUs, processes and memory; kCancelled where waiting was stopped.
Result<DeviceClaim> ClaimDevices(const ClaimRequest& request, GpuReader& gpus);

/// "12.5 GiB"
std::string GibibytesText(std::int64_t bytes);

}  // namespace draftmill

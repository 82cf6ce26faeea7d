// Faults of a GPU: what is said of them, and a switch that makes one happen, for tests.
//
// A fault of a GPU cannot be repaired within the process: an illegal access leaves it unusable, an uncorrectable memory
// error or a lost GPU even more so. The run ends with 75; started again it takes the GPUs that answer.
//
// DRAFTMILL_DEVICE_FAULT=KIND:DEVICE:BLOCK, where KIND is illegal_access (a kernel really writes where it may not),
// memory_error, lost or out_of_memory: when GPU DEVICE begins its BLOCK-th block, from 1. Safe from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace draftmill {

/// A failure of a GPU with which one it is, what is lost and what to do; any other failure as it is.
Status DescribeDeviceFault(const std::string& gpu, const Status& status);

enum class DeviceFaultKind : std::uint8_t { kIllegalAccess, kMemoryError, kLost, kOutOfMemory };

/// A fault that was asked for.
struct PlannedDeviceFault {
  DeviceFaultKind kind = DeviceFaultKind::kLost;
  int device = 0;
  std::int64_t block = 1;
};

/// "lost:0:3"; nothing where the text is no such thing.
std::optional<PlannedDeviceFault> ParseDeviceFault(std::string_view text);

}  // namespace draftmill

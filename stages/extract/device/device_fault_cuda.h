// The parts of faults that need the CUDA runtime (device_fault.h).
#pragma once

#include "base/status.h"

namespace draftmill {

/// The fault that DRAFTMILL_DEVICE_FAULT asks for, if it is this block's turn on this GPU, which must be current.
/// Counts.
Status InjectedDeviceFault(int device);

/// Gives memory that torch keeps for later back to the driver.
void ReleaseCachedDeviceMemory();

}  // namespace draftmill

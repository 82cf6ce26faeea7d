// What a GPU can do, measured with the calls that the engine makes.
#pragma once

#include "base/status.h"
#include "stages/extract/device/device_engine.h"

namespace draftmill {

/// Measures the GPU that is current; see DeviceEngine::MeasureRates. May throw what torch throws.
Result<DeviceRates> MeasureDeviceRates(double seconds);

}  // namespace draftmill

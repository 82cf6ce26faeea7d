// Time for measurements: how long something took, never when it happened.
#pragma once

#include <chrono>

namespace draftmill {

/// Seconds of a clock that never runs backwards, from an unknown start. Safe from any thread.
inline double SteadySeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace draftmill

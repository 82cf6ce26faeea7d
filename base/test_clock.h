// Time bounds in tests: processor time of this process, so that a busy machine does not fail them, with room for
// sanitizers, under which the same work takes several times as long.
#pragma once

#include <ctime>

namespace draftmill {

/// Seconds of processor time that the process has used.
inline double ProcessorSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr double kSanitizerSlowdown = 10.0;
#else
inline constexpr double kSanitizerSlowdown = 1.0;
#endif

}  // namespace draftmill

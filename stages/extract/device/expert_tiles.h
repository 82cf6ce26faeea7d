// How well one product for each expert fills a GPU, known from the experts' rows alone.
//
//   if (FilledShare({row_starts, experts, hidden, width}, multiprocessors) < kLeastFilledShare) ... one for all of them
//
// A product is cut into tiles that the multiprocessors take in turns; the last turn, and with few rows the only one,
// leaves most of them idle. Pure functions; no CUDA here.
#pragma once

#include <cstdint>

namespace draftmill {

/// Experts of a layer and the matrices [2 * width, hidden] and [hidden, width] of each.
struct ExpertShapes {
  const std::int32_t* row_starts = nullptr;  ///< [experts + 1]: where each one's rows begin
  std::int64_t experts = 0;
  std::int64_t hidden = 0;
  std::int64_t width = 0;
};

/// Below this experts are multiplied together. Measured (docs/benchmarks.md): at 0.4 that is 2.3 times as fast; at 0.8 it
/// is slower, since grouped products reach 0.85 to 0.93 of the rate of single ones and their results are copied.
inline constexpr double kLeastFilledShare = 0.7;

/// The share of the multiprocessors' time that has work, in (0, 1]; 1 where there are no rows.
double FilledShare(const ExpertShapes& shapes, std::int64_t multiprocessors);

}  // namespace draftmill

#include "stages/extract/device/expert_tiles.h"

namespace draftmill {
namespace {

/// Of the kernels that libraries choose for large bfloat16 products on Hopper.
constexpr std::int64_t kTileRows = 128;
constexpr std::int64_t kTileColumns = 256;

std::int64_t CeilDiv(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Time of multiprocessors: what has work, and all.
struct Turns {
  std::int64_t filled = 0;
  std::int64_t offered = 0;

  void Add(std::int64_t rows, std::int64_t outputs, std::int64_t inputs, std::int64_t multiprocessors) {
    const std::int64_t tiles = CeilDiv(rows, kTileRows) * CeilDiv(outputs, kTileColumns);
    filled += tiles * inputs;
    offered += CeilDiv(tiles, multiprocessors) * multiprocessors * inputs;
  }
};

}  // namespace

double FilledShare(const ExpertShapes& shapes, std::int64_t multiprocessors) {
  Turns turns;
  for (std::int64_t expert = 0; expert < shapes.experts; ++expert) {
    const std::int64_t rows = shapes.row_starts[expert + 1] - shapes.row_starts[expert];
    turns.Add(rows, 2 * shapes.width, shapes.hidden, multiprocessors);
    turns.Add(rows, shapes.hidden, shapes.width, multiprocessors);
  }
  return turns.offered == 0 ? 1.0 : static_cast<double>(turns.filled) / static_cast<double>(turns.offered);
}

}  // namespace draftmill

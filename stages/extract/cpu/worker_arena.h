// The engine's threads: one TBB arena whose tasks run with ATen single-threaded.
//
//   WorkerArena arena(options.threads);
//   arena.ForEach(tiles.size(), [&](std::size_t i) { Compute(tiles[i]); });   // returns when all have run
//
// ForEach is called from one thread at a time; an exception of a body ends it and is thrown there.
#pragma once

#include <oneapi/tbb/blocked_range.h>
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <cstddef>

#include "stages/extract/cpu/products.h"

namespace draftmill {

class WorkerArena {
 public:
  explicit WorkerArena(int threads)
      : workers_(tbb::global_control::max_allowed_parallelism,
                 std::max(static_cast<std::size_t>(threads),
                          tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism))),
        arena_(threads) {}

  /// Runs body(0), ..., body(count - 1) as tasks.
  template <typename Body>
  void ForEach(std::size_t count, const Body& body) {
    arena_.execute([&] {
      tbb::parallel_for(
          tbb::blocked_range<std::size_t>(0, count, 1),
          [&](const tbb::blocked_range<std::size_t>& range) {
            PrepareProductThread();
            for (std::size_t i = range.begin(); i != range.end(); ++i) body(i);
          },
          tbb::simple_partitioner());
    });
  }

 private:
  tbb::global_control workers_;  // lets the arena have more threads than the machine has processors
  tbb::task_arena arena_;
};

}  // namespace draftmill

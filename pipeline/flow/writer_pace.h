// Whether the disk keeps up with the engine: how both spent the last half minute.
//
//   pace.EngineWaited(seconds);                              // for room in the queue of states
//   if (auto span = pace.Wrote(now, busy_seconds, bytes)) ...  // after each batch; a value once a span is over
//
// EngineWaited may be called from any thread, Wrote from the writer's alone.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

namespace draftmill {

/// How a span of time was spent.
struct WriterSpan {
  double seconds = 0;
  double engine_waited = 0;  ///< seconds for which the engine had states that the queue had no room for
  double writer_busy = 0;    ///< seconds in which the writer hashed, wrote and synced
  std::int64_t bytes = 0;    ///< written

  /// The writer never rested and the engine did.
  bool disk_is_slower() const { return engine_waited > 0.1 * seconds && writer_busy > 0.9 * seconds; }
  double bytes_per_second() const { return seconds > 0 ? static_cast<double>(bytes) / seconds : 0; }
};

class WriterPace {
 public:
  explicit WriterPace(double span_seconds = 30) : span_seconds_(span_seconds) {}

  void EngineWaited(double seconds);
  /// A batch was written in `busy_seconds`, at `now` (seconds of a clock that does not run backwards).
  std::optional<WriterSpan> Wrote(double now, double busy_seconds, std::int64_t bytes);

 private:
  const double span_seconds_;
  std::mutex mutex_;
  double begun_ = -1;
  WriterSpan span_;
};

/// "in the last 31 s the engine waited 12 s for the disk, which took 0.85 GB/s"
std::string Describe(const WriterSpan& span);

}  // namespace draftmill

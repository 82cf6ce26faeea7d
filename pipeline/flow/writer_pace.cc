#include "pipeline/flow/writer_pace.h"

#include <fmt/format.h>

#include <utility>

namespace draftmill {

void WriterPace::EngineWaited(double seconds) {
  const std::lock_guard lock(mutex_);
  span_.engine_waited += seconds;
}

std::optional<WriterSpan> WriterPace::Wrote(double now, double busy_seconds, std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  // The first span begins with the first batch's writing, not with the loading of the model before it.
  if (begun_ < 0) begun_ = now - busy_seconds;
  span_.writer_busy += busy_seconds;
  span_.bytes += bytes;
  span_.seconds = now - begun_;
  if (span_.seconds < span_seconds_) return std::nullopt;
  begun_ = now;
  return std::exchange(span_, WriterSpan{});
}

std::string Describe(const WriterSpan& span) {
  return fmt::format("in the last {:.0f} s the engine waited {:.0f} s for the disk, which took {:.2f} GB/s",
                     span.seconds, span.engine_waited, span.bytes_per_second() * 1e-9);
}

}  // namespace draftmill

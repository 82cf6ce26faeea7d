#include "pipeline/run/run_monitor.h"

#include <utility>

namespace draftmill {
namespace {

/// How often a point of throughput is kept.
constexpr std::int64_t kSpanNs = 2'000'000'000;

}  // namespace

void RunMonitor::Begin(const StageProgress& progress) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Meter& meter = meters_[progress.stage];
  meter.progress = progress;
  meter.span_start_ns = 0;
  sink_.Update(meter.progress);
}

void RunMonitor::Add(const std::string& stage, std::int64_t samples, std::int64_t tokens, std::int64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Meter& meter = meters_[stage];
  const std::int64_t now_ns = clock_.MonotonicNs();
  if (meter.span_start_ns == 0) meter.span_start_ns = now_ns;
  meter.progress.stage = stage;
  if (meter.progress.activity == StageActivity::kWaiting) meter.progress.activity = StageActivity::kRunning;
  meter.progress.done += samples;
  meter.progress.tokens += tokens;
  meter.progress.bytes += bytes;
  meter.samples += samples;
  meter.tokens += tokens;
  meter.bytes += bytes;
  if (now_ns - meter.span_start_ns >= kSpanNs) Keep(meter, now_ns);
  sink_.Update(meter.progress);
}

void RunMonitor::Set(const std::string& stage, std::int64_t done, std::int64_t total, std::int64_t rows,
                     std::int64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Meter& meter = meters_[stage];
  const std::int64_t now_ns = clock_.MonotonicNs();
  if (meter.span_start_ns == 0) meter.span_start_ns = now_ns;
  meter.progress.stage = stage;
  meter.progress.total = total;
  meter.progress.done = done;
  meter.progress.bytes = bytes;
  meter.samples += rows - std::exchange(meter.rows_set, rows);
  meter.bytes += bytes - std::exchange(meter.bytes_set, bytes);
  if (now_ns - meter.span_start_ns >= kSpanNs) Keep(meter, now_ns);
  sink_.Update(meter.progress);
}

void RunMonitor::SetBufferFill(const std::string& stage, double fill) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Meter& meter = meters_[stage];
  meter.progress.stage = stage;
  meter.progress.buffer_fill = fill;
  sink_.Update(meter.progress);
}

void RunMonitor::SetActivity(const std::string& stage, StageActivity activity) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Meter& meter = meters_[stage];
  meter.progress.stage = stage;
  meter.progress.activity = activity;
  if (meter.span_start_ns == 0 && activity == StageActivity::kRunning) meter.span_start_ns = clock_.MonotonicNs();
  sink_.Update(meter.progress);
}

void RunMonitor::Say(EventLevel level, const std::string& text) {
  state_.AddEvent(level, text);
  sink_.Line(text);
}

void RunMonitor::Finish() {
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::int64_t now_ns = clock_.MonotonicNs();
  for (auto& [stage, meter] : meters_) Keep(meter, now_ns);
}

void RunMonitor::Keep(Meter& meter, std::int64_t now_ns) {
  const std::int64_t span_ms = (now_ns - meter.span_start_ns) / 1'000'000;
  if (meter.span_start_ns == 0 || span_ms <= 0 || (meter.samples == 0 && meter.tokens == 0 && meter.bytes == 0)) return;
  state_.AddThroughput({.stage = meter.progress.stage,
                        .at_ms = clock_.UnixMs(),
                        .span_ms = span_ms,
                        .samples = meter.samples,
                        .tokens = meter.tokens,
                        .bytes = meter.bytes});
  meter.span_start_ns = now_ns;
  meter.samples = 0;
  meter.tokens = 0;
  meter.bytes = 0;
}

}  // namespace draftmill

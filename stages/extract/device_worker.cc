#include "stages/extract/device_worker.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "stages/extract/device_guard.h"

namespace draftmill {
namespace {

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

DeviceWorker::DeviceWorker(int device, std::unique_ptr<DeviceDecoder> decoder, std::int64_t vocab_rows, std::int64_t state_width,
                           int slabs, Done done)
    : device_(device),
      decoder_(std::move(decoder)),
      vocab_rows_(vocab_rows),
      state_width_(state_width),
      slabs_(slabs),
      done_(std::move(done)),
      thread_([this] { Loop(); }) {}

DeviceWorker::~DeviceWorker() {
  stop_ = true;
  {
    const std::lock_guard lock(mutex_);
    quit_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void DeviceWorker::Add(const DeviceJob& job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(job);
  }
  changed_.notify_one();
}

/// The next job; none at the end, or where there is none and a batch under way can be finished instead.
std::optional<DeviceJob> DeviceWorker::NextJob() {
  std::unique_lock lock(mutex_);
  if (under_way_.empty()) changed_.wait(lock, [&] { return quit_ || !jobs_.empty(); });
  if (jobs_.empty()) return std::nullopt;
  const DeviceJob job = jobs_.front();
  jobs_.pop_front();
  return job;
}

void DeviceWorker::Loop() {
  failure_ = cuda::Check(cudaSetDevice(device_), "cudaSetDevice");
  while (true) {
    if (static_cast<int>(under_way_.size()) == kDeviceSlots) FinishOldest();
    const std::optional<DeviceJob> job = NextJob();
    if (job) {
      Begin(*job);
    } else if (!under_way_.empty()) {
      FinishOldest();
    } else {
      return;
    }
  }
}

void DeviceWorker::Begin(const DeviceJob& job) {
  if (!failure_.ok()) return done_(job, failure_);
  if (stop_) return done_(job, Cancelled("stopped on request"));
  Result<UnderWay> started = Guarded([&] { return Start(job); });
  if (started.ok()) return under_way_.push_back(std::move(*started));
  if (started.status().code() == StatusCode::kDevice) failure_ = started.status();
  // States are handed out in order: what was begun before comes first.
  while (!under_way_.empty()) FinishOldest();
  done_(job, started.status());
}

Result<DeviceWorker::UnderWay> DeviceWorker::Start(const DeviceJob& job) {
  UnderWay under_way;
  under_way.job = job;
  DRAFTMILL_ASSIGN_OR_RETURN(under_way.batch, PackDeviceBatch(*job.chunk, *job.plan, job.batch, vocab_rows_));
  DRAFTMILL_RETURN_IF_ERROR(decoder_->Reserve(job.most_tokens, job.most_samples, job.longest));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::shared_ptr<Slab> slab, slabs_.Acquire(2 * job.most_tokens * state_width_, stop_));
  BatchStates& states = under_way.batch.states;
  states.hidden_states =
      StateVector(static_cast<std::size_t>(under_way.batch.tokens * state_width_), StateAllocator(slab));
  under_way.slot = under_way_.empty() ? 0 : (under_way_.back().slot + 1) % kDeviceSlots;
  under_way.started = Now();
  // A uint16_t of the interface and a Bf16 of the kernels are the same two bytes.
  auto* const host = reinterpret_cast<Bf16*>(states.hidden_states.data());
  DRAFTMILL_RETURN_IF_ERROR(decoder_->Start(under_way.slot, under_way.batch, host));
  return under_way;
}

void DeviceWorker::FinishOldest() {
  UnderWay under_way = std::move(under_way_.front());
  under_way_.pop_front();
  Result<BatchStates> states = failure_.ok() ? Guarded([&] { return Finish(under_way); }) : Result<BatchStates>(failure_);
  if (!states.ok() && states.status().code() == StatusCode::kDevice) failure_ = states.status();
  done_(under_way.job, std::move(states));
}

Result<BatchStates> DeviceWorker::Finish(UnderWay& under_way) {
  DRAFTMILL_ASSIGN_OR_RETURN(std::vector<std::int64_t> bad, decoder_->Wait(under_way.slot));
  if (!bad.empty()) {
    DRAFTMILL_ASSIGN_OR_RETURN(bad, Repeat(under_way));
    Quarantine(bad, under_way.batch);
  }
  const double now = Now();
  under_way.batch.states.compute_seconds = now - std::max(under_way.started, finished_);
  finished_ = now;
  return std::move(under_way.batch.states);
}

Result<std::vector<std::int64_t>> DeviceWorker::Repeat(UnderWay& under_way) {
  auto* const host = reinterpret_cast<Bf16*>(under_way.batch.states.hidden_states.data());
  DRAFTMILL_RETURN_IF_ERROR(decoder_->Start(under_way.slot, under_way.batch, host));
  return decoder_->Wait(under_way.slot);
}

void DeviceWorker::Quarantine(const std::vector<std::int64_t>& samples, DeviceBatch& batch) const {
  for (const std::int64_t sample : samples) {
    const std::int64_t first = batch.cu_seqlens[static_cast<std::size_t>(sample)];
    const std::int64_t tokens = batch.cu_seqlens[static_cast<std::size_t>(sample) + 1] - first;
    std::fill_n(batch.states.hidden_states.begin() + first * state_width_, tokens * state_width_, std::uint16_t{0});
    batch.states.sample_state[static_cast<std::size_t>(sample)] = 1;
  }
}

}  // namespace draftmill

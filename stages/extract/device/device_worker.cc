#include "stages/extract/device/device_worker.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/start_threads.h"
#include "stages/extract/device/device_fault.h"
#include "stages/extract/device/device_fault_cuda.h"
#include "stages/extract/device/device_guard.h"

namespace draftmill {
namespace {

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

DeviceWorker::DeviceWorker(DeviceWorkerOptions options, std::unique_ptr<DeviceDecoder> decoder, Done done)
    : options_(std::move(options)), decoder_(std::move(decoder)), done_(std::move(done)) {}

DeviceWorker::~DeviceWorker() {
  stop_ = true;
  {
    const std::lock_guard lock(mutex_);
    quit_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

Status DeviceWorker::Run() {
  DRAFTMILL_ASSIGN_OR_RETURN(thread_, StartThread([this] { Loop(); }));
  return OkStatus();
}

void DeviceWorker::Add(DeviceJob job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
}

/// The next job; none at the end, or where there is none and a block under way can be finished instead.
std::optional<DeviceJob> DeviceWorker::NextJob() {
  std::unique_lock lock(mutex_);
  if (under_way_.empty()) changed_.wait(lock, [&] { return quit_ || !jobs_.empty(); });
  if (jobs_.empty()) return std::nullopt;
  DeviceJob job = std::move(jobs_.front());
  jobs_.pop_front();
  return job;
}

void DeviceWorker::Loop() {
  failure_ = cuda::Check(cudaSetDevice(options_.device), "cudaSetDevice");
  while (true) {
    std::optional<DeviceJob> job = NextJob();
    if (job) {
      while (static_cast<int>(under_way_.size()) >= std::min(in_flight_, job->in_flight)) FinishOldest();
      Begin(*std::move(job));
    } else if (!under_way_.empty()) {
      FinishOldest();
    } else {
      return;
    }
  }
}

/// Answers what is left of a job with its failure.
void DeviceWorker::Fail(const DeviceJob& job, std::size_t handed_out, const Status& status) {
  for (std::size_t i = handed_out; i < job.wanted.size(); ++i) done_(job, status);
}

void DeviceWorker::Begin(DeviceJob job) {
  if (failure_.ok() && stop_) return Fail(job, 0, Cancelled("stopped on request"));
  if (!failure_.ok()) return Fail(job, 0, failure_);
  Result<UnderWay> started = Guarded([&] { return Start(job); });
  if (started.ok()) {
    under_way_.push_back(std::move(*started));
    return MakeSlabsAhead();
  }
  const Status status = DescribeDeviceFault(options_.name, started.status());
  if (status.code() == StatusCode::kDevice) failure_ = status;
  // States are handed out in order: what was begun before comes first.
  while (!under_way_.empty()) FinishOldest();
  Fail(job, 0, status);
}

Result<DeviceWorker::UnderWay> DeviceWorker::Start(const DeviceJob& job) {
  DRAFTMILL_RETURN_IF_ERROR(InjectedDeviceFault(options_.device));
  DRAFTMILL_RETURN_IF_ERROR(Reserve(job.room));
  DRAFTMILL_ASSIGN_OR_RETURN(UnderWay under_way, Pack(job));
  DRAFTMILL_RETURN_IF_ERROR(TakeSlabs(under_way));
  under_way.slot = under_way_.empty() ? 0 : (under_way_.back().slot + 1) % kDeviceSlots;
  under_way.started = Now();
  DRAFTMILL_RETURN_IF_ERROR(decoder_->Start(under_way.slot, under_way.block, stop_));
  return under_way;
}

/// Where the GPU has no room, what is under way is finished first; the shapes stay as planned.
Status DeviceWorker::Reserve(const DeviceRoom& room) {
  // Another plan's buffers: what is under way is of the last one.
  while (room != room_ && !under_way_.empty()) FinishOldest();
  room_ = room;
  const Status status = decoder_->Reserve(room);
  if (status.code() != StatusCode::kOutOfMemory) return status;
  while (!under_way_.empty()) FinishOldest();
  in_flight_ = 1;
  ReleaseCachedDeviceMemory();
  return decoder_->Reserve(room).WithContext(options_.name +
                                             " has no room for the planned blocks; end what else runs on it, or lower "
                                             "extract.batch_tokens or extract.block_tokens. What is published is safe");
}

Result<DeviceWorker::UnderWay> DeviceWorker::Pack(const DeviceJob& job) {
  UnderWay under_way;
  under_way.job = job;
  for (std::int64_t batch = job.range.first; batch < job.range.first + job.range.count; ++batch) {
    const bool wanted = std::binary_search(job.wanted.begin(), job.wanted.end(), batch);
    if (!wanted && !options_.spans_blocks) continue;
    DRAFTMILL_ASSIGN_OR_RETURN(DeviceBatch packed, PackDeviceBatch(*job.chunk, *job.plan, batch, options_.vocab_rows));
    if (wanted) under_way.places.push_back(static_cast<std::int64_t>(under_way.block.batches.size()));
    under_way.block.batches.push_back(std::move(packed));
    under_way.block.host_states.push_back(nullptr);
  }
  under_way.bad.resize(under_way.block.batches.size());
  return under_way;
}

Status DeviceWorker::TakeSlabs(UnderWay& under_way) {
  slabs_.Allow(under_way.job.slabs);
  for (const std::int64_t place : under_way.places) {
    const std::int64_t bytes = 2 * under_way.job.room.batch_tokens * options_.state_width;
    Result<std::shared_ptr<Slab>> slab = slabs_.Acquire(bytes, stop_);
    if (slab.status().code() == StatusCode::kOutOfMemory) {
      // The host gives no more: with less under way those that there are come back.
      in_flight_ = 1;
      while (!under_way_.empty()) FinishOldest();
      slab = slabs_.AcquireMade(bytes, under_way.places.size(), stop_);
    }
    if (!slab.ok()) return slab.status();
    DeviceBatch& batch = under_way.block.batches[static_cast<std::size_t>(place)];
    StateVector& states = batch.states.hidden_states;
    states = StateVector(static_cast<std::size_t>(batch.tokens * options_.state_width), StateAllocator(*slab));
    // A uint16_t of the interface and a Bf16 of the kernels are the same two bytes.
    under_way.block.host_states[static_cast<std::size_t>(place)] = reinterpret_cast<Bf16*>(states.data());
  }
  return OkStatus();
}

/// The GPU has work now: pinning memory takes as long as computing a good part of a batch.
void DeviceWorker::MakeSlabsAhead() {
  std::size_t wanted = 0;
  std::int64_t bytes = 0;
  {
    const std::lock_guard lock(mutex_);
    if (jobs_.empty()) return;
    wanted = jobs_.front().wanted.size();
    bytes = 2 * jobs_.front().room.batch_tokens * options_.state_width;
  }
  slabs_.MakeAhead(bytes, wanted);
}

void DeviceWorker::FinishOldest() {
  UnderWay under_way = std::move(under_way_.front());
  under_way_.pop_front();
  for (std::size_t i = 0; i < under_way.places.size(); ++i) {
    Result<BatchStates> states =
        failure_.ok() ? Guarded([&] { return Finish(under_way, i); }) : Result<BatchStates>(failure_);
    if (!states.ok()) {
      const Status status = DescribeDeviceFault(options_.name, states.status());
      if (status.code() == StatusCode::kDevice) failure_ = status;
      return Fail(under_way.job, i, status);
    }
    done_(under_way.job, std::move(states));
  }
}

Result<BatchStates> DeviceWorker::Finish(UnderWay& under_way, std::size_t wanted) {
  const std::int64_t place = under_way.places[wanted];
  DeviceBatch& batch = under_way.block.batches[static_cast<std::size_t>(place)];
  DRAFTMILL_ASSIGN_OR_RETURN(std::vector<std::int64_t> bad, BadSamples(under_way, place));
  if (!bad.empty()) {
    DRAFTMILL_ASSIGN_OR_RETURN(bad, Repeat(under_way, place));
    Quarantine(bad, batch);
  }
  const double now = Now();
  batch.states.compute_seconds = now - std::max(under_way.started, finished_);
  finished_ = now;
  // Its memory goes with it: a repetition of another batch of this block must not write there.
  under_way.block.host_states[static_cast<std::size_t>(place)] = nullptr;
  return std::move(batch.states);
}

/// Waits for the batch, unless that was done before a repetition.
Result<std::vector<std::int64_t>> DeviceWorker::BadSamples(UnderWay& under_way, std::int64_t place) {
  std::optional<std::vector<std::int64_t>>& bad = under_way.bad[static_cast<std::size_t>(place)];
  if (!bad) {
    DRAFTMILL_ASSIGN_OR_RETURN(bad, decoder_->Wait(under_way.slot, place));
  }
  return *bad;
}

/// Computes the block again for one batch alone: the others' states are not captured twice.
Result<std::vector<std::int64_t>> DeviceWorker::Repeat(UnderWay& under_way, std::int64_t place) {
  // The repetition takes over the slot, so what it says of the batches that follow is asked before.
  for (const std::int64_t other : under_way.places) {
    if (other > place) DRAFTMILL_RETURN_IF_ERROR(BadSamples(under_way, other).status());
  }
  DeviceBlock again;
  std::int64_t at = 0;
  for (std::size_t i = 0; i < under_way.block.batches.size(); ++i) {
    const bool is_it = static_cast<std::int64_t>(i) == place;
    if (!is_it && !options_.spans_blocks) continue;
    if (is_it) at = static_cast<std::int64_t>(again.batches.size());
    again.batches.push_back(std::move(under_way.block.batches[i]));
    again.host_states.push_back(is_it ? under_way.block.host_states[i] : nullptr);
  }
  const Status started = decoder_->Start(under_way.slot, again, stop_);
  Result<std::vector<std::int64_t>> bad =
      started.ok() ? decoder_->Wait(under_way.slot, at) : Result<std::vector<std::int64_t>>(started);
  std::size_t next = 0;
  for (std::size_t i = 0; i < under_way.block.batches.size(); ++i) {
    if (static_cast<std::int64_t>(i) == place || options_.spans_blocks) {
      under_way.block.batches[i] = std::move(again.batches[next++]);
    }
  }
  return bad;
}

void DeviceWorker::Quarantine(const std::vector<std::int64_t>& samples, DeviceBatch& batch) const {
  for (const std::int64_t sample : samples) {
    const std::int64_t first = batch.cu_seqlens[static_cast<std::size_t>(sample)];
    const std::int64_t tokens = batch.cu_seqlens[static_cast<std::size_t>(sample) + 1] - first;
    std::fill_n(batch.states.hidden_states.begin() + first * options_.state_width, tokens * options_.state_width,
                std::uint16_t{0});
    batch.states.sample_state[static_cast<std::size_t>(sample)] = 1;
  }
}

}  // namespace draftmill

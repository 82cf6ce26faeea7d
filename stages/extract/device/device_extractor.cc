// The plug-in's side of device_engine.h: hands blocks to the GPUs, emits their states in plan order.
#include <cuda_runtime_api.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/device_buffer.h"
#include "stages/extract/device/device_attention.h"
#include "stages/extract/device/device_engine.h"
#include "stages/extract/device/device_fault.h"
#include "stages/extract/device/device_guard.h"
#include "stages/extract/device/device_rates.h"
#include "stages/extract/device/device_worker.h"
#include "stages/extract/device/gpu_reader.h"
#include "stages/extract/memory/device_policy.h"

namespace draftmill {
namespace {

/// Blocks that a GPU may have before it: two under way and the next, which it begins the moment the first is done.
constexpr std::int64_t kBlocksAhead = 3;
constexpr auto kStopPoll = std::chrono::milliseconds(100);

/// The largest of a plan, for which buffers are made once.
DeviceRoom RoomFor(const ChunkPlan& plan, const TokenizedChunk& chunk) {
  DeviceRoom room;
  for (const std::int64_t tokens : plan.batch_tokens) room.batch_tokens = std::max(room.batch_tokens, tokens);
  for (const PlanRange& batch : plan.batches) room.samples = std::max(room.samples, batch.count);
  for (std::size_t i = 1; i < chunk.cu_seqlens.size(); ++i) {
    room.longest = std::max(room.longest, chunk.cu_seqlens[i] - chunk.cu_seqlens[i - 1]);
  }
  for (const PlanRange& block : plan.blocks) {
    std::int64_t rows = 0;
    for (std::int64_t i = block.first; i < block.first + block.count; ++i) {
      rows += RowsFor(plan.batch_tokens[static_cast<std::size_t>(i)]);
    }
    room.batches = std::max(room.batches, block.count);
    room.block_rows = std::max(room.block_rows, rows);
  }
  return room;
}

Status CheckRequest(const BlockRequest& request) {
  if (request.chunk == nullptr || request.plan == nullptr) return Internal("a block request without chunk or plan");
  const auto& blocks = request.plan->blocks;
  if (request.block < 0 || request.block >= static_cast<std::int64_t>(blocks.size())) {
    return Internal("the plan has no block " + std::to_string(request.block));
  }
  const PlanRange range = blocks[static_cast<std::size_t>(request.block)];
  const auto inside = [&](std::int64_t batch) { return batch >= range.first && batch < range.first + range.count; };
  if (!std::all_of(request.batches.begin(), request.batches.end(), inside) ||
      !std::is_sorted(request.batches.begin(), request.batches.end())) {
    return Internal("batches that are not of block " + std::to_string(request.block) + " or not in order");
  }
  return OkStatus();
}

class DeviceExtractor : public Extractor {
 public:
  DeviceExtractor(ModelDescription model, ExtractOptions options, std::int64_t host_bytes, std::string environment,
                  std::string weights_digest)
      : model_(std::move(model)),
        options_(std::move(options)),
        host_bytes_(host_bytes),
        environment_(std::move(environment)),
        weights_digest_(std::move(weights_digest)) {}

  Status AddDevice(int device, const std::string& name, std::unique_ptr<DeviceDecoder> decoder) {
    const std::size_t index = workers_.size();
    waiting_.push_back(0);
    const DeviceWorkerOptions options{device, "GPU " + std::to_string(device) + " (" + name + ")", model_.vocab_rows,
                                      StateWidth(), model_.spans_blocks};
    workers_.push_back(std::make_unique<DeviceWorker>(
        options, std::move(decoder),
        [this, index](const DeviceJob& job, Result<BatchStates> states) { Take(index, job, std::move(states)); }));
    return workers_.back()->Run();
  }

  Status ExtractBlock(const BlockRequest& request, const std::function<Status(BatchStates)>& emit,
                      const std::function<bool()>& should_stop) override {
    bool given = false;
    return ExtractBlocks(
        [&]() -> Result<std::optional<BlockRequest>> {
          if (std::exchange(given, true)) return std::optional<BlockRequest>();
          return std::optional(request);
        },
        emit, should_stop);
  }

  Status ExtractBlocks(const NextBlock& next, const std::function<Status(BatchStates)>& emit,
                       const std::function<bool()>& should_stop) override {
    for (const auto& worker : workers_) worker->Resume();
    blocks_.clear();
    first_block_ = 0;
    const Status status = Flow(next, emit, should_stop);
    for (const auto& worker : workers_) worker->Stop();
    Drain();
    return status;
  }

  const ModelDescription& model() const override { return model_; }
  std::string numerics_environment() const override { return environment_; }
  std::string weights_digest() const override { return weights_digest_; }

 private:
  /// A block that was handed out: its batches' states as they come, in order.
  struct OpenBlock {
    std::int64_t batches = 0;  ///< that are still to be emitted
    std::deque<Result<BatchStates>> states;
  };

  std::int64_t StateWidth() const { return static_cast<std::int64_t>(model_.layers.size()) * model_.hidden_size; }

  Status Flow(const NextBlock& next, const std::function<Status(BatchStates)>& emit,
              const std::function<bool()>& should_stop) {
    bool more = true;
    while (true) {
      for (std::optional<std::size_t> worker = more ? IdleWorker() : std::nullopt; worker;
           worker = more ? IdleWorker() : std::nullopt) {
        DRAFTMILL_ASSIGN_OR_RETURN(const std::optional<BlockRequest> request, next());
        more = request.has_value();
        if (more) DRAFTMILL_RETURN_IF_ERROR(HandOut(*request, *worker));
      }
      if (should_stop && should_stop()) return Cancelled("extraction stopped; what was not written is computed again");
      std::optional<Result<BatchStates>> states = NextStates();
      if (!states) {
        if (!more && AllEmitted()) return OkStatus();
        continue;
      }
      if (!states->ok()) return states->status();
      DRAFTMILL_RETURN_IF_ERROR(emit(std::move(*states).value()));
    }
  }

  /// A GPU that has fewer blocks before it than it may have: the one with the fewest.
  std::optional<std::size_t> IdleWorker() {
    const std::lock_guard lock(mutex_);
    const auto least = std::min_element(waiting_.begin(), waiting_.end());
    if (*least > most_batches_ * (kBlocksAhead - 1)) return std::nullopt;
    return static_cast<std::size_t>(least - waiting_.begin());
  }

  Status HandOut(const BlockRequest& request, std::size_t worker) {
    DRAFTMILL_RETURN_IF_ERROR(CheckRequest(request));
    if (request.plan != sized_plan_) {
      room_ = RoomFor(*request.plan, *request.chunk);
      DRAFTMILL_RETURN_IF_ERROR(ShareHostMemory());
      sized_plan_ = request.plan;
    }
    const auto count = static_cast<std::int64_t>(request.batches.size());
    if (count == 0) return OkStatus();
    DeviceJob job{0,
                  request.plan->blocks[static_cast<std::size_t>(request.block)],
                  request.batches,
                  request.chunk,
                  request.plan,
                  room_,
                  slabs_,
                  in_flight_};
    {
      const std::lock_guard lock(mutex_);
      job.block = first_block_ + static_cast<std::int64_t>(blocks_.size());
      blocks_.emplace_back().batches = count;
      waiting_[worker] += count;
      most_batches_ = std::max(most_batches_, count);
    }
    workers_[worker]->Add(std::move(job));
    return OkStatus();
  }

  /// How many batches of states each GPU may have on the host, and how many blocks under way. Two blocks, and four
  /// batches with the shard writer, so that a disk that keeps up on the whole may pause for a moment.
  Status ShareHostMemory() {
    const std::int64_t batch_bytes = 2 * room_.batch_tokens * StateWidth() * static_cast<std::int64_t>(workers_.size());
    const std::int64_t most = kDeviceSlots * room_.batches + 4;
    const std::int64_t least = room_.batches + 1;
    const std::int64_t allowed =
        options_.memory_bytes <= 0 ? most : (options_.memory_bytes - host_bytes_) / batch_bytes;
    if (allowed < least) {
      return OutOfMemory("blocks of " + std::to_string(room_.batches) + " batches of up to " +
                         std::to_string(room_.batch_tokens) + " tokens need " +
                         std::to_string(host_bytes_ + least * batch_bytes) + " bytes on the host and " +
                         std::to_string(options_.memory_bytes) +
                         " are allowed; raise limits.memory, or lower extract.block_tokens, extract.batch_tokens or "
                         "tokenize.max_length. What is published is safe");
    }
    slabs_ = static_cast<int>(std::min(most, allowed));
    in_flight_ = slabs_ >= kDeviceSlots * room_.batches ? kDeviceSlots : 1;
    return OkStatus();
  }

  /// From a GPU's thread.
  void Take(std::size_t worker, const DeviceJob& job, Result<BatchStates> states) {
    {
      const std::lock_guard lock(mutex_);
      --waiting_[worker];
      blocks_[static_cast<std::size_t>(job.block - first_block_)].states.push_back(std::move(states));
    }
    changed_.notify_one();
  }

  /// The next states in plan order; none where they are not there within a moment.
  std::optional<Result<BatchStates>> NextStates() {
    std::unique_lock lock(mutex_);
    while (!blocks_.empty() && blocks_.front().batches == 0) {
      blocks_.pop_front();
      ++first_block_;
    }
    if (blocks_.empty()) return std::nullopt;
    changed_.wait_for(lock, kStopPoll, [&] { return !blocks_.front().states.empty(); });
    OpenBlock& block = blocks_.front();
    if (block.states.empty()) return std::nullopt;
    Result<BatchStates> states = std::move(block.states.front());
    block.states.pop_front();
    --block.batches;
    return states;
  }

  bool AllEmitted() {
    const std::lock_guard lock(mutex_);
    return std::all_of(blocks_.begin(), blocks_.end(), [](const OpenBlock& block) { return block.batches == 0; });
  }

  /// Waits until no GPU holds anything of this call.
  void Drain() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      return std::all_of(waiting_.begin(), waiting_.end(), [](std::int64_t count) { return count == 0; });
    });
    blocks_.clear();
    sized_plan_ = nullptr;
  }

  const ModelDescription model_;
  const ExtractOptions options_;
  const std::int64_t host_bytes_;  ///< pinned for weights
  const std::string environment_;
  const std::string weights_digest_;
  const ChunkPlan* sized_plan_ = nullptr;
  DeviceRoom room_;
  int slabs_ = 0;
  int in_flight_ = kDeviceSlots;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::int64_t> waiting_;  ///< by GPU: batches that it was given and has not handed back
  std::int64_t most_batches_ = 1;      ///< of a block
  std::int64_t first_block_ = 0;       ///< number of blocks_.front()
  std::deque<OpenBlock> blocks_;
  std::vector<std::unique_ptr<DeviceWorker>> workers_;  // last: their threads use what stands above
};

Status CheckOptions(const ExtractOptions& options) {
  if (options.numerics != "hf" && options.numerics != "fused") {
    return InvalidConfig("extract.numerics must be hf or fused, not " + options.numerics);
  }
  return OkStatus();
}

std::string Environment(const DeviceFacts& device, const ExtractOptions& options) {
  int runtime = 0;
  cudaRuntimeGetVersion(&runtime);
  return "cuda " + device.name + ", products bfloat16, numerics " + options.numerics + ", torch " + TORCH_VERSION +
         ", cuda runtime " + std::to_string(runtime / 1000) + "." + std::to_string(runtime % 1000 / 10) + ", " +
         CudnnVersion();
}

/// What is free as the driver tells it: asking the runtime would take memory of the GPU.
Status ReadMemory(DeviceFacts& device) {
  const Result<GpuReader*> gpus = LoadNvml();
  if (gpus.ok()) {
    const Result<GpuReading> gpu = (*gpus)->Read(device.bus_id);
    if (gpu.ok()) {
      device.free_bytes = gpu->free_bytes;
      device.total_bytes = gpu->total_bytes;
      return OkStatus();
    }
  }
  std::size_t free = 0;
  std::size_t total = 0;
  DRAFTMILL_RETURN_IF_ERROR(cuda::Check(cudaSetDevice(device.index), "cudaSetDevice"));
  DRAFTMILL_RETURN_IF_ERROR(cuda::Check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo"));
  device.free_bytes = static_cast<std::int64_t>(free);
  device.total_bytes = static_cast<std::int64_t>(total);
  return OkStatus();
}

Result<DeviceFacts> ReadDevice(int index) {
  DeviceFacts device;
  device.index = index;
  cudaDeviceProp properties{};
  DRAFTMILL_RETURN_IF_ERROR(cuda::Check(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties"));
  device.name = properties.name;
  std::array<char, 32> bus_id{};
  DRAFTMILL_RETURN_IF_ERROR(
      cuda::Check(cudaDeviceGetPCIBusId(bus_id.data(), bus_id.size(), index), "cudaDeviceGetPCIBusId"));
  device.bus_id = bus_id.data();
  DRAFTMILL_RETURN_IF_ERROR(ReadMemory(device));
  return device;
}

/// The GPUs that answer. One that does not, after a fault, is left out: the others go on.
Result<std::vector<DeviceFacts>> ListDevices() {
  const int count = cuda::DeviceCount();
  if (count == 0) return Unsupported("the NVIDIA driver offers no GPU to this process");
  std::vector<DeviceFacts> devices;
  Status failure;
  for (int i = 0; i < count; ++i) {
    Result<DeviceFacts> device = ReadDevice(i);
    if (device.ok()) {
      devices.push_back(*std::move(device));
    } else {
      cudaGetLastError();
      failure = device.status().WithContext("GPU " + std::to_string(i));
    }
  }
  if (devices.empty()) return Unsupported("no GPU answers: " + failure.message());
  for (const DeviceFacts& device : devices) {
    if (device.name == devices.front().name) continue;
    return Unsupported("GPUs of different kinds, " + devices.front().name + " and " + device.name +
                       ", would give states of different bits; choose those of one kind with CUDA_VISIBLE_DEVICES");
  }
  return devices;
}

class CudaEngine : public DeviceEngine {
 public:
  Result<std::vector<DeviceFacts>> Devices() const override { return ListDevices(); }

  Result<DeviceRates> MeasureRates(double seconds) const override {
    DRAFTMILL_RETURN_IF_ERROR(Devices().status());
    DRAFTMILL_RETURN_IF_ERROR(cuda::Check(cudaSetDevice(0), "cudaSetDevice"));
    return Guarded([&] { return MeasureDeviceRates(seconds); });
  }

  Result<std::unique_ptr<Extractor>> MakeExtractor(const ExtractOptions& options, ModelFolder model) const override {
    return Guarded([&] { return Load(options, std::move(model)); });
  }

 private:
  static Result<std::unique_ptr<Extractor>> Load(const ExtractOptions& options, ModelFolder model) {
    DRAFTMILL_RETURN_IF_ERROR(CheckOptions(options));
    DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<DeviceFacts> devices, ListDevices());
    ExtractOptions resolved = options;
    resolved.device_count = static_cast<int>(devices.size());
    resolved.device_bytes = devices.front().free_bytes;
    for (const DeviceFacts& device : devices) {
      resolved.device_bytes = std::min(resolved.device_bytes, device.free_bytes);
    }
    DRAFTMILL_ASSIGN_OR_RETURN(const DevicePlan plan, PlanDevices(model.description, resolved));
    if (options.say) options.say(std::to_string(devices.size()) + " x " + devices.front().name + ", " + plan.reason);
    model.config.compute = ComputeType::kBfloat16;
    DeviceWeightsRequest request{
        &model, model.description.layers.back(), plan.weights, plan.from_memory, {}, options.memory_bytes};
    for (const DeviceFacts& device : devices) request.devices.push_back(device.index);
    DRAFTMILL_ASSIGN_OR_RETURN(LoadedDeviceWeights weights, LoadDeviceWeights(request));
    auto extractor = std::make_unique<DeviceExtractor>(model.description, options, plan.host_weight_bytes,
                                                       Environment(devices[0], options), weights.digest);
    for (std::size_t i = 0; i < devices.size(); ++i) {
      DRAFTMILL_RETURN_IF_ERROR(cuda::Check(cudaSetDevice(devices[i].index), "cudaSetDevice"));
      DRAFTMILL_ASSIGN_OR_RETURN(
          auto decoder, DeviceDecoder::Make(model.config, {model.description.layers, options.numerics == "fused"},
                                            std::move(weights.by_device[i])));
      DRAFTMILL_RETURN_IF_ERROR(extractor->AddDevice(devices[i].index, devices[i].name, std::move(decoder)));
    }
    return std::unique_ptr<Extractor>(std::move(extractor));
  }
};

}  // namespace
}  // namespace draftmill

extern "C" __attribute__((visibility("default"))) const draftmill::DeviceEngine* draftmill_device_engine(
    const char* version) {
  static const draftmill::CudaEngine engine;
  return std::strcmp(version, DRAFTMILL_VERSION) == 0 ? &engine : nullptr;
}

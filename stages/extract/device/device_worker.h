// One GPU and the thread that drives it: takes blocks in order, keeps two under way where the host has room for their
// states, hands out their batches in order.
//
//   worker.Add(std::move(job));          // never waits
//   worker hands each wanted batch to `done` on its own thread, failures too; after a failure it only discards
//
// A batch with a NaN or an infinity is computed again; samples that still have one are quarantined: zeroed and marked.
// Where memory runs out, less is kept under way before it is a failure. Add, Stop and the destructor are called from
// one thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "stages/extract/device/device_batch.h"
#include "stages/extract/device/device_decoder.h"
#include "stages/extract/device/device_slabs.h"

namespace draftmill {

/// One block to be computed. What it points to stays until its states or its failure were handed out.
struct DeviceJob {
  std::int64_t block = 0;            ///< running number of the block within the call
  PlanRange range;                   ///< its batches in the plan
  std::vector<std::int64_t> wanted;  ///< those whose states are handed out
  const TokenizedChunk* chunk = nullptr;
  const ChunkPlan* plan = nullptr;
  DeviceRoom room;               ///< of the largest block of the plan
  int slabs = 0;                 ///< batches of states that the host has room for, at least one block's and one more
  int in_flight = kDeviceSlots;  ///< blocks under way for which that is enough
};

struct DeviceWorkerOptions {
  int device = 0;    ///< as the CUDA runtime numbers it
  std::string name;  ///< "GPU 0 (NVIDIA H200)", for messages
  std::int64_t vocab_rows = 0;
  std::int64_t state_width = 0;  ///< values of a token: layers times hidden size
  bool spans_blocks = false;     ///< all batches of a block are computed, wanted or not
};

class DeviceWorker {
 public:
  /// Called once for each wanted batch, with its place among them.
  using Done = std::function<void(const DeviceJob&, Result<BatchStates>)>;

  DeviceWorker(DeviceWorkerOptions options, std::unique_ptr<DeviceDecoder> decoder, Done done);
  ~DeviceWorker();
  DeviceWorker(const DeviceWorker&) = delete;
  DeviceWorker& operator=(const DeviceWorker&) = delete;

  /// Starts the thread; to be called once, before anything is added. kIo where the machine gives none.
  Status Run();
  void Add(DeviceJob job);
  /// What was not handed out is answered with kCancelled from now on, until Resume.
  void Stop() { stop_ = true; }
  void Resume() { stop_ = false; }

 private:
  struct UnderWay {
    DeviceJob job;
    DeviceBlock block;
    std::vector<std::int64_t> places;                           ///< of the wanted batches in the block
    std::vector<std::optional<std::vector<std::int64_t>>> bad;  ///< by batch of the block, once it was waited for
    int slot = 0;
    double started = 0;
  };

  void Loop();
  std::optional<DeviceJob> NextJob();
  void Begin(DeviceJob job);
  void Fail(const DeviceJob& job, std::size_t handed_out, const Status& status);
  Result<UnderWay> Start(const DeviceJob& job);
  Status Reserve(const DeviceRoom& room);
  Result<UnderWay> Pack(const DeviceJob& job);
  Status TakeSlabs(UnderWay& under_way);
  void MakeSlabsAhead();
  void FinishOldest();
  Result<BatchStates> Finish(UnderWay& under_way, std::size_t wanted);
  Result<std::vector<std::int64_t>> BadSamples(UnderWay& under_way, std::int64_t place);
  Result<std::vector<std::int64_t>> Repeat(UnderWay& under_way, std::int64_t place);
  void Quarantine(const std::vector<std::int64_t>& samples, DeviceBatch& batch) const;

  const DeviceWorkerOptions options_;
  const std::unique_ptr<DeviceDecoder> decoder_;
  SlabPool slabs_;
  const Done done_;
  std::atomic<bool> stop_{false};
  // The thread's own.
  Status failure_;  ///< of the device
  int in_flight_ = kDeviceSlots;
  DeviceRoom room_;  ///< of the last block
  std::deque<UnderWay> under_way_;
  double finished_ = 0;  ///< when the last batch was done
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<DeviceJob> jobs_;
  bool quit_ = false;
  std::thread thread_;
};

}  // namespace draftmill

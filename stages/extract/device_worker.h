// One GPU and the thread that drives it: takes batches in order, keeps two under way, hands out their states in order.
//
//   worker.Add(job);                     // never waits
//   worker hands each batch to `done` on its own thread, failures too; after a failure it only discards
//
// A batch with a NaN or an infinity is computed again; samples that still have one are quarantined: zeroed and marked.
// Add, Stop and the destructor are called from one thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "base/status.h"
#include "stages/extract/device_batch.h"
#include "stages/extract/device_decoder.h"
#include "stages/extract/device_slabs.h"

namespace draftmill {

/// One batch to be computed. What it points to stays until its states or its failure were handed out.
struct DeviceJob {
  std::int64_t block = 0;              ///< running number of the block within the call
  std::int64_t batch = 0;              ///< in the plan
  const TokenizedChunk* chunk = nullptr;
  const ChunkPlan* plan = nullptr;
  std::int64_t most_tokens = 0;        ///< of any batch of the plan
  std::int64_t most_samples = 0;
  std::int64_t longest = 0;            ///< sample of the chunk
};

class DeviceWorker {
 public:
  using Done = std::function<void(const DeviceJob&, Result<BatchStates>)>;

  /// `decoder` was made on GPU `device`.
  DeviceWorker(int device, std::unique_ptr<DeviceDecoder> decoder, std::int64_t vocab_rows, std::int64_t state_width, int slabs,
               Done done);
  ~DeviceWorker();
  DeviceWorker(const DeviceWorker&) = delete;
  DeviceWorker& operator=(const DeviceWorker&) = delete;

  void Add(const DeviceJob& job);
  /// Jobs that were not begun are answered with kCancelled from now on, until Resume.
  void Stop() { stop_ = true; }
  void Resume() { stop_ = false; }

 private:
  struct UnderWay {
    DeviceJob job;
    DeviceBatch batch;
    int slot = 0;
    double started = 0;
  };

  void Loop();
  std::optional<DeviceJob> NextJob();
  void Begin(const DeviceJob& job);
  Result<UnderWay> Start(const DeviceJob& job);
  void FinishOldest();
  Result<BatchStates> Finish(UnderWay& under_way);
  Result<std::vector<std::int64_t>> Repeat(UnderWay& under_way);
  void Quarantine(const std::vector<std::int64_t>& samples, DeviceBatch& batch) const;

  const int device_;
  const std::unique_ptr<DeviceDecoder> decoder_;
  const std::int64_t vocab_rows_;
  const std::int64_t state_width_;
  SlabPool slabs_;
  const Done done_;
  std::atomic<bool> stop_{false};
  Status failure_;                     ///< of the device; the thread's own
  std::deque<UnderWay> under_way_;     ///< the thread's own
  double finished_ = 0;                ///< when the last batch was done; the thread's own
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<DeviceJob> jobs_;
  bool quit_ = false;
  std::thread thread_;
};

}  // namespace draftmill

// One stream of layers from disk for several GPUs: each layer is read once and taken by all that are on this lap.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(LayerView<Bf16> view, feed.Take(gpu, layer));   // waits for the disk and for the others
//   ... copy it to the GPU ...
//   feed.Done(gpu);                                                           // the copy has arrived
//
// A lap goes from layer 0 to the last one. A reader joins with layer 0; a lap begins once all readers have joined, or a
// moment after the first, and whoever comes later waits for the next. Layer l + 1 is handed out when all on the lap are
// done with l, so GPUs that compute blocks of one size stay together by themselves. Leave takes a reader off its lap:
// after a failure, or when it goes away. Safe from any thread; one reader is one thread at a time.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/status.h"
#include "kernels/bfloat16.h"
#include "stages/extract/weights/weight_store.h"

namespace draftmill {

class LayerFeed {
 public:
  /// Of the first `layers` of a store, for so many readers.
  LayerFeed(std::shared_ptr<WeightStore<Bf16>> store, std::int64_t layers, int readers,
            std::chrono::milliseconds grace = std::chrono::milliseconds(300));

  /// Layers in ascending order from 0, over and over. A failure of the store is every reader's.
  Result<LayerView<Bf16>> Take(int reader, std::int64_t layer);
  /// The reader is done with the layer that it took last.
  void Done(int reader);
  void Leave(int reader);

 private:
  struct Reader {
    bool on_lap = false;
    std::int64_t done = -1;  ///< last layer that it is done with
  };

  Reader& At(int reader) { return readers_[static_cast<std::size_t>(reader)]; }
  void Join(int reader, std::unique_lock<std::mutex>& lock);
  void BeginLap(std::unique_lock<std::mutex>& lock);
  bool AllDoneWith(std::int64_t layer) const;
  Status Show(std::int64_t layer);
  void EndLapIfOver();

  const std::shared_ptr<WeightStore<Bf16>> store_;
  const std::int64_t layers_;
  const std::chrono::milliseconds grace_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Reader> readers_;
  bool begun_ = false;  ///< nobody joins this lap any more
  std::chrono::steady_clock::time_point first_joined_;
  std::int64_t current_ = -1;  ///< the layer that is handed out; -1: none is held
  LayerView<Bf16> view_;
  Status failure_;
};

}  // namespace draftmill

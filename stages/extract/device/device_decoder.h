// The decoder on one GPU: queues a block's layers, captures and copies, and does not wait for them.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(auto decoder, DeviceDecoder::Make(config, options, std::move(weights)));
//   DRAFTMILL_RETURN_IF_ERROR(decoder->Reserve({.batch_tokens = ..., ...}));
//   DRAFTMILL_RETURN_IF_ERROR(decoder->Start(0, block));          // returns when all is queued
//   DRAFTMILL_RETURN_IF_ERROR(decoder->Start(1, next));           // two blocks are under way
//   DRAFTMILL_ASSIGN_OR_RETURN(auto bad, decoder->Wait(0, 2));    // the third batch's states lie on the host
//
// A block goes through layer l before any of it goes through layer l + 1, so a layer's weights are needed once a block;
// within a layer its batches go one after the other, except through experts, which take the rows of all. Products have
// the shapes of the batches (experts': of the block) whatever else is in flight, so the bits do not depend on it.
//
// Captured layers leave as they appear: the norm kernel stores one as it reads it, a copy takes it to its place in the
// batch's [tokens, layers, hidden] on the host. All buffers are made by Reserve; Start allocates nothing.
//
// One object belongs to one thread, which must have its GPU current. Errors: kDevice for what the driver reports, also
// of work queued before; kOutOfMemory from Reserve. What torch throws passes through.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "kernels/bfloat16.h"
#include "stages/extract/device/device_batch.h"
#include "stages/extract/device/device_weights.h"
#include "stages/extract/memory/device_memory.h"
#include "stages/extract/model/model_config.h"

namespace draftmill {

struct DeviceDecoderOptions {
  std::vector<std::int32_t> layers;  ///< captured x_k, ascending
  bool fused_norms = false;          ///< numerics: fused
};

/// The largest of what a decoder is given.
struct DeviceRoom {
  std::int64_t batch_tokens = 0;
  std::int64_t samples = 0;     ///< of a batch
  std::int64_t longest = 0;     ///< sample
  std::int64_t batches = 0;     ///< of a block
  std::int64_t block_rows = 0;  ///< sum of DeviceBatch::rows of a block

  friend bool operator==(const DeviceRoom&, const DeviceRoom&) = default;
};

/// Batches that go through the model together.
struct DeviceBlock {
  std::vector<DeviceBatch> batches;
  /// By batch: pinned memory for its [tokens, layers, hidden], untouched until Wait; null: computed, but not captured.
  std::vector<Bf16*> host_states;
};

class DeviceDecoder {
 public:
  static Result<std::unique_ptr<DeviceDecoder>> Make(const ModelConfig& config, DeviceDecoderOptions options,
                                                     std::unique_ptr<DeviceWeights> weights);
  virtual ~DeviceDecoder() = default;

  /// Makes room. Waits for what is under way where buffers grow; after a failure another Reserve may follow.
  virtual Status Reserve(const DeviceRoom& room) = 0;
  /// Queues a block; kCancelled, with nothing left under way of it, once `stop` is true. The slot must be free. What
  /// the block points to stays until its batches were waited for.
  virtual Status Start(int slot, const DeviceBlock& block, const std::atomic<bool>& stop) = 0;
  /// Waits until a captured batch's states lie on the host. The samples that hold a NaN or an infinity.
  virtual Result<std::vector<std::int64_t>> Wait(int slot, std::int64_t batch) = 0;
};

}  // namespace draftmill

// The decoder on one GPU: queues a batch's layers, captures and copies, and never waits for them.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(auto decoder, DeviceDecoder::Make(config, options, std::move(weights)));
//   DRAFTMILL_RETURN_IF_ERROR(decoder->Reserve(most_tokens, most_samples, longest));
//   DRAFTMILL_RETURN_IF_ERROR(decoder->Start(0, batch, slab));       // returns at once
//   DRAFTMILL_RETURN_IF_ERROR(decoder->Start(1, next, other_slab));  // two batches are under way
//   DRAFTMILL_RETURN_IF_ERROR(decoder->Wait(0));                     // slab holds [tokens, layers, hidden]
//
// A batch goes through all layers before the next one begins: the weights are resident, so no other order saves anything,
// and its states leave the GPU while the next batch computes. All buffers are made by Reserve; Start allocates nothing. The
// norm kernel stores captured layers as it reads them, in the order in which a shard holds them, so that one copy takes a
// batch to the host.
//
// One object belongs to one thread, which must have its GPU current. Errors: kDevice for what the driver reports, also of
// work queued before; kOutOfMemory from Reserve. What torch throws passes through.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/status.h"
#include "kernels/bfloat16.h"
#include "stages/extract/device_batch.h"
#include "stages/extract/device_memory.h"
#include "stages/extract/device_weights.h"
#include "stages/extract/model_config.h"

namespace draftmill {

struct DeviceDecoderOptions {
  std::vector<std::int32_t> layers;  ///< captured x_k, ascending
  bool fused_norms = false;          ///< numerics: fused
};

class DeviceDecoder {
 public:
  static Result<std::unique_ptr<DeviceDecoder>> Make(const ModelConfig& config, DeviceDecoderOptions options,
                                                     DeviceWeights weights);
  virtual ~DeviceDecoder() = default;

  /// Makes room for batches of up to so many tokens and samples. Waits for what is under way where buffers grow.
  virtual Status Reserve(std::int64_t tokens, std::int64_t samples, std::int64_t longest) = 0;
  /// Queues a batch. `host_states` is pinned memory for [tokens, layers, hidden], untouched until Wait. The slot must be free.
  virtual Status Start(int slot, const DeviceBatch& batch, Bf16* host_states) = 0;
  /// Waits until the slot's states lie on the host; `bad_samples` are those that hold a NaN or an infinity. Frees the slot.
  virtual Result<std::vector<std::int64_t>> Wait(int slot) = 0;
};

}  // namespace draftmill

// A gated MLP over rows on a GPU: the dense one of a layer, one expert, the shared experts. Two products and the gate
// between, in pieces of at most kMostPieceRows rows. RunGrouped does the same for neighbouring experts at once.
//
// One object belongs to one thread and one GPU. Run queues and does not wait; what torch throws passes through.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "kernels/decoder_cpu.h"
#include "kernels/device_buffer.h"
#include "stages/extract/model/model_config.h"

namespace draftmill {

struct DeviceGatedMlpArgs {
  const Bf16* in = nullptr;  ///< [rows, hidden]
  Bf16* out = nullptr;       ///< [rows, hidden]; may be `in`
  std::int64_t rows = 0;
  std::int64_t width = 0;              ///< intermediate size
  const Bf16* gate_up = nullptr;       ///< [2 * width, hidden], gate first
  const Bf16* gate_up_bias = nullptr;  ///< may be null
  const Bf16* down = nullptr;          ///< [hidden, width]
  const Bf16* down_bias = nullptr;
};

/// Experts without biases, each over its own rows, in one product for each kind of matrix.
struct DeviceGroupedMlpArgs {
  Bf16* rows = nullptr;                    ///< [count, hidden], sorted by expert; replaced by what the experts give
  const std::int32_t* row_ends = nullptr;  ///< [experts], on the GPU: where each one's rows end
  std::int64_t count = 0;                  ///< at most kMostPieceRows
  std::int64_t experts = 0;
  std::int64_t width = 0;
  const Bf16* gate_up = nullptr;      ///< each [2 * width, hidden], gate first
  const Bf16* down = nullptr;         ///< each [hidden, width]
  std::int64_t gate_up_distance = 0;  ///< elements from one expert's to the next
  std::int64_t down_distance = 0;
};

class DeviceGatedMlp {
 public:
  explicit DeviceGatedMlp(const ModelConfig& config);

  /// Makes room for any MLP of the model over so many rows. Waits for the GPU where something grows.
  Status Reserve(std::int64_t rows);
  Status Run(const DeviceGatedMlpArgs& args, cudaStream_t stream);
  /// Results of the products lie in memory of ATen's cache until they are used.
  Status RunGrouped(const DeviceGroupedMlpArgs& args, cudaStream_t stream);

 private:
  Status RunPiece(const DeviceGatedMlpArgs& args, cudaStream_t stream);

  const std::int64_t hidden_;
  const std::int64_t widest_;
  const GateKind gate_;
  const float limit_;
  cuda::DeviceBuffer<Bf16> wide_;   ///< [piece, 2 * width]
  cuda::DeviceBuffer<Bf16> gated_;  ///< [piece, width]
};

}  // namespace draftmill

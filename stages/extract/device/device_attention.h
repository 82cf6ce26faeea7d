// Causal attention of packed sequences on a GPU: q, k and v are read where products left them, each by its strides.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(DeviceAttention attention, DeviceAttention::Make(shape));
//   DRAFTMILL_RETURN_IF_ERROR(attention.Run({.q = q, .k = k, .v = v, .out = out, .sequences = sequences}, stream));
//
// Three implementations behind one call. cuDNN's graph interface with ragged offsets, where the GPU is Hopper or later,
// heads have at most 128 dims (192 with values of 128) and no window cuts anything off: 1.75 to 2.3 times as fast
// (docs/benchmarks.md). FlashAttention 2 through ATen, which has windows and gives the logarithms that sinks need,
// elsewhere. The kernel of kernels/attention_cuda.h for what neither has: soft caps, other widths of heads. The choice
// follows from the model, the batch and the GPU alone, so it is the same in every run.
//
// cuDNN's plans are kept, one for each pair of (samples rounded up to 16, longest sample rounded up to 1,024). One
// object belongs to one thread and one GPU. Run queues and does not wait; what torch throws passes through.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "kernels/bfloat16.h"

using cudaStream_t = struct CUstream_st*;

namespace draftmill {

/// Samples of a batch are counted in steps of this for attention's plans; the last ones are empty.
inline constexpr std::int64_t kSampleMultiple = 16;

/// Elements from one token to the next and from one head to the next.
struct HeadStrides {
  std::int64_t token = 0;
  std::int64_t head = 0;
};

struct AttentionShape {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;   ///< of q and k; at most 256
  std::int64_t value_dim = 0;  ///< of v; at most 256
  float scale = 1;
  float softcap = 0;   ///< logits become cap * tanh(logit / cap); 0 for none
  bool sinks = false;  ///< layers have a learnt logit for each head
  HeadStrides q;
  HeadStrides k;
  HeadStrides v;

  std::int64_t out_width() const { return heads * value_dim; }
};

/// The sequences of a batch. Arrays are on the GPU and have room for `samples` rounded up to kSampleMultiple; the
/// places beyond `samples` repeat the end (offsets) or are 0 (lengths).
struct DeviceSequences {
  std::int64_t samples = 0;
  std::int64_t tokens = 0;
  std::int64_t longest = 0;
  const std::int32_t* cu_seqlens = nullptr;  ///< [samples + 1]
  const std::int32_t* lengths = nullptr;     ///< [samples]
  const std::int32_t* q_offsets = nullptr;   ///< [samples + 1]: first token's place in q, in elements
  const std::int32_t* k_offsets = nullptr;
  const std::int32_t* v_offsets = nullptr;
  const std::int32_t* out_offsets = nullptr;
};

struct AttentionArgs {
  const Bf16* q = nullptr;  ///< first token's first head
  const Bf16* k = nullptr;
  const Bf16* v = nullptr;
  Bf16* out = nullptr;  ///< [tokens, heads * value_dim]
  DeviceSequences sequences;
  std::int64_t window = 0;       ///< keys that a query sees, its own included; 0 for all before it
  const float* sinks = nullptr;  ///< [heads], where the shape has them
};

/// One implementation; made for one shape.
class AttentionKernel {
 public:
  virtual ~AttentionKernel() = default;
  virtual Status Run(const AttentionArgs& args, cudaStream_t stream) = 0;
};

/// cuDNN's graph interface; neither windows nor sinks nor soft caps. kDevice where the library does not start.
Result<std::unique_ptr<AttentionKernel>> MakeCudnnAttention(const AttentionShape& shape);
/// FlashAttention 2 through ATen: heads of 8, 16, ... 256 dims, values as wide as keys, no soft cap.
std::unique_ptr<AttentionKernel> MakeFlashAttention(const AttentionShape& shape);
/// Our own: any of these.
std::unique_ptr<AttentionKernel> MakeBlockAttention(const AttentionShape& shape);
/// "cudnn 9.19.0"
std::string CudnnVersion();

/// Chooses between them, batch by batch.
class DeviceAttention {
 public:
  /// For the GPU that is current.
  static Result<DeviceAttention> Make(const AttentionShape& shape);
  Status Run(const AttentionArgs& args, cudaStream_t stream);

 private:
  std::unique_ptr<AttentionKernel> cudnn_;  ///< for batches in which no window binds; null where it is not used
  std::unique_ptr<AttentionKernel> other_;
};

}  // namespace draftmill

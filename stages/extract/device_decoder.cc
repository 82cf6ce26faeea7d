#include "stages/extract/device_decoder.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "kernels/decoder_cuda.h"
#include "kernels/device_buffer.h"
#include "stages/extract/device_attention.h"
#include "stages/extract/rotary_table.h"

namespace draftmill {
namespace {

using cuda::AddNormArgs;
using cuda::Check;
using cuda::DeviceBuffer;
using cuda::PinnedBuffer;
using cuda::RotateHeadsArgs;

struct DestroyStream {
  void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
};
struct DestroyEvent {
  void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
};
using Stream = std::unique_ptr<CUstream_st, DestroyStream>;
using Event = std::unique_ptr<CUevent_st, DestroyEvent>;

Result<Stream> MakeStream() {
  cudaStream_t stream = nullptr;
  DRAFTMILL_RETURN_IF_ERROR(Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate"));
  return Stream(stream);
}
Result<Event> MakeEvent() {
  cudaEvent_t event = nullptr;
  DRAFTMILL_RETURN_IF_ERROR(Check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync), "cudaEventCreate"));
  return Event(event);
}

/// A batch's index arrays in one piece: where each begins, in elements.
struct IndexLayout {
  IndexLayout(std::int64_t rows, std::int64_t samples) {
    const std::int64_t places = (samples + kSampleMultiple - 1) / kSampleMultiple * kSampleMultiple;
    std::int64_t next = 0;
    const auto place = [&next](std::int64_t count) {
      const std::int64_t at = next;
      next += (count + 3) / 4 * 4;
      return at;
    };
    ids = place(rows);
    positions = place(rows);
    sample = place(rows);
    cu_seqlens = place(places + 1);
    lengths = place(places);
    qkv_offsets = place(places + 1);
    out_offsets = place(places + 1);
    total = next;
  }
  std::int64_t ids = 0;
  std::int64_t positions = 0;
  std::int64_t sample = 0;
  std::int64_t cu_seqlens = 0;
  std::int64_t lengths = 0;
  std::int64_t qkv_offsets = 0;
  std::int64_t out_offsets = 0;
  std::int64_t total = 0;
};

/// What a batch under way holds.
struct Slot {
  PinnedBuffer<std::int32_t> host_indices;
  DeviceBuffer<std::int32_t> indices;
  DeviceBuffer<Bf16> states;            ///< [tokens, layers, hidden]
  DeviceBuffer<std::int32_t> bad;       ///< [samples]
  PinnedBuffer<std::int32_t> host_bad;
  Event computed;
  Event copied;
  std::int64_t samples = 0;
};

class DenseDecoder : public DeviceDecoder {
 public:
  DenseDecoder(const ModelConfig& config, DeviceDecoderOptions options, DeviceWeights weights, DeviceAttention attention)
      : config_(config),
        options_(std::move(options)),
        weights_(std::move(weights)),
        attention_(std::move(attention)),
        rounding_(options_.fused_norms || config.norm_multiplies_in_float ? NormRounding::kFused : NormRounding::kHf),
        rotary_(config.rope, true),
        local_rotary_(config.local_rope.value_or(config.rope), true) {}

  Status Prepare() {
    int device = 0;
    DRAFTMILL_RETURN_IF_ERROR(Check(cudaGetDevice(&device), "cudaGetDevice"));
    options_on_device_ = at::TensorOptions().dtype(at::kBFloat16).device(at::kCUDA, static_cast<c10::DeviceIndex>(device));
    DRAFTMILL_ASSIGN_OR_RETURN(compute_, MakeStream());
    DRAFTMILL_ASSIGN_OR_RETURN(copy_, MakeStream());
    for (Slot& slot : slots_) {
      DRAFTMILL_ASSIGN_OR_RETURN(slot.computed, MakeEvent());
      DRAFTMILL_ASSIGN_OR_RETURN(slot.copied, MakeEvent());
    }
    torch_stream_.emplace(c10::cuda::getStreamFromExternal(compute_.get(), static_cast<c10::DeviceIndex>(device)));
    return OkStatus();
  }

  Status Reserve(std::int64_t tokens, std::int64_t samples, std::int64_t longest) override {
    const std::int64_t rows = (tokens + kRowMultiple - 1) / kRowMultiple * kRowMultiple;
    if (rows > rows_ || samples > samples_) DRAFTMILL_RETURN_IF_ERROR(GrowBuffers(std::max(rows, rows_), std::max(samples, samples_)));
    if (longest > longest_) DRAFTMILL_RETURN_IF_ERROR(GrowRotary(longest));
    return OkStatus();
  }

  Status Start(int slot_index, const DeviceBatch& batch, Bf16* host_states) override {
    const c10::InferenceMode inference;
    const c10::cuda::CUDAStream before = c10::cuda::getCurrentCUDAStream();
    c10::cuda::setCurrentCUDAStream(*torch_stream_);
    const Status status = Queue(slots_[static_cast<std::size_t>(slot_index)], batch, host_states);
    c10::cuda::setCurrentCUDAStream(before);
    return status;
  }

  Result<std::vector<std::int64_t>> Wait(int slot_index) override {
    Slot& slot = slots_[static_cast<std::size_t>(slot_index)];
    DRAFTMILL_RETURN_IF_ERROR(Check(cudaEventSynchronize(slot.copied.get()), "waiting for a batch"));
    std::vector<std::int64_t> bad;
    for (std::int64_t i = 0; i < slot.samples; ++i) {
      if (slot.host_bad.data()[i] != 0) bad.push_back(i);
    }
    return bad;
  }

 private:
  std::int64_t StateWidth() const { return static_cast<std::int64_t>(options_.layers.size()) * config_.hidden_size; }

  // ---- buffers ----

  Status GrowBuffers(std::int64_t rows, std::int64_t samples) {
    DRAFTMILL_RETURN_IF_ERROR(Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize"));
    rows_ = 0;  // until all are there
    DRAFTMILL_RETURN_IF_ERROR(residual_.Grow(rows * config_.hidden_size));
    DRAFTMILL_RETURN_IF_ERROR(normed_.Grow(rows * config_.hidden_size));
    DRAFTMILL_RETURN_IF_ERROR(branch_.Grow(rows * config_.hidden_size));
    DRAFTMILL_RETURN_IF_ERROR(qkv_.Grow(rows * config_.qkv_width()));
    DRAFTMILL_RETURN_IF_ERROR(attended_.Grow(rows * config_.q_width()));
    DRAFTMILL_RETURN_IF_ERROR(gate_up_.Grow(rows * 2 * config_.intermediate_size));
    DRAFTMILL_RETURN_IF_ERROR(gated_.Grow(rows * config_.intermediate_size));
    const IndexLayout indices(rows, samples);
    for (Slot& slot : slots_) {
      DRAFTMILL_RETURN_IF_ERROR(slot.states.Grow(rows * StateWidth()));
      DRAFTMILL_RETURN_IF_ERROR(slot.indices.Grow(indices.total));
      DRAFTMILL_RETURN_IF_ERROR(slot.bad.Grow(samples));
      DRAFTMILL_ASSIGN_OR_RETURN(slot.host_indices, PinnedBuffer<std::int32_t>::Make(indices.total));
      DRAFTMILL_ASSIGN_OR_RETURN(slot.host_bad, PinnedBuffer<std::int32_t>::Make(samples));
    }
    rows_ = rows;
    samples_ = samples;
    return OkStatus();
  }

  Status GrowRotary(std::int64_t longest) {
    DRAFTMILL_RETURN_IF_ERROR(Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize"));
    longest_ = std::max<std::int64_t>(1024, longest);
    DRAFTMILL_RETURN_IF_ERROR(UploadRotary(rotary_, config_.rope.rotary_dims, cosines_, sines_));
    if (!config_.local_rope) return OkStatus();
    return UploadRotary(local_rotary_, config_.local_rope->rotary_dims, local_cosines_, local_sines_);
  }
  Status UploadRotary(RotaryTable& table, std::int64_t rotary_dims, DeviceBuffer<float>& cosines, DeviceBuffer<float>& sines) const {
    table.Grow(longest_);
    const std::int64_t count = longest_ * rotary_dims / 2;
    DRAFTMILL_RETURN_IF_ERROR(cosines.Grow(count));
    DRAFTMILL_RETURN_IF_ERROR(sines.Grow(count));
    DRAFTMILL_RETURN_IF_ERROR(cosines.Upload({table.cosines(), static_cast<std::size_t>(count)}));
    return sines.Upload({table.sines(), static_cast<std::size_t>(count)});
  }

  // ---- a batch ----

  Status Queue(Slot& slot, const DeviceBatch& batch, Bf16* host_states) {
    // The slot's last states must have left before they are written over: its owner waited for them.
    DRAFTMILL_RETURN_IF_ERROR(SendIndices(slot, batch));
    DRAFTMILL_RETURN_IF_ERROR(RunLayers(slot, batch));
    const IndexLayout indices(batch.rows(), batch.samples());
    DRAFTMILL_RETURN_IF_ERROR(cuda::MarkNonFinite(
        {slot.states.data(), slot.indices.data() + indices.sample, slot.bad.data(), batch.tokens, StateWidth()}, compute_.get()));
    DRAFTMILL_RETURN_IF_ERROR(Check(cudaEventRecord(slot.computed.get(), compute_.get()), "cudaEventRecord"));
    DRAFTMILL_RETURN_IF_ERROR(Check(cudaStreamWaitEvent(copy_.get(), slot.computed.get(), 0), "cudaStreamWaitEvent"));
    DRAFTMILL_RETURN_IF_ERROR(CopyOut(slot.states.data(), host_states, batch.tokens * StateWidth()));
    DRAFTMILL_RETURN_IF_ERROR(CopyOut(slot.bad.data(), slot.host_bad.data(), batch.samples()));
    slot.samples = batch.samples();
    return Check(cudaEventRecord(slot.copied.get(), copy_.get()), "cudaEventRecord");
  }

  template <typename T>
  Status CopyOut(const T* from, T* to, std::int64_t count) const {
    return Check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(count) * sizeof(T), cudaMemcpyDeviceToHost, copy_.get()),
                 "copy of states");
  }

  Status SendIndices(Slot& slot, const DeviceBatch& batch) {
    const IndexLayout layout(batch.rows(), batch.samples());
    std::int32_t* host = slot.host_indices.data();
    std::fill_n(host, layout.total, 0);  // padding rows are token 0 at position 0
    std::copy(batch.input_ids.begin(), batch.input_ids.end(), host + layout.ids);
    std::copy(batch.positions.begin(), batch.positions.end(), host + layout.positions);
    std::copy(batch.sample.begin(), batch.sample.end(), host + layout.sample);
    const std::int64_t places = layout.lengths - layout.cu_seqlens;
    for (std::int64_t i = 0; i < places; ++i) {
      const std::int64_t start = batch.cu_seqlens[static_cast<std::size_t>(std::min(i, batch.samples()))];
      host[layout.cu_seqlens + i] = static_cast<std::int32_t>(start);
      host[layout.qkv_offsets + i] = static_cast<std::int32_t>(start * config_.qkv_width());
      host[layout.out_offsets + i] = static_cast<std::int32_t>(start * config_.q_width());
      if (i >= batch.samples()) continue;
      host[layout.lengths + i] = static_cast<std::int32_t>(batch.cu_seqlens[static_cast<std::size_t>(i) + 1] - start);
    }
    DRAFTMILL_RETURN_IF_ERROR(Check(cudaMemsetAsync(slot.bad.data(), 0, static_cast<std::size_t>(batch.samples()) * sizeof(std::int32_t),
                                                    compute_.get()), "cudaMemsetAsync"));
    return Check(cudaMemcpyAsync(slot.indices.data(), host, static_cast<std::size_t>(layout.total) * sizeof(std::int32_t),
                                 cudaMemcpyHostToDevice, compute_.get()), "copy of token ids");
  }

  Status RunLayers(Slot& slot, const DeviceBatch& batch) {
    const IndexLayout indices(batch.rows(), batch.samples());
    const std::int32_t* index = slot.indices.data();
    DRAFTMILL_RETURN_IF_ERROR(cuda::EmbedRows({weights_.embedding(), index + indices.ids, residual_.data(), batch.rows(),
                                               config_.hidden_size, RoundToBf16(static_cast<float>(config_.embedding_scale))},
                                              compute_.get()));
    // Attention leaves the padding rows alone; they must hold numbers.
    DRAFTMILL_RETURN_IF_ERROR(Check(
        cudaMemsetAsync(attended_.data() + batch.tokens * config_.q_width(), 0,
                        static_cast<std::size_t>((batch.rows() - batch.tokens) * config_.q_width()) * sizeof(Bf16), compute_.get()),
        "cudaMemsetAsync"));
    const DeviceSequences sequences{batch.samples(), batch.tokens, batch.longest, index + indices.cu_seqlens, index + indices.lengths,
                                    index + indices.qkv_offsets, index + indices.out_offsets};
    const std::int64_t layers = options_.layers.back();
    for (std::int64_t i = 0; i < layers; ++i) {
      DRAFTMILL_RETURN_IF_ERROR(RunLayer(i, slot, batch.rows(), index + indices.positions, sequences));
    }
    return AddBranch(layers, slot, batch.rows());
  }

  Status RunLayer(std::int64_t index, Slot& slot, std::int64_t rows, const std::int32_t* positions, const DeviceSequences& sequences) {
    const DeviceLayer& layer = weights_.layer(index);
    const LayerLayout& layout = layer.layout;
    AddNormArgs head = BranchOf(index, slot, rows);
    head.weight = layer.Vector(layout.input_norm);
    head.out = normed_.data();
    DRAFTMILL_RETURN_IF_ERROR(cuda::AddNorm(head, compute_.get()));
    Multiply(normed_, layer.Matrix(layout.qkv), layer.Bias(layout.qkv_bias), qkv_, rows, config_.hidden_size, config_.qkv_width());
    DRAFTMILL_RETURN_IF_ERROR(Rotate(index, layer, rows, positions));
    DRAFTMILL_RETURN_IF_ERROR(attention_.Run({qkv_.data(), attended_.data(), sequences, WindowOf(index)}, compute_.get()));
    Multiply(attended_, layer.Matrix(layout.o), layer.Bias(layout.o_bias), branch_, rows, config_.q_width(), config_.hidden_size);
    AddNormArgs middle = NormArgs(rows);
    middle.branch = branch_.data();
    middle.branch_weight = layer.Vector(layout.attention_output_norm);
    middle.weight = layer.Vector(layout.mlp_norm);
    middle.out = normed_.data();
    DRAFTMILL_RETURN_IF_ERROR(cuda::AddNorm(middle, compute_.get()));
    Multiply(normed_, layer.Matrix(layout.gate_up), layer.Bias(layout.gate_up_bias), gate_up_, rows, config_.hidden_size,
             2 * config_.intermediate_size);
    DRAFTMILL_RETURN_IF_ERROR(cuda::Gate({gate_up_.data(), gated_.data(), rows, config_.intermediate_size,
                                          config_.activation == Activation::kGeluTanh ? GateKind::kGeluTanh : GateKind::kSilu, 0},
                                         compute_.get()));
    Multiply(gated_, layer.Matrix(layout.down), layer.Bias(layout.down_bias), branch_, rows, config_.intermediate_size,
             config_.hidden_size);
    return OkStatus();
  }

  AddNormArgs NormArgs(std::int64_t rows) {
    AddNormArgs args;
    args.residual = residual_.data();
    args.rows = rows;
    args.cols = config_.hidden_size;
    args.epsilon = static_cast<float>(config_.norm_eps);
    args.rounding = rounding_;
    args.one_plus = config_.norm_one_plus;
    return args;
  }

  /// The add of the MLP's branch of the layer before, which makes x_index, and its capture.
  AddNormArgs BranchOf(std::int64_t index, Slot& slot, std::int64_t rows) {
    AddNormArgs args = NormArgs(rows);
    if (index > 0) {
      const DeviceLayer& before = weights_.layer(index - 1);
      args.branch = branch_.data();
      args.branch_weight = before.Vector(before.layout.mlp_output_norm);
    }
    const auto found = std::find(options_.layers.begin(), options_.layers.end(), static_cast<std::int32_t>(index));
    if (found != options_.layers.end()) {
      args.capture = slot.states.data() + (found - options_.layers.begin()) * config_.hidden_size;
      args.capture_stride = StateWidth();
    }
    return args;
  }
  Status AddBranch(std::int64_t index, Slot& slot, std::int64_t rows) {
    return cuda::AddNorm(BranchOf(index, slot, rows), compute_.get());
  }

  Status Rotate(std::int64_t index, const DeviceLayer& layer, std::int64_t rows, const std::int32_t* positions) {
    const bool local = config_.local_rope && WindowOf(index) > 0;
    RotateHeadsArgs args;
    args.heads = qkv_.data();
    args.positions = positions;
    args.cosines = local ? local_cosines_.data() : cosines_.data();
    args.sines = local ? local_sines_.data() : sines_.data();
    args.q_norm = layer.Vector(layer.layout.q_norm);
    args.k_norm = layer.Vector(layer.layout.k_norm);
    args.rows = rows;
    args.row_stride = config_.qkv_width();
    args.q_heads = config_.num_heads;
    args.k_heads = config_.num_kv_heads;
    args.head_dim = config_.head_dim;
    args.rotary_dims = local ? config_.local_rope->rotary_dims : config_.rope.rotary_dims;
    args.interleaved = config_.rope.interleaved;
    args.epsilon = static_cast<float>(config_.norm_eps);
    args.norm_rounding = rounding_;
    args.one_plus = config_.norm_one_plus;
    return cuda::RotateHeads(args, compute_.get());
  }

  std::int64_t WindowOf(std::int64_t layer) const {
    const auto& sliding = config_.sliding_layers;
    return std::binary_search(sliding.begin(), sliding.end(), static_cast<std::int32_t>(layer)) ? config_.sliding_window : 0;
  }

  at::Tensor View(const Bf16* data, std::int64_t rows, std::int64_t cols) const {
    return at::from_blob(const_cast<Bf16*>(data), {rows, cols}, options_on_device_);  // NOLINT: only results are written
  }
  /// out [rows, outputs] = in [rows, inputs] * weight [outputs, inputs]^T (+ bias).
  void Multiply(const DeviceBuffer<Bf16>& in, const Bf16* weight, const Bf16* bias, DeviceBuffer<Bf16>& out, std::int64_t rows,
                std::int64_t inputs, std::int64_t outputs) const {
    at::Tensor result = View(out.data(), rows, outputs);
    const at::Tensor transposed = View(weight, outputs, inputs).t();
    if (bias == nullptr) {
      at::mm_out(result, View(in.data(), rows, inputs), transposed);
    } else {
      // A bias of one dimension is added by the product itself, before its one rounding.
      at::addmm_out(result, View(bias, 1, outputs).view({outputs}), View(in.data(), rows, inputs), transposed);
    }
  }

  const ModelConfig config_;
  const DeviceDecoderOptions options_;
  const DeviceWeights weights_;
  DeviceAttention attention_;
  const NormRounding rounding_;
  RotaryTable rotary_;
  RotaryTable local_rotary_;
  at::TensorOptions options_on_device_;
  Stream compute_;
  Stream copy_;
  std::optional<c10::cuda::CUDAStream> torch_stream_;
  std::array<Slot, kDeviceSlots> slots_;
  std::int64_t rows_ = 0;
  std::int64_t samples_ = 0;
  std::int64_t longest_ = 0;
  DeviceBuffer<Bf16> residual_;   ///< [rows, hidden]
  DeviceBuffer<Bf16> normed_;     ///< [rows, hidden]
  DeviceBuffer<Bf16> branch_;     ///< [rows, hidden]: what is added to the residual stream next
  DeviceBuffer<Bf16> qkv_;        ///< [rows, (heads + 2 kv_heads) * head_dim]
  DeviceBuffer<Bf16> attended_;   ///< [rows, heads * head_dim]
  DeviceBuffer<Bf16> gate_up_;    ///< [rows, 2 * intermediate]
  DeviceBuffer<Bf16> gated_;      ///< [rows, intermediate]
  DeviceBuffer<float> cosines_;
  DeviceBuffer<float> sines_;
  DeviceBuffer<float> local_cosines_;  ///< Gemma-3's sliding layers
  DeviceBuffer<float> local_sines_;
};

}  // namespace

Result<std::unique_ptr<DeviceDecoder>> DeviceDecoder::Make(const ModelConfig& config, DeviceDecoderOptions options,
                                                           DeviceWeights weights) {
  // Sums of products stay float32 until the one rounding of the result, as the published models have it.
  at::globalContext().setAllowBF16ReductionCuBLAS(false);
  const AttentionShape shape{config.num_heads, config.num_kv_heads, config.head_dim, static_cast<float>(config.softmax_scale)};
  DRAFTMILL_ASSIGN_OR_RETURN(DeviceAttention attention, DeviceAttention::Make(shape));
  auto decoder = std::make_unique<DenseDecoder>(config, std::move(options), std::move(weights), std::move(attention));
  DRAFTMILL_RETURN_IF_ERROR(decoder->Prepare());
  return std::unique_ptr<DeviceDecoder>(std::move(decoder));
}

}  // namespace draftmill

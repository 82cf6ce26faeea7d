#include "stages/extract/device_decoder.h"

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
#include "stages/extract/device_attention_branch.h"
#include "stages/extract/device_mlp_branch.h"
#include "stages/extract/device_products.h"

namespace draftmill {
namespace {

using cuda::AddNormArgs;
using cuda::Check;
using cuda::DeviceBuffer;
using cuda::PinnedBuffer;

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
    q_offsets = place(places + 1);
    k_offsets = place(places + 1);
    v_offsets = place(places + 1);
    out_offsets = place(places + 1);
    total = next;
  }
  std::int64_t ids = 0;
  std::int64_t positions = 0;
  std::int64_t sample = 0;
  std::int64_t cu_seqlens = 0;
  std::int64_t lengths = 0;
  std::int64_t q_offsets = 0;
  std::int64_t k_offsets = 0;
  std::int64_t v_offsets = 0;
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

NormRounding RoundingOf(const ModelConfig& config, const DeviceDecoderOptions& options) {
  return options.fused_norms || config.norm_multiplies_in_float ? NormRounding::kFused : NormRounding::kHf;
}

class ResidentDecoder : public DeviceDecoder {
 public:
  ResidentDecoder(const ModelConfig& config, DeviceDecoderOptions options, DeviceWeights weights,
                  std::unique_ptr<AttentionBranch> attention)
      : config_(config),
        options_(std::move(options)),
        weights_(std::move(weights)),
        rounding_(RoundingOf(config, options_)),
        attention_(std::move(attention)),
        mlp_(config) {}

  Status Prepare() {
    int device = 0;
    DRAFTMILL_RETURN_IF_ERROR(Check(cudaGetDevice(&device), "cudaGetDevice"));
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
    DRAFTMILL_RETURN_IF_ERROR(attention_->Reserve(rows, longest));
    return mlp_.Reserve(rows);
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
    const AttentionShape& shape = attention_->shape();
    std::int32_t* host = slot.host_indices.data();
    std::fill_n(host, layout.total, 0);  // padding rows are token 0 at position 0
    std::copy(batch.input_ids.begin(), batch.input_ids.end(), host + layout.ids);
    std::copy(batch.sample.begin(), batch.sample.end(), host + layout.sample);
    const std::int64_t places = layout.lengths - layout.cu_seqlens;
    for (std::int64_t i = 0; i < places; ++i) {
      const std::int64_t start = batch.cu_seqlens[static_cast<std::size_t>(std::min(i, batch.samples()))];
      host[layout.cu_seqlens + i] = static_cast<std::int32_t>(start);
      host[layout.q_offsets + i] = static_cast<std::int32_t>(start * shape.q.token);
      host[layout.k_offsets + i] = static_cast<std::int32_t>(start * shape.k.token);
      host[layout.v_offsets + i] = static_cast<std::int32_t>(start * shape.v.token);
      host[layout.out_offsets + i] = static_cast<std::int32_t>(start * shape.out_width());
      if (i >= batch.samples()) continue;
      const std::int64_t tokens = batch.cu_seqlens[static_cast<std::size_t>(i) + 1] - start;
      host[layout.lengths + i] = static_cast<std::int32_t>(tokens);
      for (std::int64_t t = 0; t < tokens; ++t) host[layout.positions + start + t] = attention_->RotaryRow(t, tokens);
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
    const DeviceSequences sequences{batch.samples(), batch.tokens, batch.longest, index + indices.cu_seqlens, index + indices.lengths,
                                    index + indices.q_offsets, index + indices.k_offsets, index + indices.v_offsets,
                                    index + indices.out_offsets};
    const std::int64_t layers = options_.layers.back();
    for (std::int64_t i = 0; i < layers; ++i) {
      DRAFTMILL_RETURN_IF_ERROR(RunLayer(i, slot, batch.rows(), index + indices.positions, sequences));
    }
    return AddBranch(layers, slot, batch.rows());
  }

  Status RunLayer(std::int64_t index, Slot& slot, std::int64_t rows, const std::int32_t* positions, const DeviceSequences& sequences) {
    const DeviceLayer layer = weights_.layer(index);
    const LayerLayout& layout = *layer.layout;
    AddNormArgs head = BranchOf(index, slot, rows);
    head.weight = layer.Vector(layout.input_norm);
    head.out = normed_.data();
    DRAFTMILL_RETURN_IF_ERROR(cuda::AddNorm(head, compute_.get()));
    DRAFTMILL_RETURN_IF_ERROR(
        attention_->Run({index, layer, normed_.data(), branch_.data(), rows, positions, sequences}, compute_.get()));
    AddNormArgs middle = NormArgs(rows);
    middle.branch = branch_.data();
    middle.branch_weight = layer.Vector(layout.attention_output_norm);
    middle.weight = layer.Vector(layout.mlp_norm);
    middle.out = normed_.data();
    DRAFTMILL_RETURN_IF_ERROR(cuda::AddNorm(middle, compute_.get()));
    return mlp_.Run({layer, normed_.data(), branch_.data(), rows}, compute_.get());
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
      const DeviceLayer before = weights_.layer(index - 1);
      args.branch = branch_.data();
      args.branch_weight = before.Vector(before.layout->mlp_output_norm);
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

  const ModelConfig config_;
  const DeviceDecoderOptions options_;
  const DeviceWeights weights_;
  const NormRounding rounding_;
  const std::unique_ptr<AttentionBranch> attention_;
  MlpBranch mlp_;
  Stream compute_;
  Stream copy_;
  std::optional<c10::cuda::CUDAStream> torch_stream_;
  std::array<Slot, kDeviceSlots> slots_;
  std::int64_t rows_ = 0;
  std::int64_t samples_ = 0;
  DeviceBuffer<Bf16> residual_;   ///< [rows, hidden]
  DeviceBuffer<Bf16> normed_;     ///< [rows, hidden]
  DeviceBuffer<Bf16> branch_;     ///< [rows, hidden]: what is added to the residual stream next
};

}  // namespace

Result<std::unique_ptr<DeviceDecoder>> DeviceDecoder::Make(const ModelConfig& config, DeviceDecoderOptions options,
                                                           DeviceWeights weights) {
  KeepFloatSums();
  DRAFTMILL_ASSIGN_OR_RETURN(auto attention, AttentionBranch::Make(config, RoundingOf(config, options)));
  auto decoder = std::make_unique<ResidentDecoder>(config, std::move(options), std::move(weights), std::move(attention));
  DRAFTMILL_RETURN_IF_ERROR(decoder->Prepare());
  return std::unique_ptr<DeviceDecoder>(std::move(decoder));
}

}  // namespace draftmill

#include "stages/extract/device/device_decoder.h"

#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <utility>

#include "kernels/decoder_cuda.h"
#include "kernels/device_buffer.h"
#include "stages/extract/device/device_attention_branch.h"
#include "stages/extract/device/device_handles.h"
#include "stages/extract/device/device_mlp_branch.h"
#include "stages/extract/device/device_products.h"

namespace draftmill {
namespace {

using cuda::AddNormArgs;
using cuda::Check;
using cuda::DeviceBuffer;
using cuda::PinnedBuffer;

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

/// What a block under way holds. Batches have places of one size, [batches] in each array.
struct Slot {
  PinnedBuffer<std::int32_t> host_indices;
  DeviceBuffer<std::int32_t> indices;
  DeviceBuffer<std::int32_t> bad;  ///< [batches][samples]
  PinnedBuffer<std::int32_t> host_bad;
  std::vector<Event> copied;          ///< by batch: its states are on the host
  std::vector<std::int64_t> samples;  ///< by batch
};

/// A captured layer of a batch on its way to the host.
struct CaptureBuffer {
  DeviceBuffer<Bf16> rows;  ///< [rows of a batch, hidden]
  Event stored;
  Event copied;
};

NormRounding RoundingOf(const ModelConfig& config, const DeviceDecoderOptions& options) {
  return options.fused_norms || config.norm_multiplies_in_float ? NormRounding::kFused : NormRounding::kHf;
}

class LayerMajorDecoder : public DeviceDecoder {
 public:
  LayerMajorDecoder(const ModelConfig& config, DeviceDecoderOptions options, std::unique_ptr<DeviceWeights> weights,
                    std::unique_ptr<AttentionBranch> attention)
      : config_(config),
        options_(std::move(options)),
        weights_(std::move(weights)),
        rounding_(RoundingOf(config, options_)),
        attention_(std::move(attention)),
        mlp_(config) {}
  ~LayerMajorDecoder() override {
    // What is under way must not find its buffers gone.
    if (compute_) cudaStreamSynchronize(compute_.get());
    if (copy_) cudaStreamSynchronize(copy_.get());
  }

  Status Prepare() {
    int device = 0;
    DRAFTMILL_RETURN_IF_ERROR(Check(cudaGetDevice(&device), "cudaGetDevice"));
    DRAFTMILL_ASSIGN_OR_RETURN(compute_, MakeStream());
    DRAFTMILL_ASSIGN_OR_RETURN(copy_, MakeStream());
    for (CaptureBuffer& capture : captures_) {
      DRAFTMILL_ASSIGN_OR_RETURN(capture.stored, MakeEvent());
      DRAFTMILL_ASSIGN_OR_RETURN(capture.copied, MakeEvent());
    }
    for (Event& event : layer_done_) {
      DRAFTMILL_ASSIGN_OR_RETURN(event, MakeEvent());
    }
    torch_stream_.emplace(c10::cuda::getStreamFromExternal(compute_.get(), static_cast<c10::DeviceIndex>(device)));
    return OkStatus();
  }

  Status Reserve(const DeviceRoom& room) override {
    DeviceRoom wanted = room_;
    wanted.batch_tokens = std::max(wanted.batch_tokens, room.batch_tokens);
    wanted.samples = std::max(wanted.samples, room.samples);
    wanted.longest = std::max(wanted.longest, room.longest);
    wanted.batches = std::max(wanted.batches, room.batches);
    wanted.block_rows = std::max(wanted.block_rows, room.block_rows);
    if (wanted == room_) return OkStatus();
    DRAFTMILL_RETURN_IF_ERROR(Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize"));
    room_ = {};  // until all is there
    DRAFTMILL_RETURN_IF_ERROR(GrowBuffers(wanted));
    room_ = wanted;
    return OkStatus();
  }

  Status Start(int slot_index, const DeviceBlock& block, const std::atomic<bool>& stop) override {
    const c10::InferenceMode inference;
    const c10::cuda::CUDAStream before = c10::cuda::getCurrentCUDAStream();
    c10::cuda::setCurrentCUDAStream(*torch_stream_);
    const Status status = Queue(slots_[static_cast<std::size_t>(slot_index)], block, stop);
    c10::cuda::setCurrentCUDAStream(before);
    if (status.ok()) return status;
    // Nothing of it may still write to the host when its memory goes back.
    cudaStreamSynchronize(compute_.get());
    cudaStreamSynchronize(copy_.get());
    weights_->Abandon();
    return status;
  }

  Result<std::vector<std::int64_t>> Wait(int slot_index, std::int64_t batch) override {
    const Slot& slot = slots_[static_cast<std::size_t>(slot_index)];
    const auto index = static_cast<std::size_t>(batch);
    DRAFTMILL_RETURN_IF_ERROR(Check(cudaEventSynchronize(slot.copied[index].get()), "waiting for a batch"));
    std::vector<std::int64_t> bad;
    for (std::int64_t i = 0; i < slot.samples[index]; ++i) {
      if (slot.host_bad.data()[batch * room_.samples + i] != 0) bad.push_back(i);
    }
    return bad;
  }

 private:
  /// A batch within its block.
  struct Place {
    const DeviceBatch* batch = nullptr;
    std::int64_t index = 0;
    std::int64_t first_row = 0;  ///< in the block's buffers
    Bf16* host_states = nullptr;
    DeviceSequences sequences;
    const std::int32_t* ids = nullptr;
    const std::int32_t* rotary_rows = nullptr;
    const std::int32_t* sample = nullptr;
    std::int32_t* bad = nullptr;
  };

  std::int64_t StateWidth() const { return static_cast<std::int64_t>(options_.layers.size()) * config_.hidden_size; }

  // ---- buffers ----

  Status GrowBuffers(const DeviceRoom& room) {
    const std::int64_t rows = RowsFor(room.batch_tokens);
    const bool spans = config_.experts.has_value();
    DRAFTMILL_RETURN_IF_ERROR(residual_.Grow(room.block_rows * config_.hidden_size));
    DRAFTMILL_RETURN_IF_ERROR(branch_.Grow(room.block_rows * config_.hidden_size));
    DRAFTMILL_RETURN_IF_ERROR(normed_.Grow((spans ? room.block_rows : rows) * config_.hidden_size));
    for (CaptureBuffer& capture : captures_) DRAFTMILL_RETURN_IF_ERROR(capture.rows.Grow(rows * config_.hidden_size));
    const IndexLayout indices(rows, room.samples);
    for (Slot& slot : slots_) {
      DRAFTMILL_RETURN_IF_ERROR(slot.indices.Grow(room.batches * indices.total));
      DRAFTMILL_RETURN_IF_ERROR(slot.bad.Grow(room.batches * room.samples));
      DRAFTMILL_ASSIGN_OR_RETURN(slot.host_indices, PinnedBuffer<std::int32_t>::Make(room.batches * indices.total));
      DRAFTMILL_ASSIGN_OR_RETURN(slot.host_bad, PinnedBuffer<std::int32_t>::Make(room.batches * room.samples));
      slot.samples.resize(static_cast<std::size_t>(room.batches));
      while (static_cast<std::int64_t>(slot.copied.size()) < room.batches) {
        DRAFTMILL_ASSIGN_OR_RETURN(Event event, MakeEvent());
        slot.copied.push_back(std::move(event));
      }
    }
    DRAFTMILL_RETURN_IF_ERROR(attention_->Reserve(rows, room.longest));
    return mlp_.Reserve(spans ? room.block_rows : rows);
  }

  // ---- a block ----

  Status Queue(Slot& slot, const DeviceBlock& block, const std::atomic<bool>& stop) {
    // The slot's arrays are no longer read: its owner waited for every batch.
    DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<Place> places, SendIndices(slot, block));
    for (const Place& place : places) {
      DRAFTMILL_RETURN_IF_ERROR(
          cuda::EmbedRows({weights_->embedding(), place.ids, Residual(place), place.batch->rows(), config_.hidden_size,
                           RoundToBf16(static_cast<float>(config_.embedding_scale))},
                          compute_.get()));
    }
    const std::int64_t layers = options_.layers.back();
    for (std::int64_t i = 0; i < layers; ++i) {
      if (places.size() > 1) DRAFTMILL_RETURN_IF_ERROR(KeepClose(i));
      if (stop) return Cancelled("stopped on request");
      DRAFTMILL_RETURN_IF_ERROR(RunLayer(i, places));
      if (places.size() > 1) {
        DRAFTMILL_RETURN_IF_ERROR(Check(cudaEventRecord(LayerDone(i).get(), compute_.get()), "cudaEventRecord"));
      }
    }
    for (const Place& place : places) {
      DRAFTMILL_RETURN_IF_ERROR(AddBranch(layers, place, nullptr, nullptr));
      DRAFTMILL_RETURN_IF_ERROR(FinishBatch(slot, place));
    }
    return OkStatus();
  }

  Event& LayerDone(std::int64_t index) { return layer_done_[static_cast<std::size_t>(index) % layer_done_.size()]; }

  /// Does not run ahead of the GPU by more than two layers: a large block can then be stopped between layers.
  Status KeepClose(std::int64_t index) {
    return Check(cudaEventSynchronize(LayerDone(index).get()), "waiting for a layer");
  }

  Result<std::vector<Place>> SendIndices(Slot& slot, const DeviceBlock& block) {
    const IndexLayout layout(RowsFor(room_.batch_tokens), room_.samples);
    std::vector<Place> places;
    std::int64_t first_row = 0;
    for (std::size_t i = 0; i < block.batches.size(); ++i) {
      const DeviceBatch& batch = block.batches[i];
      const auto index = static_cast<std::int64_t>(i);
      FillIndices(batch, layout, slot.host_indices.data() + index * layout.total);
      const std::int32_t* at = slot.indices.data() + index * layout.total;
      const DeviceSequences sequences{batch.samples(),        batch.tokens,          batch.longest,
                                      at + layout.cu_seqlens, at + layout.lengths,   at + layout.q_offsets,
                                      at + layout.k_offsets,  at + layout.v_offsets, at + layout.out_offsets};
      places.push_back({&batch, index, first_row, block.host_states[i], sequences, at + layout.ids,
                        at + layout.positions, at + layout.sample, slot.bad.data() + index * room_.samples});
      slot.samples[i] = batch.samples();
      first_row += batch.rows();
    }
    const auto count = static_cast<std::size_t>(block.batches.size());
    DRAFTMILL_RETURN_IF_ERROR(
        Check(cudaMemsetAsync(slot.bad.data(), 0,
                              count * static_cast<std::size_t>(room_.samples) * sizeof(std::int32_t), compute_.get()),
              "cudaMemsetAsync"));
    DRAFTMILL_RETURN_IF_ERROR(cuda::CopyIntegers(
        {slot.host_indices.data(), slot.indices.data(), static_cast<std::int64_t>(count) * layout.total},
        compute_.get()));
    return places;
  }

  void FillIndices(const DeviceBatch& batch, const IndexLayout& layout, std::int32_t* host) const {
    const AttentionShape& shape = attention_->shape();
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
  }

  // ---- a layer ----

  Status RunLayer(std::int64_t index, const std::vector<Place>& places) {
    DRAFTMILL_ASSIGN_OR_RETURN(const DeviceLayer layer, weights_->Acquire(index, compute_.get()));
    const bool spans = layer.layout->has_experts();
    for (const Place& place : places) {
      Bf16* const normed = normed_.data() + (spans ? place.first_row * config_.hidden_size : 0);
      DRAFTMILL_RETURN_IF_ERROR(AddBranch(index, place, layer.Vector(layer.layout->input_norm), normed));
      DRAFTMILL_RETURN_IF_ERROR(attention_->Run(
          {index, layer, normed, Branch(place), place.batch->rows(), place.rotary_rows, place.sequences},
          compute_.get()));
      AddNormArgs middle = NormArgs(place);
      middle.branch = Branch(place);
      middle.branch_weight = layer.Vector(layer.layout->attention_output_norm);
      middle.weight = layer.Vector(layer.layout->mlp_norm);
      middle.out = normed;
      DRAFTMILL_RETURN_IF_ERROR(cuda::AddNorm(middle, compute_.get()));
      if (!spans)
        DRAFTMILL_RETURN_IF_ERROR(mlp_.Run({layer, normed, Branch(place), place.batch->rows()}, compute_.get()));
    }
    if (spans) {
      const std::int64_t rows = places.back().first_row + places.back().batch->rows();
      DRAFTMILL_RETURN_IF_ERROR(mlp_.Run({layer, normed_.data(), branch_.data(), rows}, compute_.get()));
    }
    return weights_->Release(index, compute_.get());
  }

  Bf16* Residual(const Place& place) { return residual_.data() + place.first_row * config_.hidden_size; }
  Bf16* Branch(const Place& place) { return branch_.data() + place.first_row * config_.hidden_size; }

  AddNormArgs NormArgs(const Place& place) {
    AddNormArgs args;
    args.residual = Residual(place);
    args.rows = place.batch->rows();
    args.cols = config_.hidden_size;
    args.epsilon = static_cast<float>(config_.norm_eps);
    args.rounding = rounding_;
    args.one_plus = config_.norm_one_plus;
    return args;
  }

  /// The add of the MLP's branch of the layer before, which makes x_index, its capture, and the norm that follows where
  /// there is a weight.
  Status AddBranch(std::int64_t index, const Place& place, const float* weight, Bf16* normed) {
    AddNormArgs args = NormArgs(place);
    args.weight = weight;
    args.out = normed;
    if (index > 0) {
      const DeviceLayer before = weights_->Vectors(index - 1);
      args.branch = Branch(place);
      args.branch_weight = before.Vector(before.layout->mlp_output_norm);
    }
    const auto found = std::find(options_.layers.begin(), options_.layers.end(), static_cast<std::int32_t>(index));
    if (found == options_.layers.end() || place.host_states == nullptr) return cuda::AddNorm(args, compute_.get());
    CaptureBuffer& capture = captures_[next_capture_++ % captures_.size()];
    // An event that was never recorded holds nobody up.
    DRAFTMILL_RETURN_IF_ERROR(
        Check(cudaStreamWaitEvent(compute_.get(), capture.copied.get(), 0), "cudaStreamWaitEvent"));
    args.capture = capture.rows.data();
    args.capture_stride = config_.hidden_size;
    DRAFTMILL_RETURN_IF_ERROR(cuda::AddNorm(args, compute_.get()));
    DRAFTMILL_RETURN_IF_ERROR(cuda::MarkNonFinite(
        {capture.rows.data(), place.sample, place.bad, place.batch->tokens, config_.hidden_size}, compute_.get()));
    return CopyOut(capture, found - options_.layers.begin(), place);
  }

  Status CopyOut(CaptureBuffer& capture, std::int64_t slot, const Place& place) {
    DRAFTMILL_RETURN_IF_ERROR(WaitFor(copy_.get(), compute_.get(), capture.stored));
    const auto row = static_cast<std::size_t>(config_.hidden_size) * sizeof(Bf16);
    const auto host_row = static_cast<std::size_t>(StateWidth()) * sizeof(Bf16);
    DRAFTMILL_RETURN_IF_ERROR(
        Check(cudaMemcpy2DAsync(place.host_states + slot * config_.hidden_size, host_row, capture.rows.data(), row, row,
                                static_cast<std::size_t>(place.batch->tokens), cudaMemcpyDeviceToHost, copy_.get()),
              "copy of states"));
    return Check(cudaEventRecord(capture.copied.get(), copy_.get()), "cudaEventRecord");
  }

  /// After a batch's last captured layer, whose copy waits for all that was computed before.
  Status FinishBatch(Slot& slot, const Place& place) {
    if (place.host_states == nullptr) return OkStatus();
    const std::int64_t first = place.index * room_.samples;
    DRAFTMILL_RETURN_IF_ERROR(
        Check(cudaMemcpyAsync(slot.host_bad.data() + first, slot.bad.data() + first,
                              static_cast<std::size_t>(place.batch->samples()) * sizeof(std::int32_t),
                              cudaMemcpyDeviceToHost, copy_.get()),
              "copy of what is not finite"));
    return Check(cudaEventRecord(slot.copied[static_cast<std::size_t>(place.index)].get(), copy_.get()),
                 "cudaEventRecord");
  }

  const ModelConfig config_;
  const DeviceDecoderOptions options_;
  const std::unique_ptr<DeviceWeights> weights_;
  const NormRounding rounding_;
  const std::unique_ptr<AttentionBranch> attention_;
  MlpBranch mlp_;
  Stream compute_;
  Stream copy_;
  std::optional<c10::cuda::CUDAStream> torch_stream_;
  std::array<Slot, kDeviceSlots> slots_;
  std::array<CaptureBuffer, kCaptureBuffers> captures_;
  std::size_t next_capture_ = 0;
  std::array<Event, 2> layer_done_;
  DeviceRoom room_;
  DeviceBuffer<Bf16> residual_;  ///< [rows of a block, hidden]
  DeviceBuffer<Bf16> branch_;    ///< [rows of a block, hidden]: what is added to the residual stream next
  DeviceBuffer<Bf16> normed_;    ///< [rows of a batch, hidden]; of a block where experts take its rows
};

}  // namespace

Result<std::unique_ptr<DeviceDecoder>> DeviceDecoder::Make(const ModelConfig& config, DeviceDecoderOptions options,
                                                           std::unique_ptr<DeviceWeights> weights) {
  KeepFloatSums();
  DRAFTMILL_ASSIGN_OR_RETURN(auto attention, AttentionBranch::Make(config, RoundingOf(config, options)));
  auto decoder =
      std::make_unique<LayerMajorDecoder>(config, std::move(options), std::move(weights), std::move(attention));
  DRAFTMILL_RETURN_IF_ERROR(decoder->Prepare());
  return std::unique_ptr<DeviceDecoder>(std::move(decoder));
}

}  // namespace draftmill

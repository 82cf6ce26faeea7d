#include "stages/extract/weights/weight_store.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <future>
#include <new>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "stages/extract/weights/aligned_buffer.h"
#include "stages/extract/weights/layer_reader.h"
#include "stages/extract/weights/weight_files.h"

namespace draftmill {
namespace {

constexpr std::string_view kEmbedding = "embed_tokens.weight";
constexpr std::string_view kHead = "lm_head.weight";
constexpr std::string_view kFinalNorm = "norm.weight";

/// What both policies share: the files, the model, the final norm, rows of matrices that stay on disk.
template <typename W>
class StoreBase : public WeightStore<W> {
 public:
  StoreBase(const ModelFolder& model, std::unique_ptr<WeightFiles> files)
      : model_(model), files_(std::move(files)), reader_(model_, *files_), final_norm_(model.config.hidden_size) {}

  const float* final_norm() const override { return final_norm_.data(); }
  const std::string& digest() const override { return digest_; }

  Status HeadRows(std::int64_t first, std::int64_t count, W* rows) override {
    return StoredRows(model_.tensors.Has(kHead) ? kHead : kEmbedding, first, count, rows);
  }

 protected:
  std::int64_t hidden() const { return model_.config.hidden_size; }

  /// Rows of a matrix of plain numbers, through the page cache.
  Status StoredRows(std::string_view name, std::int64_t first, std::int64_t count, W* rows) {
    const TensorPlace& place = model_.tensors.Get(name);
    const std::int64_t row_bytes = hidden() * safetensors::DtypeBits(place.info.dtype) / 8;
    std::vector<std::byte> bytes(static_cast<std::size_t>(count * row_bytes));
    DRAFTMILL_RETURN_IF_ERROR(files_->ReadBytes(place.file, place.info.offset + first * row_bytes, bytes));
    ConvertElements(place.info.dtype, bytes.data(), rows, count * hidden());
    return OkStatus();
  }

  /// Folds the parts' digests: embedding, layers, final norm.
  void SetDigest(const std::vector<Hash128>& parts) {
    StreamingHash all;
    for (const Hash128& part : parts) all.Update(std::as_bytes(std::span(part.bytes)));
    digest_ = ToHex(all.Digest128());
  }

  const ModelFolder model_;
  const std::unique_ptr<WeightFiles> files_;
  LayerReader<W> reader_;
  AlignedBuffer<float> final_norm_;

 private:
  std::string digest_;
};

/// All layers in memory.
template <typename W>
class ResidentStore : public StoreBase<W> {
 public:
  using StoreBase<W>::StoreBase;

  Status Load() {
    const ModelConfig& config = this->model_.config;
    embedding_.Grow(config.vocab_size * config.hidden_size);
    std::vector<Hash128> parts(static_cast<std::size_t>(config.num_layers + 2));
    DRAFTMILL_ASSIGN_OR_RETURN(parts.front(), this->reader_.ReadMatrix(kEmbedding, embedding_.data()));
    for (std::int64_t layer = 0; layer < config.num_layers; ++layer) {
      DRAFTMILL_ASSIGN_OR_RETURN(parts[static_cast<std::size_t>(layer + 1)],
                                 this->reader_.Read(layer, layers_.emplace_back()));
    }
    DRAFTMILL_ASSIGN_OR_RETURN(parts.back(), this->reader_.ReadVector(kFinalNorm, this->final_norm_.data()));
    this->SetDigest(parts);
    return OkStatus();
  }

  Result<LayerView<W>> Acquire(std::int64_t layer) override {
    const LayerBlock<W>& block = layers_[static_cast<std::size_t>(layer)];
    return LayerView<W>{&block.layout, block.vectors.data(), block.matrices.data(), block.packed.data()};
  }
  void Release(std::int64_t) override {}

  Status EmbeddingRows(std::span<const std::int32_t> ids, W* rows) override {
    for (const std::int32_t id : ids) {
      const W* const row = embedding_.data() + id * this->hidden();
      rows = std::copy(row, row + this->hidden(), rows);
    }
    return OkStatus();
  }

 private:
  AlignedBuffer<W> embedding_;
  std::deque<LayerBlock<W>> layers_;
};

/// Layers read when their turn comes, the next one in the background.
template <typename W>
class StreamedStore : public StoreBase<W> {
 public:
  StreamedStore(const ModelFolder& model, std::unique_ptr<WeightFiles> files, int slots)
      : StoreBase<W>(model, std::move(files)), slots_(static_cast<std::size_t>(slots)) {}
  ~StreamedStore() override {
    if (reading_.valid()) reading_.wait();
  }

  /// Reads everything once, for the digest, so that changed weights are seen before anything is computed.
  Status Prepare() {
    const ModelConfig& config = this->model_.config;
    for (Slot& slot : slots_) slot.block.Prepare(LargestLayout(config));
    digests_.resize(static_cast<std::size_t>(config.num_layers + 2));
    DRAFTMILL_ASSIGN_OR_RETURN(embedding_stamp_, EmbeddingStamp());
    DRAFTMILL_ASSIGN_OR_RETURN(digests_.front(), this->reader_.ReadMatrix(kEmbedding, nullptr));
    for (std::int64_t layer = config.num_layers - 1; layer >= 0; --layer) {
      // Backwards, so that the first layers are in their slots when the first block comes.
      Slot& slot = slots_[static_cast<std::size_t>(layer) % slots_.size()];
      slot.layer = -1;
      DRAFTMILL_ASSIGN_OR_RETURN(digests_[static_cast<std::size_t>(layer + 1)], this->reader_.Read(layer, slot.block));
      slot.layer = layer;
    }
    DRAFTMILL_ASSIGN_OR_RETURN(digests_.back(), this->reader_.ReadVector(kFinalNorm, this->final_norm_.data()));
    this->SetDigest(digests_);
    return OkStatus();
  }

  Result<LayerView<W>> Acquire(std::int64_t layer) override {
    if (layer == 0) DRAFTMILL_RETURN_IF_ERROR(CheckEmbedding());
    Slot* slot = FindLayer(layer);
    if (slot == nullptr) {
      DRAFTMILL_RETURN_IF_ERROR(FinishReading());
      slot = FindLayer(layer);
    }
    if (slot == nullptr) {
      StartReading(layer);
      DRAFTMILL_RETURN_IF_ERROR(FinishReading());
      slot = FindLayer(layer);
    }
    if (slot == nullptr) return Internal("more layers are held than the store of weights has room for");
    slot->held = true;
    newest_ = layer;
    StartReading(Next(newest_));
    const LayerBlock<W>& block = slot->block;
    return LayerView<W>{&block.layout, block.vectors.data(), block.matrices.data(), block.packed.data()};
  }

  void Release(std::int64_t layer) override {
    if (Slot* slot = FindLayer(layer)) slot->held = false;
    StartReading(Next(newest_));
  }

  Status EmbeddingRows(std::span<const std::int32_t> ids, W* rows) override {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      DRAFTMILL_RETURN_IF_ERROR(
          this->StoredRows(kEmbedding, ids[i], 1, rows + static_cast<std::int64_t>(i) * this->hidden()));
    }
    return OkStatus();
  }

 private:
  struct Slot {
    LayerBlock<W> block;
    std::int64_t layer = -1;  ///< -1: empty, or being read
    bool held = false;
  };

  Result<FileStamp> EmbeddingStamp() const { return this->files_->Stamp(this->model_.tensors.Get(kEmbedding).file); }

  /// Rows of the embedding are read one by one, outside any digest. A block begins with them and goes on with layer 0:
  /// where somebody wrote to their file meanwhile, all of the embedding is held against its digest again.
  Status CheckEmbedding() {
    DRAFTMILL_ASSIGN_OR_RETURN(const FileStamp stamp, EmbeddingStamp());
    if (stamp == embedding_stamp_) return OkStatus();
    DRAFTMILL_RETURN_IF_ERROR(FinishReading());
    DRAFTMILL_ASSIGN_OR_RETURN(const Hash128 digest, this->reader_.ReadMatrix(kEmbedding, nullptr));
    if (digest != digests_.front()) return Changed("the embedding");
    embedding_stamp_ = stamp;
    return OkStatus();
  }

  Status Changed(const std::string& part) const {
    return InvalidInput(this->model_.index.model_folder + ": the weights of " + part +
                        " changed since they were read first. What is published is safe; put the right files back and "
                        "run again");
  }

  static LayerLayout LargestLayout(const ModelConfig& config) {
    LayerLayout largest;
    for (std::int64_t layer = 0; layer < config.num_layers; ++layer) {
      const LayerLayout layout = LayoutOfLayer(config, layer);
      largest.vectors_total = std::max(largest.vectors_total, layout.vectors_total);
      largest.matrices_total = std::max(largest.matrices_total, layout.matrices_total);
      largest.packed.bytes = std::max(largest.packed.bytes, layout.packed.bytes);
    }
    return largest;
  }

  std::int64_t Next(std::int64_t layer) const { return (layer + 1) % this->model_.config.num_layers; }

  Slot* FindLayer(std::int64_t layer) {
    const auto found =
        std::find_if(slots_.begin(), slots_.end(), [layer](const Slot& slot) { return slot.layer == layer; });
    return found == slots_.end() ? nullptr : &*found;
  }

  /// The slot whose layer is needed last, of those that are not held; nullptr where all are.
  Slot* FreeSlot() {
    Slot* best = nullptr;
    const std::int64_t layers = this->model_.config.num_layers;
    const auto distance = [&](const Slot& slot) {
      return slot.layer < 0 ? layers : (slot.layer - newest_ - 1 + layers) % layers;
    };
    for (Slot& slot : slots_) {
      if (!slot.held && (best == nullptr || distance(slot) > distance(*best))) best = &slot;
    }
    return best;
  }

  /// Begins to read a layer in the background, if it is not there, nothing else is being read and a slot is free.
  void StartReading(std::int64_t layer) {
    if (reading_.valid() || FindLayer(layer) != nullptr) return;
    Slot* const slot = FreeSlot();
    if (slot == nullptr) return;
    slot->layer = -1;
    slot->held = true;
    reading_slot_ = slot;
    reading_layer_ = layer;
    reading_ = std::async(std::launch::async, [this, slot, layer] { return ReadAndCompare(layer, slot->block); });
  }

  /// Waits for the layer that is being read, if any.
  Status FinishReading() {
    if (!reading_.valid()) return OkStatus();
    const Status status = reading_.get();
    reading_slot_->held = false;
    if (status.ok()) reading_slot_->layer = reading_layer_;
    return status;
  }

  Status ReadAndCompare(std::int64_t layer, LayerBlock<W>& block) {
    try {
      DRAFTMILL_ASSIGN_OR_RETURN(const Hash128 digest, this->reader_.Read(layer, block));
      if (digest == digests_[static_cast<std::size_t>(layer + 1)]) return OkStatus();
      return Changed("layer " + std::to_string(layer));
    } catch (const std::bad_alloc&) {
      return OutOfMemory(
          "the operating system gave no memory for the weights of layer " + std::to_string(layer) +
          "; lower extract.block_tokens, or free memory. What is published is safe; run again to continue");
    }
  }

  std::deque<Slot> slots_;
  std::vector<Hash128> digests_;
  FileStamp embedding_stamp_;
  std::int64_t newest_ = -1;
  std::future<Status> reading_;
  Slot* reading_slot_ = nullptr;
  std::int64_t reading_layer_ = -1;
};

}  // namespace

template <typename W>
Result<std::unique_ptr<WeightStore<W>>> WeightStore<W>::Open(const ModelFolder& model,
                                                             const WeightStoreOptions& options) {
  DRAFTMILL_ASSIGN_OR_RETURN(std::unique_ptr<WeightFiles> files, WeightFiles::Open(model.index));
  if (options.policy == WeightPolicy::kResident) {
    auto store = std::make_unique<ResidentStore<W>>(model, std::move(files));
    DRAFTMILL_RETURN_IF_ERROR(store->Load());
    return std::unique_ptr<WeightStore>(std::move(store));
  }
  auto store = std::make_unique<StreamedStore<W>>(model, std::move(files), std::max(options.slots, kHeldLayers));
  DRAFTMILL_RETURN_IF_ERROR(store->Prepare());
  return std::unique_ptr<WeightStore>(std::move(store));
}

template class WeightStore<float>;
template class WeightStore<Bf16>;

}  // namespace draftmill

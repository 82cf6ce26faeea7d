// The extraction engine on the CPU: checks requests, packs blocks, runs the decoder, hands out checked states.
#include "stages/extract/cpu/cpu_extractor.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <exception>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "kernels/instruction_set.h"
#include "stages/extract/cpu/block_decoder.h"
#include "stages/extract/cpu/products.h"
#include "stages/extract/device/device_engine.h"
#include "stages/extract/extractor.h"
#include "stages/extract/memory/auto_sizes.h"
#include "stages/extract/memory/cpu_memory.h"
#include "stages/extract/model/model_family.h"
#include "stages/extract/model/model_folder.h"
#include "stages/extract/weights/weight_store.h"

namespace draftmill {
namespace {

/// Calls what may throw and turns exceptions of torch, TBB and the allocator into a Status.
template <typename Body>
Status Guarded(const Body& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return OutOfMemory(
        "the operating system gave no more memory to the extraction engine; lower extract.block_tokens, or "
        "free memory. What is published is safe; run again to continue");
  } catch (const std::exception& error) {
    return Internal(std::string("the extraction engine failed: ") + error.what());
  }
}

/// One batch of the block while it is computed.
struct OpenBatch {
  bool wanted = false;  ///< its states are captured and handed out
  BatchStates states;
  std::int64_t first_token = 0;  ///< in the block
  std::int64_t tokens = 0;
  std::vector<PackedSequence> sequences;  ///< by sample
  std::vector<std::size_t> samples;       ///< their indices in the chunk
};

class CpuExtractor : public Extractor {
 public:
  CpuExtractor(ModelDescription model, ExtractOptions options, std::unique_ptr<BlockDecoder> decoder,
               std::string weights_digest, bool bf16_products, bool spans_batches)
      : model_(std::move(model)),
        options_(std::move(options)),
        decoder_(std::move(decoder)),
        weights_digest_(std::move(weights_digest)),
        bf16_products_(bf16_products),
        spans_batches_(spans_batches) {}

  Status ExtractBlock(const BlockRequest& request, const std::function<Status(BatchStates)>& emit,
                      const std::function<bool()>& should_stop) override {
    DRAFTMILL_RETURN_IF_ERROR(CheckRequest(request));
    PackedBlock block;
    std::vector<OpenBatch> batches;
    DRAFTMILL_RETURN_IF_ERROR(Guarded([&] { return Compute(request, should_stop, block, batches); }));
    for (std::size_t i = 0; i < batches.size(); ++i) {
      if (!batches[i].wanted) continue;
      DRAFTMILL_RETURN_IF_ERROR(Guarded([&] { return Inspect(block, batches, i, should_stop); }));
      DRAFTMILL_RETURN_IF_ERROR(Guarded([&] { return Check(block, request, batches[i]); }));
      DRAFTMILL_RETURN_IF_ERROR(emit(std::move(batches[i].states)));
    }
    return OkStatus();
  }

  const ModelDescription& model() const override { return model_; }

  std::string numerics_environment() const override {
    return "cpu " + ProcessorVendor() + " " + InstructionSetName(DetectInstructionSet()) + ", products " +
           (bf16_products_ ? "bfloat16" : "float32") + ", numerics " + options_.numerics + ", " + ProductLibraries();
  }
  std::string weights_digest() const override { return weights_digest_; }

 private:
  Status CheckRequest(const BlockRequest& request) const {
    if (request.chunk == nullptr || request.plan == nullptr) return Internal("a block request without chunk or plan");
    const ChunkPlan& plan = *request.plan;
    if (request.block < 0 || request.block >= static_cast<std::int64_t>(plan.blocks.size())) {
      return Internal("the plan has no block " + std::to_string(request.block));
    }
    const PlanRange range = plan.blocks[static_cast<std::size_t>(request.block)];
    for (std::size_t i = 0; i < request.batches.size(); ++i) {
      const std::int64_t batch = request.batches[i];
      if (batch < range.first || batch >= range.first + range.count || (i > 0 && batch <= request.batches[i - 1])) {
        return Internal("batch " + std::to_string(batch) + " is not in order or not of block " +
                        std::to_string(request.block));
      }
    }
    return CheckMemory(plan, range);
  }

  Status CheckMemory(const ChunkPlan& plan, PlanRange range) const {
    std::int64_t tokens = 0;
    for (std::int64_t b = range.first; b < range.first + range.count; ++b)
      tokens += plan.batch_tokens[static_cast<std::size_t>(b)];
    const std::int64_t needed = ExtractBytes(model_, options_, tokens);
    if (options_.memory_bytes <= 0 || needed <= options_.memory_bytes) return OkStatus();
    return OutOfMemory(
        "a block of " + std::to_string(tokens) + " tokens needs " + std::to_string(needed) + " bytes and " +
        std::to_string(options_.memory_bytes) +
        " are allowed; raise limits.memory, or lower extract.block_tokens or tokenize.max_length. What is "
        "published is safe");
  }

  /// Lays the block out and runs it. Token offsets count every batch of the block, wanted or not.
  Status Compute(const BlockRequest& request, const std::function<bool()>& should_stop, PackedBlock& block,
                 std::vector<OpenBatch>& batches) {
    const ChunkPlan& plan = *request.plan;
    const PlanRange range = plan.blocks[static_cast<std::size_t>(request.block)];
    for (std::int64_t b = range.first; b < range.first + range.count; ++b) {
      DRAFTMILL_ASSIGN_OR_RETURN(OpenBatch batch, PackBatch(*request.chunk, plan, b, block));
      batch.wanted = std::binary_search(request.batches.begin(), request.batches.end(), b);
      if (batch.wanted) MakeRoom(batch);
      batches.push_back(std::move(batch));
    }
    for (OpenBatch& batch : batches) AddWork(batch, batch.wanted, block);
    const auto start = std::chrono::steady_clock::now();
    DRAFTMILL_RETURN_IF_ERROR(decoder_->Run(block, should_stop));
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::int64_t tokens = 0;
    for (const OpenBatch& batch : batches) tokens += batch.wanted ? batch.tokens : 0;
    for (OpenBatch& batch : batches) {
      batch.states.compute_seconds = seconds * static_cast<double>(batch.tokens) / static_cast<double>(tokens);
    }
    return OkStatus();
  }

  void MakeRoom(OpenBatch& batch) const {
    const auto count = static_cast<std::size_t>(batch.tokens * StateWidth());
    if (FloatStates()) {
      batch.states.float_states.resize(count);
    } else {
      batch.states.hidden_states.resize(count);
    }
    batch.states.sample_state.assign(batch.sequences.size(), 0);
  }

  bool FloatStates() const { return options_.dtype == "float32"; }

  std::int64_t StateWidth() const { return static_cast<std::int64_t>(model_.layers.size()) * model_.hidden_size; }

  /// Appends a batch's tokens to the block and takes down who they are.
  Result<OpenBatch> PackBatch(const TokenizedChunk& chunk, const ChunkPlan& plan, std::int64_t index,
                              PackedBlock& block) const {
    const PlanRange range = plan.batches[static_cast<std::size_t>(index)];
    OpenBatch batch;
    batch.first_token = block.tokens;
    batch.states.chunk = chunk.chunk;
    batch.states.batch = static_cast<std::int32_t>(index);
    for (std::int64_t i = range.first; i < range.first + range.count; ++i) {
      const auto sample = static_cast<std::size_t>(plan.order[static_cast<std::size_t>(i)]);
      const SampleKey key{chunk.sample_id[sample], chunk.variant[sample]};
      const std::int64_t begin = chunk.cu_seqlens[sample];
      const std::int64_t tokens = chunk.cu_seqlens[sample + 1] - begin;
      batch.sequences.push_back({block.tokens, tokens});
      batch.samples.push_back(sample);
      for (std::int64_t t = 0; t < tokens; ++t) {
        const std::int32_t id = chunk.input_ids[static_cast<std::size_t>(begin + t)];
        if (id < 0 || id >= model_.vocab_rows) {
          return InvalidInput("sample " + std::to_string(key.sample_id) + "/" + std::to_string(key.variant) +
                              ": token id " + std::to_string(id) + " at position " + std::to_string(t) +
                              " is beyond the embedding's " + std::to_string(model_.vocab_rows) +
                              " rows; the tokenizer and the model do not belong together");
        }
        block.input_ids.push_back(id);
      }
      block.tokens += tokens;
      batch.states.keys.push_back(key);
      batch.states.token_hashes.push_back(
          TokenHash(block.input_ids.data() + batch.sequences.back().first, chunk.loss_mask.data() + begin, tokens));
    }
    batch.tokens = block.tokens - batch.first_token;
    return batch;
  }

  /// The sequences and tiles of a batch. One whose states are not captured is left out, unless experts gather their rows
  /// from the whole block: then products have the same shapes only if every batch takes part.
  void AddWork(OpenBatch& batch, bool captured, PackedBlock& block) const {
    if (!captured && !spans_batches_) return;
    block.sequences.insert(block.sequences.end(), batch.sequences.begin(), batch.sequences.end());
    // A uint16_t of the interface and a Bf16 of the kernels are the same two bytes.
    auto* const states = reinterpret_cast<Bf16*>(batch.states.hidden_states.data());
    for (std::int64_t row = 0; row < batch.tokens; row += kTileRows) {
      PackedTile tile{batch.first_token + row, std::min(kTileRows, batch.tokens - row)};
      if (captured && FloatStates()) tile.capture_float = batch.states.float_states.data() + row * StateWidth();
      if (captured && !FloatStates()) tile.capture = states + row * StateWidth();
      block.tiles.push_back(tile);
    }
  }

  /// Looks for NaN and infinity. A batch that has any is computed again; samples that still have them are quarantined.
  Status Inspect(const PackedBlock& block, std::vector<OpenBatch>& batches, std::size_t index,
                 const std::function<bool()>& should_stop) {
    OpenBatch& batch = batches[index];
    if (BadSamples(batch).empty()) return OkStatus();
    PackedBlock again;
    again.tokens = block.tokens;
    again.input_ids = block.input_ids;
    for (std::size_t i = 0; i < batches.size(); ++i) AddWork(batches[i], i == index, again);
    DRAFTMILL_RETURN_IF_ERROR(decoder_->Run(again, should_stop));
    for (const std::size_t sample : BadSamples(batch)) {
      const PackedSequence& sequence = batch.sequences[sample];
      const std::int64_t first = (sequence.first - batch.first_token) * StateWidth();
      const std::int64_t count = sequence.tokens * StateWidth();
      if (FloatStates()) {
        std::fill_n(batch.states.float_states.begin() + first, count, 0.0F);
      } else {
        std::fill_n(batch.states.hidden_states.begin() + first, count, std::uint16_t{0});
      }
      batch.states.sample_state[sample] = 1;
    }
    return OkStatus();
  }

  /// The batch's own figures. The head is read for the first block of a chunk alone: it is large.
  Status Check(const PackedBlock& block, const BlockRequest& request, OpenBatch& batch) {
    batch.states.check.mean_norms = MeanNorms(batch);
    const bool has_last = model_.layers.back() == model_.num_layers;
    if (!has_last || request.block != 0) return OkStatus();
    std::vector<std::int64_t> bounds;
    std::vector<std::uint8_t> mask;
    for (std::size_t i = 0; i < batch.sequences.size(); ++i) {
      const std::int64_t first = request.chunk->cu_seqlens[batch.samples[i]];
      bounds.push_back(static_cast<std::int64_t>(mask.size()));
      for (std::int64_t t = 0; t < batch.sequences[i].tokens; ++t) {
        const bool good = batch.states.sample_state[i] == 0;
        mask.push_back(good ? request.chunk->loss_mask[static_cast<std::size_t>(first + t)] : std::uint8_t{0});
      }
    }
    bounds.push_back(static_cast<std::int64_t>(mask.size()));
    std::vector<float> states;
    std::vector<CheckedTokens> tokens;
    for (const std::int64_t p : CheckedPositions(mask, bounds, options_.checked_positions)) {
      const std::int32_t* ids = block.input_ids.data() + batch.first_token + p;
      tokens.push_back({ids[0], ids[1], ids[2]});
      for (std::int64_t i = 0; i < model_.hidden_size; ++i)
        states.push_back(StateAt(batch, (p + 1) * StateWidth() - model_.hidden_size + i));
    }
    return ReadHead(decoder_->head(), states, tokens, batch.states.check.agreement);
  }

  float StateAt(const OpenBatch& batch, std::int64_t index) const {
    const auto at = static_cast<std::size_t>(index);
    return FloatStates() ? batch.states.float_states[at] : ToFloat(Bf16{batch.states.hidden_states[at]});
  }

  double RowNorm(const OpenBatch& batch, std::int64_t row) const {
    const auto first = static_cast<std::size_t>(row * model_.hidden_size);
    if (FloatStates()) {
      return static_cast<double>(DecoderKernelsFor<float>(DetectInstructionSet())
                                     .norm(batch.states.float_states.data() + first, model_.hidden_size));
    }
    const auto* const states = reinterpret_cast<const Bf16*>(batch.states.hidden_states.data()) + first;
    return static_cast<double>(DecoderKernelsFor<Bf16>(DetectInstructionSet()).norm(states, model_.hidden_size));
  }

  /// [layers] over the tokens of samples that are good.
  std::vector<double> MeanNorms(const OpenBatch& batch) const {
    const auto layers = static_cast<std::int64_t>(model_.layers.size());
    std::vector<double> sums(model_.layers.size(), 0.0);
    std::int64_t tokens = 0;
    for (std::size_t i = 0; i < batch.sequences.size(); ++i) {
      if (batch.states.sample_state[i] != 0) continue;
      const std::int64_t first = batch.sequences[i].first - batch.first_token;
      tokens += batch.sequences[i].tokens;
      for (std::int64_t row = first * layers; row < (first + batch.sequences[i].tokens) * layers; ++row) {
        sums[static_cast<std::size_t>(row % layers)] += RowNorm(batch, row);
      }
    }
    for (double& sum : sums) sum /= static_cast<double>(std::max<std::int64_t>(tokens, 1));
    return sums;
  }

  std::vector<std::size_t> BadSamples(const OpenBatch& batch) const {
    std::vector<std::size_t> bad;
    for (std::size_t i = 0; i < batch.sequences.size(); ++i) {
      if (!IsFinite(batch, batch.sequences[i])) bad.push_back(i);
    }
    return bad;
  }

  bool IsFinite(const OpenBatch& batch, const PackedSequence& sequence) const {
    const std::int64_t first = (sequence.first - batch.first_token) * StateWidth();
    const std::int64_t count = sequence.tokens * StateWidth();
    if (FloatStates()) {
      const float* const states = batch.states.float_states.data() + first;
      return std::all_of(states, states + count, [](float value) { return std::isfinite(value); });
    }
    const auto* const states = reinterpret_cast<const Bf16*>(batch.states.hidden_states.data()) + first;
    return DecoderKernelsFor<float>(DetectInstructionSet()).all_finite(states, count);
  }

  const ModelDescription model_;
  const ExtractOptions options_;
  const std::unique_ptr<BlockDecoder> decoder_;
  const std::string weights_digest_;
  const bool bf16_products_;
  const bool spans_batches_;  ///< products take rows of several batches: routed experts
};

/// A decoder with its weights.
struct LoadedDecoder {
  std::unique_ptr<BlockDecoder> decoder;
  std::string weights_digest;
};

template <typename T, typename W>
Result<LoadedDecoder> LoadDecoder(const ModelFolder& model, const ExtractOptions& options) {
  DRAFTMILL_ASSIGN_OR_RETURN(std::unique_ptr<WeightStore<W>> store,
                             WeightStore<W>::Open(model, PlanWeights(model.description, options)));
  std::string digest = store->digest();
  DecoderOptions decoder_options{options.threads, options.numerics == "fused", model.description.layers};
  return LoadedDecoder{MakeBlockDecoder<T, W>(model.config, std::move(store), std::move(decoder_options)),
                       std::move(digest)};
}

Result<LoadedDecoder> LoadDecoderFor(const ModelFolder& model, const ExtractOptions& options) {
  if (model.config.compute == ComputeType::kFloat32) return LoadDecoder<float, float>(model, options);
  return HasBf16Products() ? LoadDecoder<Bf16, Bf16>(model, options) : LoadDecoder<float, Bf16>(model, options);
}

}  // namespace

Result<std::unique_ptr<Extractor>> MakeCpuExtractor(ModelFolder model, const ExtractOptions& options) {
  DRAFTMILL_RETURN_IF_ERROR(LoadProducts());
  if (!options.dtype.empty()) {
    model.config.compute = options.dtype == "float32" ? ComputeType::kFloat32 : ComputeType::kBfloat16;
  }
  DRAFTMILL_RETURN_IF_ERROR(ResolveAuto(model.description, options).status());
  LoadedDecoder loaded;
  DRAFTMILL_RETURN_IF_ERROR(Guarded([&]() -> Status {
    DRAFTMILL_ASSIGN_OR_RETURN(loaded, LoadDecoderFor(model, options));
    return OkStatus();
  }));
  const bool bf16_products = model.config.compute == ComputeType::kBfloat16 && HasBf16Products();
  return std::unique_ptr<Extractor>(std::make_unique<CpuExtractor>(
      std::move(model.description), options, std::move(loaded.decoder), std::move(loaded.weights_digest), bf16_products,
      model.config.experts.has_value()));
}

}  // namespace draftmill

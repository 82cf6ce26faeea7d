// The extraction engine as the pipeline sees it: blocks of planned batches in, hidden states out. No torch types here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/json.h"
#include "base/status.h"
#include "formats/records.h"
#include "stages/extract/plan.h"
#include "stages/extract/self_check.h"
#include "stages/extract/state_memory.h"

namespace draftmill {

/// What the engine needs to know before a model is touched.
struct ExtractOptions {
  std::string model_folder;          ///< config.json and *.safetensors
  std::vector<std::int32_t> layers;  ///< indices k of x_k, ascending, distinct; empty means the eagle3 default
  std::string device = "auto";       ///< auto | cpu | cuda
  std::string weights = "auto";      ///< auto | resident | sharded (GPUs) | streamed
  std::string numerics = "hf";       ///< hf | fused
  /// Precision of the computation: empty as config.json says, else bfloat16 | float32. States come in bfloat16, unless
  /// float32 is asked for here.
  std::string dtype;
  std::int64_t checked_positions = kCheckedPositions;  ///< of a batch, at which the model's head is read
  int threads = 1;                                     ///< of the engine's own arena
  std::int64_t memory_bytes = 0;  ///< what weights, activations and states in flight may take together; 0: no limit
  /// Sizes that are settled, as the plan has them; 0: not yet. The engine for GPUs decides from them where weights live.
  std::int64_t batch_tokens = 0;
  std::int64_t block_tokens = 0;
  std::string occupied = "fail";  ///< fail | wait: what ClaimDevices does where others compute on the GPUs
  /// Told what an engine decided or waits for; may be empty.
  std::function<void(const std::string&)> say = {};
  /// Ends waiting; may be empty.
  std::function<bool()> should_stop = {};
  /// Set by ResolveDevice: how many GPUs, and the free memory of the one that has least; 0 on the CPU.
  int device_count = 0;
  std::int64_t device_bytes = 0;
  /// Set by ClaimDevices: holds the GPUs for as long as it lives.
  std::shared_ptr<void> device_claim = {};
};

/// What an engine takes: from it `auto` sizes are resolved and limits checked.
struct EngineMemory {
  std::int64_t resident_bytes = 0;  ///< all weights with the policy `resident`
  std::int64_t layer_bytes = 0;     ///< weights of the largest layer: what one layer in memory takes when streamed
  std::int64_t reading_bytes = 0;   ///< what reading streamed weights takes besides
  std::int64_t shared_bytes = 0;    ///< weights in working form, whatever the block; on a GPU: the embedding
  std::int64_t thread_bytes = 0;    ///< scratch of one thread
  std::int64_t token_bytes = 0;     ///< activations and captured states of one token of a block; on a GPU: of a batch
  std::int64_t block_token_bytes = 0;  ///< GPU: what one token of a block takes besides
};

/// What can be told from config.json and the safetensors headers alone, before any weight is read.
struct ModelDescription {
  std::string family;  ///< "llama"
  std::int32_t num_layers = 0;
  std::int32_t hidden_size = 0;
  std::int64_t vocab_rows = 0;       ///< rows of the embedding: the V of the vocabulary map
  std::int64_t max_positions = 0;    ///< the model's own limit
  std::vector<std::int32_t> layers;  ///< resolved layer list
  std::int64_t weight_bytes = 0;
  EngineMemory memory;                ///< what the CPU engine needs for it
  EngineMemory device_memory;         ///< what the GPU engine needs on each GPU
  bool spans_blocks = false;          ///< products of experts take rows of a whole block
  Status device_support;              ///< why the GPU engine does not run it, or success
  bool published_in_float32 = false;  ///< what an empty ExtractOptions::dtype means
  std::string model_fingerprint;      ///< hex; config.json, safetensors headers, file sizes
  json::Value facts;                  ///< everything that `doctor model --json` prints
};

/// Reads and checks config.json and all safetensors headers: architecture, every tensor's name, shape, dtype, file sizes.
/// Reads no weights. Refusals name the file and the field or tensor.
Result<ModelDescription> DescribeModel(const std::string& model_folder, const std::vector<std::int32_t>& layers);

/// The states of one batch, laid out as the shard holds them.
struct BatchStates {
  std::int32_t chunk = 0;
  std::int32_t batch = 0;                   ///< index in the chunk's plan
  std::vector<SampleKey> keys;              ///< [samples of the batch] in packed order: identity as the engine saw it
  std::vector<std::uint64_t> token_hashes;  ///< [samples of the batch] taken from the ids that were really computed
  StateVector hidden_states;                ///< bf16 bits, [t, L, H]
  std::vector<float> float_states;          ///< [t, L, H] in place of hidden_states where float32 was asked for
  std::vector<std::uint8_t> sample_state;   ///< [samples]: 0 good, 1 quarantined (NaN or Inf twice); states are zeroed
  StateCheck check;                         ///< what the engine saw of its own states
  double compute_seconds = 0;
};

/// One block of work: some consecutive batches of one chunk.
struct BlockRequest {
  const TokenizedChunk* chunk = nullptr;
  const ChunkPlan* plan = nullptr;
  std::int64_t block = 0;
  /// Indices of the batches of this block whose states are wanted; the others were published before. All batches of
  /// the block are still computed where products span them.
  std::vector<std::int64_t> batches;
};

/// Runs blocks through the target model, on the CPU or on all GPUs of the options. Calls come from one thread at a time.
class Extractor {
 public:
  /// Loads (or prepares to stream) the weights.
  static Result<std::unique_ptr<Extractor>> Create(const ExtractOptions& options);
  virtual ~Extractor() = default;

  /// Computes the block and hands each wanted batch to `emit` in plan order, from the calling thread. A failure of
  /// `emit` ends the call with that failure. `should_stop` is asked between layers; true ends with kCancelled; it may be
  /// empty.
  virtual Status ExtractBlock(const BlockRequest& request, const std::function<Status(BatchStates)>& emit,
                              const std::function<bool()>& should_stop) = 0;

  /// Hands out the next block of work, and nullopt at the end. May wait, for example for disk space.
  using NextBlock = std::function<Result<std::optional<BlockRequest>>()>;

  /// Computes blocks until `next` has no more; states come as from ExtractBlock, in the order of the blocks. An engine
  /// may ask for a block before the states of the last one were emitted, so that a device computes one while the other
  /// is copied and written; what a request points to must stay until the call returns. All callbacks run on the calling
  /// thread.
  virtual Status ExtractBlocks(const NextBlock& next, const std::function<Status(BatchStates)>& emit,
                               const std::function<bool()>& should_stop);

  virtual const ModelDescription& model() const = 0;
  /// Library versions, instruction set or device model: recorded per shard (docs/formats.md, "numerics environment").
  virtual std::string numerics_environment() const = 0;
  /// XXH3-128 over all weight bytes as loaded, hex; the same files give the same digest.
  virtual std::string weights_digest() const = 0;
};

/// Settles extract.device before anything is started: `auto` becomes cuda where this build, this machine and the model
/// allow it, else cpu. `cuda` where that cannot be is kUnsupported with the reason. In builds without the engine always cpu.
Status ResolveDevice(const ModelDescription& model, ExtractOptions& options);

/// Takes the GPUs of `options`, which ResolveDevice has settled, for this process: kConflict names whoever computes on them,
/// with process and memory, or waits for them (options.occupied). Free memory is read again. Success on the CPU.
Status ClaimDevices(ExtractOptions& options);

/// Loads the libraries that the engine for the device of `options` needs, so that a missing one is known before anything is
/// started. Cheap when called again. kUnsupported names the library.
Status LoadEngineLibraries(const ExtractOptions& options);

/// True in builds that contain the engine (not in the text build).
bool ExtractorIsBuilt();

}  // namespace draftmill

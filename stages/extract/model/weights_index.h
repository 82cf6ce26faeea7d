// Which file holds which tensor of a checkpoint, known and checked from the headers alone.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(WeightsIndex index, OpenWeightsIndex(model_folder));
//   DRAFTMILL_ASSIGN_OR_RETURN(CheckpointTensors tensors, MatchTensors(index, config));
//   const TensorPlace& q = tensors.Get("layers.0.self_attn.q_proj.weight");
//
// Reads model.safetensors, or the files that model.safetensors.index.json names; no weights. Every header is parsed and
// held against its file's size. MatchTensors lists every missing, surplus and misshapen tensor by name in one message.
// Errors: kInvalidInput and kNotFound name file and tensor. Values are plain; functions are safe from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "formats/safetensors.h"
#include "stages/extract/model/model_config.h"

namespace draftmill {

/// Where a tensor's bytes stand.
struct TensorPlace {
  std::int32_t file = 0;         ///< index into WeightsIndex::files
  safetensors::TensorInfo info;  ///< name as stored, type, shape, offset in the file, bytes
};

/// One safetensors file of the checkpoint.
struct WeightsFile {
  std::string name;  ///< in the model folder
  std::int64_t size_bytes = 0;
  Hash128 header_hash;  ///< XXH3-128 of the length and the JSON of the header
};

/// All tensors of a checkpoint by stored name.
struct WeightsIndex {
  std::string model_folder;
  std::vector<WeightsFile> files;  ///< sorted by name
  std::map<std::string, TensorPlace, std::less<>> tensors;
  /// What a person should know: copies of a tensor in a second file, files beside the index.
  std::vector<std::string> notes;
};

/// Reads the index file (if any) and all headers.
Result<WeightsIndex> OpenWeightsIndex(const std::string& model_folder);

/// The same from the index file alone, where the weights are not there: names and files, no shapes. kNotFound without one.
Result<WeightsIndex> OpenIndexNames(const std::string& model_folder);

/// How much of a checkpoint is held against the model.
enum class MatchMode : std::uint8_t { kWhole, kNamesOnly };

/// The tensors that the model needs, by their name without the prefix of the body.
class CheckpointTensors {
 public:
  /// The place of an expected tensor; asking for one that MatchTensors did not promise is a bug.
  const TensorPlace& Get(std::string_view name) const;
  bool Has(std::string_view name) const { return places_.contains(name); }

  const std::string& prefix() const { return prefix_; }
  std::int64_t total_bytes() const { return total_bytes_; }
  std::int64_t ignored() const { return ignored_; }
  /// Of all scales of packed int4; bfloat16 where there are none.
  ScaleType scale_type() const { return scale_type_; }

 private:
  friend Result<CheckpointTensors> MatchTensors(const WeightsIndex& index, const ModelConfig& config, MatchMode mode);
  std::map<std::string, TensorPlace, std::less<>> places_;
  std::string prefix_;
  std::int64_t total_bytes_ = 0;
  std::int64_t ignored_ = 0;
  ScaleType scale_type_ = ScaleType::kBfloat16;
};

/// Holds the checkpoint against what the model needs: every name, shape and element type.
Result<CheckpointTensors> MatchTensors(const WeightsIndex& index, const ModelConfig& config,
                                       MatchMode mode = MatchMode::kWhole);

}  // namespace draftmill

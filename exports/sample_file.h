// One sample's file of an export: which tensors stand in it, made of which parts of the sample, and the writing of it.
//
//   SampleFile file{.path = "rows_0-2000/data_7.ckpt", .container = Container::kTorch, .entries = {
//       {"input_ids", PartOf::kInputIds},
//       {"hidden_state", PartOf::kStates, {.slots = {3}, .post_norm = true, .batch_extent = true}}}};
//   DRAFTMILL_RETURN_IF_ERROR(WriteSampleFile(file_system, folder, file, sample, norm));
//
// States come from the shard in pieces of a few MiB and go to their places in the file, so a sample of any length needs the
// same memory. While they pass, the sample's checksum is taken over ids, mask and states and held against the shard's: a
// file whose source is damaged is never called good. The file is synced, its folder is not.
//
// Safe from any thread; a SourceSample belongs to one. Errors: kCorrupt names shard and sample; kDiskFull, kIo.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "exports/export_source.h"
#include "exports/post_norm.h"
#include "formats/shard_reader.h"
#include "formats/torch_archive.h"
#include "state/file_system.h"

namespace draftmill {

enum class Container : std::uint8_t { kTorch, kSafetensors };
/// What of the sample a member holds. The packed mask is text: lengths of runs, the first one of unsupervised tokens.
enum class PartOf : std::uint8_t { kInputIds, kLossMask, kStates, kPackedMask };

/// Which of the kept states a tensor holds, and in which form.
struct StatesForm {
  std::vector<std::int64_t> slots;  ///< of the second extent of hidden_states
  bool post_norm = false;
  bool flat = true;           ///< [T, slots * H]; else [T, slots, H]
  bool batch_extent = false;  ///< with a first extent of 1
};

/// A member of the file: a part of the sample (ids and mask as int64 [T], states as bf16), or a constant.
struct SampleEntry {
  std::string name{};
  PartOf part = PartOf::kInputIds;
  StatesForm states{};
  std::optional<torch_archive::Value> constant{};  ///< in place of a part; torch archives alone hold it and text
};

struct SampleFile {
  std::string path{};  ///< in the folder of the export
  Container container = Container::kTorch;
  std::vector<SampleEntry> entries{};
};

/// A sample of an open shard.
struct SourceSample {
  ShardReader* shard = nullptr;
  std::string shard_path;  ///< for messages
  std::int64_t place = 0;
};

/// How large the file will be, before anything of it is read; a packed mask is not counted.
Result<std::int64_t> SampleFileBytes(const SampleFile& file, std::int64_t tokens, std::int64_t hidden_size);

/// `norm` may be null where no entry asks for post-norm states.
Status WriteSampleFile(FileSystem& file_system, const std::string& folder, const SampleFile& file,
                       const SourceSample& sample, const PostNorm* norm);

}  // namespace draftmill

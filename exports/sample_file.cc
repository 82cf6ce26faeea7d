#include "exports/sample_file.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "base/hash.h"
#include "formats/safetensors.h"

namespace draftmill {
namespace {

constexpr std::int64_t kPieceBytes = std::int64_t{4} << 20;
/// Where the first tensor of a safetensors file begins, for readers that map it.
constexpr std::int64_t kTensorAlignment = 64;

/// "2,3,1": two unsupervised tokens, three supervised, one unsupervised.
std::string PackedMask(std::span<const std::uint8_t> mask) {
  std::string packed;
  std::uint8_t current = 0;
  std::int64_t length = 0;
  for (const std::uint8_t supervised : mask) {
    if (supervised != current) {
      packed += std::to_string(length) + ",";
      current = supervised;
      length = 0;
    }
    ++length;
  }
  return packed + std::to_string(length);
}

/// The file with the text of the sample in its place.
SampleFile WithTexts(SampleFile file, std::span<const std::uint8_t> mask) {
  for (SampleEntry& entry : file.entries) {
    if (entry.part == PartOf::kPackedMask) entry.constant = torch_archive::Value(PackedMask(mask));
  }
  return file;
}

torch_archive::Tensor FormOf(const SampleEntry& entry, std::int64_t tokens, std::int64_t hidden_size) {
  if (entry.part != PartOf::kStates) return {safetensors::Dtype::kI64, {tokens}};
  torch_archive::Tensor form{safetensors::Dtype::kBf16, {}};
  const auto slots = static_cast<std::int64_t>(entry.states.slots.size());
  if (entry.states.batch_extent) form.shape.push_back(1);
  form.shape.push_back(tokens);
  if (!entry.states.flat) form.shape.push_back(slots);
  form.shape.push_back(entry.states.flat ? slots * hidden_size : hidden_size);
  return form;
}

/// Where the tensors of a file stand, and all that is not tensors.
class FileLayout {
 public:
  static Result<FileLayout> Of(const SampleFile& file, std::int64_t tokens, std::int64_t hidden_size) {
    return file.container == Container::kTorch ? OfTorch(file, tokens, hidden_size)
                                               : OfSafetensors(file, tokens, hidden_size);
  }

  std::int64_t file_bytes() const { return torch_ ? torch_->file_bytes() : safetensors_.header.file_bytes(); }
  /// Of the i-th entry that is a tensor.
  std::int64_t offset(std::size_t tensor) const {
    return torch_ ? torch_->storage_offset(tensor) : safetensors_.header.tensors()[tensor].offset;
  }
  std::vector<torch_archive::FramePiece> Frame(std::span<const std::uint32_t> crc32) const {
    return torch_ ? torch_->Frame(crc32) : std::vector<torch_archive::FramePiece>{{0, safetensors_.bytes}};
  }

 private:
  static Result<FileLayout> OfTorch(const SampleFile& file, std::int64_t tokens, std::int64_t hidden_size) {
    torch_archive::Dict dict;
    for (const SampleEntry& entry : file.entries) {
      dict.Add(entry.name, entry.constant ? *entry.constant : torch_archive::Value(FormOf(entry, tokens, hidden_size)));
    }
    FileLayout layout;
    DRAFTMILL_ASSIGN_OR_RETURN(layout.torch_, torch_archive::Layout::Of(std::move(dict)));
    return layout;
  }

  static Result<FileLayout> OfSafetensors(const SampleFile& file, std::int64_t tokens, std::int64_t hidden_size) {
    std::vector<safetensors::TensorSpec> specs;
    for (const SampleEntry& entry : file.entries) {
      torch_archive::Tensor form = FormOf(entry, tokens, hidden_size);
      specs.push_back({entry.name, form.dtype, std::move(form.shape)});
    }
    FileLayout layout;
    DRAFTMILL_ASSIGN_OR_RETURN(layout.safetensors_,
                               safetensors::BuildHeader(specs, {{"format", "pt"}}, kTensorAlignment));
    return layout;
  }

  std::optional<torch_archive::Layout> torch_;
  safetensors::BuiltHeader safetensors_;
};

/// Writes one tensor of the file from its beginning to its end.
class TensorStream {
 public:
  TensorStream(WritableFile& file, std::int64_t offset) : file_(file), offset_(offset) {}

  Status Write(std::span<const std::byte> bytes) {
    crc32_ = static_cast<std::uint32_t>(
        ::crc32_z(crc32_, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));  // NOLINT: zlib's type
    DRAFTMILL_RETURN_IF_ERROR(file_.WriteAt(offset_, bytes));
    offset_ += static_cast<std::int64_t>(bytes.size());
    return OkStatus();
  }
  std::uint32_t crc32() const { return crc32_; }

 private:
  WritableFile& file_;
  std::int64_t offset_;
  std::uint32_t crc32_ = 0;
};

template <typename T>
Status WriteAsInt64(std::span<const T> values, TensorStream& stream) {
  constexpr std::size_t kAtOnce = kPieceBytes / sizeof(std::int64_t);
  for (std::size_t first = 0; first < values.size(); first += kAtOnce) {
    const std::span<const T> piece = values.subspan(first, std::min(kAtOnce, values.size() - first));
    const std::vector<std::int64_t> wide(piece.begin(), piece.end());
    DRAFTMILL_RETURN_IF_ERROR(stream.Write(std::as_bytes(std::span(wide))));
  }
  return OkStatus();
}

/// The states of one sample on their way from the shard into the tensors of one file.
class StatesPass {
 public:
  StatesPass(const SourceSample& sample, const PostNorm* norm)
      : sample_(sample), contents_(sample.shard->contents()), norm_(norm) {}

  Status Run(const std::vector<std::pair<const StatesForm*, TensorStream*>>& outputs) {
    const auto i = static_cast<std::size_t>(sample_.place);
    const auto begin = static_cast<std::size_t>(contents_.cu_seqlens[i]);
    const std::int64_t tokens = contents_.cu_seqlens[i + 1] - contents_.cu_seqlens[i];
    StreamingHash hash;
    hash.Update(std::as_bytes(std::span(contents_.input_ids).subspan(begin, static_cast<std::size_t>(tokens))));
    hash.Update(std::as_bytes(std::span(contents_.loss_mask).subspan(begin, static_cast<std::size_t>(tokens))));
    const std::int64_t token_values = contents_.num_layers * contents_.hidden_size;
    const std::int64_t tokens_at_once = std::max<std::int64_t>(1, kPieceBytes / (2 * token_values));
    for (std::int64_t first = 0; first < tokens; first += tokens_at_once) {
      const std::int64_t count = std::min(tokens_at_once, tokens - first);
      piece_.resize(static_cast<std::size_t>(count * token_values));
      DRAFTMILL_RETURN_IF_ERROR(sample_.shard->ReadStates(sample_.place, first, std::span(piece_)));
      hash.Update(std::as_bytes(std::span(piece_)));
      for (const auto& [form, stream] : outputs) DRAFTMILL_RETURN_IF_ERROR(Emit(*form, *stream));
    }
    if (hash.Digest64() == contents_.checksum[i]) return OkStatus();
    const SampleKey key = contents_.key(sample_.place);
    return Corrupt(
        sample_.shard_path + ": sample " + std::to_string(key.sample_id) + "/" + std::to_string(key.variant) +
        " does not match its checksum. `draftmill verify --repair` marks it as work, and the next run makes it again");
  }

 private:
  Status Emit(const StatesForm& form, TensorStream& stream) {
    const auto width = static_cast<std::size_t>(contents_.hidden_size);
    const auto token_values = static_cast<std::size_t>(contents_.num_layers) * width;
    gathered_.clear();
    for (std::size_t token = 0; token < piece_.size(); token += token_values) {
      for (const std::int64_t slot : form.slots) {
        const auto from = piece_.begin() + static_cast<std::ptrdiff_t>(token + static_cast<std::size_t>(slot) * width);
        gathered_.insert(gathered_.end(), from, from + static_cast<std::ptrdiff_t>(width));
      }
    }
    if (form.post_norm) norm_->Apply(gathered_);
    return stream.Write(std::as_bytes(std::span(gathered_)));
  }

  const SourceSample& sample_;
  const ShardContents& contents_;
  const PostNorm* norm_;
  std::vector<std::uint16_t> piece_;
  std::vector<std::uint16_t> gathered_;
};

Status WriteTensors(const SampleFile& file, const SourceSample& sample, const PostNorm* norm,
                    std::vector<TensorStream>& streams) {
  const ShardContents& contents = sample.shard->contents();
  const auto i = static_cast<std::size_t>(sample.place);
  const auto begin = static_cast<std::size_t>(contents.cu_seqlens[i]);
  const auto tokens = static_cast<std::size_t>(contents.cu_seqlens[i + 1]) - begin;
  std::vector<std::pair<const StatesForm*, TensorStream*>> outputs;
  std::size_t tensor = 0;
  for (const SampleEntry& entry : file.entries) {
    if (entry.constant) continue;
    TensorStream& stream = streams[tensor++];
    if (entry.part == PartOf::kStates) {
      DRAFTMILL_CHECK(!entry.states.post_norm || norm != nullptr, "a norm for post-norm states");
      outputs.emplace_back(&entry.states, &stream);
    } else if (entry.part == PartOf::kInputIds) {
      DRAFTMILL_RETURN_IF_ERROR(
          WriteAsInt64(std::span<const std::int32_t>(contents.input_ids).subspan(begin, tokens), stream));
    } else {
      DRAFTMILL_RETURN_IF_ERROR(
          WriteAsInt64(std::span<const std::uint8_t>(contents.loss_mask).subspan(begin, tokens), stream));
    }
  }
  return StatesPass(sample, norm).Run(outputs);
}

}  // namespace

Result<std::int64_t> SampleFileBytes(const SampleFile& file, std::int64_t tokens, std::int64_t hidden_size) {
  DRAFTMILL_ASSIGN_OR_RETURN(const FileLayout layout, FileLayout::Of(WithTexts(file, {}), tokens, hidden_size));
  return layout.file_bytes();
}

Status WriteSampleFile(FileSystem& file_system, const std::string& folder, const SampleFile& described,
                       const SourceSample& sample, const PostNorm* norm) {
  const ShardContents& contents = sample.shard->contents();
  const auto i = static_cast<std::size_t>(sample.place);
  const std::int64_t tokens = contents.cu_seqlens[i + 1] - contents.cu_seqlens[i];
  const SampleFile file = WithTexts(
      described, std::span(contents.loss_mask)
                     .subspan(static_cast<std::size_t>(contents.cu_seqlens[i]), static_cast<std::size_t>(tokens)));
  DRAFTMILL_ASSIGN_OR_RETURN(const FileLayout layout, FileLayout::Of(file, tokens, contents.hidden_size));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> out,
                             file_system.OpenForWriting(JoinPath(folder, file.path), OpenMode::kCreate));
  DRAFTMILL_RETURN_IF_ERROR(out->Allocate(layout.file_bytes()));
  std::vector<TensorStream> streams;
  for (const SampleEntry& entry : file.entries) {
    if (!entry.constant) streams.emplace_back(*out, layout.offset(streams.size()));
  }
  DRAFTMILL_RETURN_IF_ERROR(WriteTensors(file, sample, norm, streams));
  std::vector<std::uint32_t> crc32;
  for (const TensorStream& stream : streams) crc32.push_back(stream.crc32());
  for (const torch_archive::FramePiece& piece : layout.Frame(crc32)) {
    DRAFTMILL_RETURN_IF_ERROR(out->WriteAt(piece.offset, std::as_bytes(std::span(piece.bytes))));
  }
  DRAFTMILL_RETURN_IF_ERROR(out->Sync());
  return out->Close();
}

}  // namespace draftmill

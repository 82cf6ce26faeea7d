#include "stages/ingest/sorted_spill.h"

#include <zstd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

namespace draftmill {
namespace {

constexpr int kBucketBits = 6;
constexpr std::size_t kBuckets = std::size_t{1} << kBucketBits;
constexpr int kKeyBits = 8 * static_cast<int>(sizeof(SpillKey));
/// Rows are packed together up to this size; a larger row makes a block of its own.
constexpr std::size_t kBlockBytes = std::size_t{1} << 16;
constexpr int kZstdLevel = 1;

/// What stands before each row's text in a block.
struct RowHeader {
  SpillKey key;
  Hash128 content_hash;
  std::int64_t row;
  std::int64_t line;
  std::int64_t byte_offset;
  std::int32_t source;
  std::uint32_t text_bytes;
};
static_assert(std::is_trivially_copyable_v<RowHeader>);

struct BlockHeader {
  std::uint32_t packed_bytes;
  std::uint32_t raw_bytes;
};

struct FreeCompressor {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
};
struct FreeDecompressor {
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};
using Compressor = std::unique_ptr<ZSTD_CCtx, FreeCompressor>;
using Decompressor = std::unique_ptr<ZSTD_DCtx, FreeDecompressor>;

std::span<const std::byte> BytesOf(std::string_view text) { return std::as_bytes(std::span<const char>(text)); }

/// The kBucketBits bits of a key that start at `bit`; 0 stands for bits beyond its end.
std::size_t BucketOf(const SpillKey& key, int bit) {
  std::size_t bucket = 0;
  for (int i = bit; i < bit + kBucketBits; ++i) {
    const bool is_set = i < kKeyBits && ((key[static_cast<std::size_t>(i / 8)] >> (7 - i % 8)) & 1) != 0;
    bucket = bucket * 2 + (is_set ? 1 : 0);
  }
  return bucket;
}

int CommonBits(const SpillKey& a, const SpillKey& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i]) return 8 * static_cast<int>(i) + std::countl_zero(static_cast<std::uint8_t>(a[i] ^ b[i]));
  }
  return kKeyBits;
}

void AppendRow(const SpilledRow& row, std::string& block) {
  const RowHeader header{row.key,
                         row.content_hash,
                         row.place.row,
                         row.place.line,
                         row.place.byte_offset,
                         row.place.source,
                         static_cast<std::uint32_t>(row.text.size())};
  const std::size_t at = block.size();
  block.resize(at + sizeof(header) + row.text.size());
  std::memcpy(block.data() + at, &header, sizeof(header));
  std::memcpy(block.data() + at + sizeof(header), row.text.data(), row.text.size());
}

/// Reads the row at `at`, which AppendRow wrote, and moves behind it.
SpilledRow RowAt(std::string_view block, std::size_t& at) {
  RowHeader header;
  std::memcpy(&header, block.data() + at, sizeof(header));
  at += sizeof(header);
  SpilledRow row;
  row.key = header.key;
  row.content_hash = header.content_hash;
  row.place = {header.source, header.row, header.line, header.byte_offset};
  row.text = block.substr(at, header.text_bytes);
  at += header.text_bytes;
  return row;
}

/// One file of rows in the order in which they were added.
struct Bucket {
  std::string path;
  std::unique_ptr<WritableFile> file;
  std::int64_t file_bytes = 0;
  std::string block;
  std::int64_t rows = 0;
  std::int64_t raw_bytes = 0;
  SpillKey first_key{};
  SpillKey last_key{};
};

/// Goes through the blocks of a bucket that is written.
class BucketReader {
 public:
  static Result<BucketReader> Open(FileSystem& file_system, const Bucket& bucket) {
    DRAFTMILL_ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file, file_system.OpenForReading(bucket.path));
    return BucketReader(std::move(file), bucket);
  }

  /// The next block, valid until the next call; empty at the end.
  Result<std::string_view> Next() {
    if (offset_ >= bytes_) return std::string_view();
    BlockHeader header{};
    DRAFTMILL_RETURN_IF_ERROR(ReadFully(std::as_writable_bytes(std::span<BlockHeader>(&header, 1))));
    packed_.resize(header.packed_bytes);
    block_.resize(header.raw_bytes);
    DRAFTMILL_RETURN_IF_ERROR(ReadFully(std::as_writable_bytes(std::span<char>(packed_))));
    const std::size_t size =
        ZSTD_decompressDCtx(context_.get(), block_.data(), block_.size(), packed_.data(), packed_.size());
    if (ZSTD_isError(size) != 0 || size != block_.size()) return Damaged();
    return std::string_view(block_);
  }

 private:
  BucketReader(std::unique_ptr<ReadableFile> file, const Bucket& bucket)
      : file_(std::move(file)), path_(bucket.path), bytes_(bucket.file_bytes), context_(ZSTD_createDCtx()) {}

  Status Damaged() const {
    return Corrupt(
        path_ +
        ": a temporary file of ingest came back damaged. Nothing published is harmed; run again, and check the disk");
  }

  Status ReadFully(std::span<std::byte> buffer) {
    DRAFTMILL_ASSIGN_OR_RETURN(const std::size_t bytes, file_->ReadAt(offset_, buffer));
    if (bytes != buffer.size()) return Damaged();
    offset_ += static_cast<std::int64_t>(bytes);
    return OkStatus();
  }

  std::unique_ptr<ReadableFile> file_;
  std::string path_;
  std::int64_t bytes_;
  Decompressor context_;
  std::int64_t offset_ = 0;
  std::string packed_;
  std::string block_;
};

}  // namespace

/// Rows spread over files by some bits of their keys.
class SortedSpill::Level {
 public:
  Level(FileSystem& file_system, std::string folder, std::int64_t memory_bytes, int first_bit)
      : file_system_(file_system),
        folder_(std::move(folder)),
        memory_bytes_(memory_bytes),
        first_bit_(first_bit),
        context_(ZSTD_createCCtx()),
        buckets_(kBuckets) {}

  Status Add(const SpilledRow& row) {
    Bucket& bucket = buckets_[BucketOf(row.key, first_bit_)];
    if (bucket.rows == 0) bucket.first_key = bucket.last_key = row.key;
    bucket.first_key = std::min(bucket.first_key, row.key);
    bucket.last_key = std::max(bucket.last_key, row.key);
    const std::size_t before = bucket.block.size();
    AppendRow(row, bucket.block);
    ++bucket.rows;
    bucket.raw_bytes += static_cast<std::int64_t>(bucket.block.size() - before);
    return bucket.block.size() >= kBlockBytes ? Flush(bucket) : OkStatus();
  }

  Status Visit(const Visitor& visit) {
    for (Bucket& bucket : buckets_) {
      if (bucket.rows == 0) continue;
      DRAFTMILL_RETURN_IF_ERROR(Flush(bucket));
      bucket.block = std::string();
      if (bucket.file != nullptr) DRAFTMILL_RETURN_IF_ERROR(bucket.file->Close());
      bucket.file.reset();
    }
    context_.reset();
    for (const Bucket& bucket : buckets_) {
      if (bucket.rows == 0) continue;
      DRAFTMILL_RETURN_IF_ERROR(VisitBucket(bucket, visit));
      DRAFTMILL_RETURN_IF_ERROR(file_system_.Remove(bucket.path));
    }
    return OkStatus();
  }

 private:
  Status Flush(Bucket& bucket) {
    if (bucket.block.empty()) return OkStatus();
    if (bucket.file == nullptr) {
      const auto index = static_cast<std::size_t>(&bucket - buckets_.data());
      bucket.path = JoinPath(folder_, "bits-" + std::to_string(first_bit_) + "-" + std::to_string(index));
      DRAFTMILL_ASSIGN_OR_RETURN(bucket.file, file_system_.OpenForWriting(bucket.path, OpenMode::kCreate));
    }
    packed_.resize(sizeof(BlockHeader) + ZSTD_compressBound(bucket.block.size()));
    ZSTD_CCtx_setParameter(context_.get(), ZSTD_c_compressionLevel, kZstdLevel);
    ZSTD_CCtx_setParameter(context_.get(), ZSTD_c_checksumFlag, 1);
    const std::size_t size =
        ZSTD_compress2(context_.get(), packed_.data() + sizeof(BlockHeader), packed_.size() - sizeof(BlockHeader),
                       bucket.block.data(), bucket.block.size());
    if (ZSTD_isError(size) != 0) return OutOfMemory("packing rows of ingest: " + std::string(ZSTD_getErrorName(size)));
    const BlockHeader header{static_cast<std::uint32_t>(size), static_cast<std::uint32_t>(bucket.block.size())};
    std::memcpy(packed_.data(), &header, sizeof(header));
    packed_.resize(sizeof(header) + size);
    DRAFTMILL_RETURN_IF_ERROR(bucket.file->WriteAt(bucket.file_bytes, BytesOf(packed_)));
    bucket.file_bytes += static_cast<std::int64_t>(packed_.size());
    bucket.block.clear();
    return OkStatus();
  }

  Status VisitBucket(const Bucket& bucket, const Visitor& visit) {
    const std::int64_t needed = bucket.raw_bytes + bucket.rows * static_cast<std::int64_t>(sizeof(Entry));
    if (bucket.first_key == bucket.last_key) return VisitInFileOrder(bucket, visit);
    if (needed <= memory_bytes_ || bucket.rows == 1) return VisitSorted(bucket, visit);
    return VisitSpread(bucket, visit);
  }

  /// All rows have the same key, so they are in order, however many they are.
  Status VisitInFileOrder(const Bucket& bucket, const Visitor& visit) {
    bool repeats_key = false;
    return ForEachRow(bucket, [&](const SpilledRow& row) { return visit(row, std::exchange(repeats_key, true)); });
  }

  struct Entry {
    SpillKey key;
    std::size_t at;  // in the bytes of all rows; also tells equal keys apart
  };

  Status VisitSorted(const Bucket& bucket, const Visitor& visit) {
    DRAFTMILL_ASSIGN_OR_RETURN(BucketReader reader, BucketReader::Open(file_system_, bucket));
    std::string rows;
    rows.reserve(static_cast<std::size_t>(bucket.raw_bytes));
    while (true) {
      DRAFTMILL_ASSIGN_OR_RETURN(const std::string_view block, reader.Next());
      if (block.empty()) break;
      rows += block;
    }
    std::vector<Entry> entries;
    entries.reserve(static_cast<std::size_t>(bucket.rows));
    for (std::size_t at = 0; at < rows.size();) {
      const std::size_t row_at = at;
      entries.push_back({RowAt(rows, at).key, row_at});
    }
    std::sort(entries.begin(), entries.end(),
              [](const Entry& a, const Entry& b) { return a.key != b.key ? a.key < b.key : a.at < b.at; });
    for (std::size_t i = 0; i < entries.size(); ++i) {
      std::size_t at = entries[i].at;
      const bool repeats_key = i > 0 && entries[i].key == entries[i - 1].key;
      DRAFTMILL_RETURN_IF_ERROR(visit(RowAt(rows, at), repeats_key));
    }
    return OkStatus();
  }

  Status VisitSpread(const Bucket& bucket, const Visitor& visit) {
    Level deeper(file_system_, folder_, memory_bytes_, CommonBits(bucket.first_key, bucket.last_key));
    DRAFTMILL_RETURN_IF_ERROR(ForEachRow(bucket, [&](const SpilledRow& row) { return deeper.Add(row); }));
    return deeper.Visit(visit);
  }

  template <typename Function>
  Status ForEachRow(const Bucket& bucket, Function function) {
    DRAFTMILL_ASSIGN_OR_RETURN(BucketReader reader, BucketReader::Open(file_system_, bucket));
    while (true) {
      DRAFTMILL_ASSIGN_OR_RETURN(const std::string_view block, reader.Next());
      if (block.empty()) return OkStatus();
      for (std::size_t at = 0; at < block.size();) DRAFTMILL_RETURN_IF_ERROR(function(RowAt(block, at)));
    }
  }

  FileSystem& file_system_;
  std::string folder_;
  std::int64_t memory_bytes_;
  int first_bit_;
  Compressor context_;
  std::vector<Bucket> buckets_;
  std::string packed_;
};

SortedSpill::SortedSpill(FileSystem& file_system, std::string folder, std::int64_t memory_bytes, int skip_bits)
    : level_(std::make_unique<Level>(file_system, std::move(folder), memory_bytes, skip_bits)) {}
SortedSpill::~SortedSpill() = default;
SortedSpill::SortedSpill(SortedSpill&&) noexcept = default;
SortedSpill& SortedSpill::operator=(SortedSpill&&) noexcept = default;

Status SortedSpill::Add(const SpilledRow& row) { return level_->Add(row); }

Status SortedSpill::Visit(const Visitor& visit) { return level_->Visit(visit); }

}  // namespace draftmill

#include "stages/ingest/ingest.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "stages/ingest/byte_stream.h"
#include "stages/ingest/chunk_output.h"
#include "stages/ingest/ingest_summary.h"
#include "stages/ingest/intake.h"
#include "stages/ingest/rejected_rows.h"
#include "stages/ingest/sorted_spill.h"

namespace draftmill {
namespace {

void PutBigEndian(std::uint64_t value, SpillKey& key) {
  for (std::size_t i = 0; i < 8; ++i) key[i] = static_cast<std::uint8_t>(value >> (56 - 8 * i));
}

/// The global order of shuffled rows: XXH3-64 of the content hash with the seed, then the content hash itself.
SpillKey ContentKey(const Hash128& content_hash, std::uint64_t seed) {
  SpillKey key{};
  PutBigEndian(HashBytes64(std::as_bytes(std::span(content_hash.bytes)), seed), key);
  std::copy(content_hash.bytes.begin(), content_hash.bytes.end(), key.begin() + 8);
  return key;
}

/// Numbers that order rows by a group and by a number within it: the one in the upper bits, the other in the lower ones.
class PairOrder {
 public:
  /// Groups are below `groups`, numbers at most `most`.
  PairOrder(std::size_t groups, std::int64_t most) {
    number_bits_ = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(most)));
    skip_bits_ = std::max(0, 64 - number_bits_ - static_cast<int>(std::bit_width(groups)));
  }

  SpillKey Key(std::int32_t group, std::int64_t number) const {
    SpillKey key{};
    PutBigEndian((static_cast<std::uint64_t>(group) << number_bits_) | static_cast<std::uint64_t>(number), key);
    return key;
  }
  int skip_bits() const { return skip_bits_; }

 private:
  int number_bits_ = 0;
  int skip_bits_ = 0;
};

/// One ingest into one work folder.
class IngestRun {
 public:
  IngestRun(const IngestOptions& options, FileSystem& file_system, const std::string& work_folder, IngestSink& sink,
            const std::function<bool()>& should_stop)
      : options_(options),
        file_system_(file_system),
        work_folder_(work_folder),
        spill_folder_(JoinPath(IngestedFolder(work_folder), "spill")),
        sink_(sink),
        should_stop_(should_stop),
        output_(options, file_system, work_folder, sink, should_stop, summary_.chunks, progress_) {}

  Result<IngestSummary> Run() {
    DRAFTMILL_RETURN_IF_ERROR(FindFiles());
    DRAFTMILL_RETURN_IF_ERROR(ClearFolder());
    DRAFTMILL_RETURN_IF_ERROR(ReadAndOrder());
    DRAFTMILL_RETURN_IF_ERROR(output_.Finish());
    DRAFTMILL_RETURN_IF_ERROR(file_system_.RemoveTree(spill_folder_));
    const auto chunks = static_cast<std::int32_t>(summary_.chunks.size());
    DRAFTMILL_RETURN_IF_ERROR(SyncIngestedChunks(file_system_, work_folder_, chunks));
    DRAFTMILL_RETURN_IF_ERROR(WriteIngestSummary(file_system_, work_folder_, summary_));
    return std::move(summary_);
  }

 private:
  /// Everything that can be told before the first row: all files are there, can be opened, and are not of a wrong kind.
  Status FindFiles() {
    files_ = options_.files;
    if (files_.empty()) {
      DRAFTMILL_ASSIGN_OR_RETURN(files_, FindSourceFiles(options_.sources, file_system_));
    }
    for (const SourceFile& file : files_) {
      const Result<std::unique_ptr<ByteStream>> stream = ByteStream::Open(file_system_, file.path);
      if (!stream.ok()) return stream.status();
      SourceSummary source;
      source.path = RelativeName(file.path, options_.base_folder);
      source.epoch = file.epoch;
      source.format = RowFormName(options_.sources[file.spec].form);
      source.bytes = file.info.size_bytes;
      source.modified_ns = file.info.modified_ns;
      source.inode = file.info.inode;
      summary_.sources.push_back(std::move(source));
    }
    return OkStatus();
  }

  /// The index goes durably before anything that it lists, so that it never stands beside half a set of chunks.
  Status ClearFolder() {
    const std::string folder = IngestedFolder(work_folder_);
    if (file_system_.Exists(IngestSummaryPath(work_folder_))) {
      DRAFTMILL_RETURN_IF_ERROR(file_system_.Remove(IngestSummaryPath(work_folder_)));
      DRAFTMILL_RETURN_IF_ERROR(file_system_.SyncFolder(folder));
    }
    DRAFTMILL_RETURN_IF_ERROR(file_system_.RemoveTree(folder));
    return file_system_.MakeFolder(spill_folder_);
  }

  Status ReadAndOrder() {
    if (!options_.shuffle_seed && !options_.deduplicate) {
      return Read(
          [&](const RowPlace& place, const Hash128& hash, std::string_view text) { return Keep(place, hash, text); });
    }
    const std::uint64_t seed = options_.shuffle_seed.value_or(0);
    SortedSpill by_content(file_system_, spill_folder_, options_.memory_bytes, 0);
    DRAFTMILL_RETURN_IF_ERROR(Read([&](const RowPlace& place, const Hash128& hash, std::string_view text) {
      return by_content.Add({ContentKey(hash, seed), hash, place, text});
    }));
    return options_.shuffle_seed ? KeepByContent(by_content) : KeepBySource(by_content);
  }

  Status Read(Intake::RowVisitor visit) {
    DRAFTMILL_ASSIGN_OR_RETURN(RejectedRowsWriter rejected, RejectedRowsWriter::Create(file_system_, work_folder_));
    Intake intake(options_, file_system_, files_, summary_.sources, rejected, sink_, should_stop_, progress_,
                  std::move(visit));
    DRAFTMILL_RETURN_IF_ERROR(intake.Run());
    progress_.phase = IngestPhase::kOrdering;
    return rejected.Finish();
  }

  Status KeepByContent(SortedSpill& by_content) {
    if (files_.back().epoch > 0) return KeepByEpoch(by_content);
    return by_content.Visit([&](const SpilledRow& row, bool repeats_key) {
      if (options_.deduplicate && repeats_key) return CountDuplicate(row.place);
      return Keep(row.place, row.content_hash, row.text);
    });
  }

  /// Within each epoch the order is the one in which the rows come.
  Status KeepByEpoch(SortedSpill& by_content) {
    const std::string folder = JoinPath(spill_folder_, "by_epoch");
    DRAFTMILL_RETURN_IF_ERROR(file_system_.MakeFolder(folder));
    const PairOrder order(static_cast<std::size_t>(files_.back().epoch) + 1, summary_.rows());
    SortedSpill by_epoch(file_system_, folder, options_.memory_bytes, order.skip_bits());
    std::int64_t rows = 0;
    DRAFTMILL_RETURN_IF_ERROR(by_content.Visit([&](const SpilledRow& row, bool repeats_key) {
      if (options_.deduplicate && repeats_key) return CountDuplicate(row.place);
      return by_epoch.Add({order.Key(EpochOf(row.place), rows++), row.content_hash, row.place, row.text});
    }));
    return by_epoch.Visit([&](const SpilledRow& row, bool) { return Keep(row.place, row.content_hash, row.text); });
  }

  std::int32_t EpochOf(const RowPlace& place) const { return files_[static_cast<std::size_t>(place.source)].epoch; }

  /// Duplicates are found where equal rows meet; what stays goes back into the order of the sources.
  Status KeepBySource(SortedSpill& by_content) {
    std::int64_t most_rows = 0;
    for (const SourceSummary& source : summary_.sources) most_rows = std::max(most_rows, source.rows);
    const PairOrder order(summary_.sources.size(), most_rows);
    const std::string folder = JoinPath(spill_folder_, "by_source");
    DRAFTMILL_RETURN_IF_ERROR(file_system_.MakeFolder(folder));
    SortedSpill by_source(file_system_, folder, options_.memory_bytes, order.skip_bits());
    DRAFTMILL_RETURN_IF_ERROR(by_content.Visit([&](const SpilledRow& row, bool repeats_key) {
      if (repeats_key) return CountDuplicate(row.place);
      return by_source.Add({order.Key(row.place.source, row.place.row), row.content_hash, row.place, row.text});
    }));
    return by_source.Visit([&](const SpilledRow& row, bool) { return Keep(row.place, row.content_hash, row.text); });
  }

  Status CountDuplicate(const RowPlace& place) {
    ++summary_.sources[static_cast<std::size_t>(place.source)].duplicates;
    return OkStatus();
  }

  Status Keep(const RowPlace& place, const Hash128& content_hash, std::string_view conversation) {
    ++summary_.sources[static_cast<std::size_t>(place.source)].kept;
    return output_.Add(EpochOf(place), place, content_hash, conversation);
  }

  const IngestOptions& options_;
  FileSystem& file_system_;
  const std::string& work_folder_;
  std::string spill_folder_;
  IngestSink& sink_;
  const std::function<bool()>& should_stop_;
  std::vector<SourceFile> files_;
  IngestSummary summary_;
  IngestProgress progress_;
  ChunkOutput output_;  ///< after summary_ and progress_, which it fills
};

std::int64_t Sum(const std::vector<SourceSummary>& sources, std::int64_t SourceSummary::*field) {
  std::int64_t sum = 0;
  for (const SourceSummary& source : sources) sum += source.*field;
  return sum;
}

}  // namespace

std::int64_t IngestSummary::rows() const { return Sum(sources, &SourceSummary::rows); }
std::int64_t IngestSummary::kept() const { return Sum(sources, &SourceSummary::kept); }
std::int64_t IngestSummary::rejected() const { return Sum(sources, &SourceSummary::rejected); }

Result<IngestSummary> Ingest(const IngestOptions& options, FileSystem& file_system, const std::string& work_folder,
                             IngestSink& sink, const std::function<bool()>& should_stop) {
  return IngestRun(options, file_system, work_folder, sink, should_stop).Run();
}

}  // namespace draftmill

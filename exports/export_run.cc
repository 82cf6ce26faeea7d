#include "exports/export_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <thread>
#include <utility>

#include "base/start_threads.h"
#include "exports/folder_bytes.h"
#include "exports/output_files.h"
#include "formats/corpus_chunk.h"
#include "formats/published_file.h"
#include "formats/shard_reader.h"
#include "pipeline/progress/format_units.h"
#include "state/fingerprint.h"

namespace draftmill {
namespace {

constexpr std::string_view kFactsName = "export.json";
constexpr std::string_view kRowsName = "rows.jsonl";
/// Marks of finished shards, while an export is unfinished.
constexpr std::string_view kDoneFolder = "finished-shards";
/// What side files take beside the samples, for the forecast: 16 bytes a token and a line a row.
constexpr std::int64_t kSideBytesPerToken = 16;
constexpr std::int64_t kSideBytesPerRow = 300;

/// How many rows of each side a chunk gives, and where its numbers begin.
struct ChunkNumbers {
  std::int64_t chunk = 0;
  std::int64_t train = 0;
  std::int64_t eval = 0;
  std::int64_t first_train = 0;
  std::int64_t first_eval = 0;
};

/// The samples of one shard, for one worker.
struct ShardTask {
  std::int64_t chunk = 0;
  std::int64_t shard = 0;
  std::vector<ExportRow> rows;
  std::string name() const { return fmt::format("c{:06}-s{:03}", chunk, shard); }
};

class ExportRun {
 public:
  ExportRun(FileSystem& files, const ExportRequest& request, ProgressSink& progress, const ExportSource& source,
            ExportFormat& format)
      : files_(files),
        request_(request),
        output_(WithoutTrailingSlash(request.output)),
        progress_(progress),
        source_(source),
        format_(format),
        partial_(PartialPath(output_)) {
    if (source.final_norm()) norm_.emplace(*source.final_norm());
  }

  Result<ExportReport> Execute() {
    DRAFTMILL_ASSIGN_OR_RETURN(const std::optional<ExportReport> present, FindFinished());
    if (present) return *present;
    DRAFTMILL_RETURN_IF_ERROR(CountRows());
    const Status status = WriteAll();
    if (status.code() == StatusCode::kDiskFull) {
      return DiskFull(status.message() + ". What is written stays in " + partial_ +
                      ": free space and give the same command again to go on");
    }
    if (!status.ok()) return status;
    return Report(false);
  }

 private:
  Status WriteAll() {
    DRAFTMILL_RETURN_IF_ERROR(OpenPartial());
    DRAFTMILL_RETURN_IF_ERROR(CheckDisk());
    DRAFTMILL_RETURN_IF_ERROR(WriteSamples());
    DRAFTMILL_RETURN_IF_ERROR(WriteSideFiles());
    DRAFTMILL_RETURN_IF_ERROR(source_.CheckUnchanged());
    return Publish();
  }

  std::string FingerprintHash() const {
    Fingerprint fingerprint;
    fingerprint.Add("format", request_.format);
    fingerprint.Add("format version", std::to_string(format_.version()));
    fingerprint.Add("manifest", source_.manifest_digest());
    fingerprint.Add("selection", json::Write(SelectionFacts(request_.selection), json::Style::kCanonical));
    return fingerprint.hash();
  }

  ExportReport Report(bool was_there) const {
    return {.format = request_.format,
            .output = output_,
            .was_there = was_there,
            .counts = counts_,
            .advice = format_.Advice(output_, counts_)};
  }

  json::Value Facts(bool is_complete) const {
    json::Object facts{{"format", "draftmill.export"},
                       {"format_version", 1},
                       {"fingerprint", FingerprintHash()},
                       {"complete", is_complete},
                       {"trainer_format", request_.format},
                       {"trainer_format_version", format_.version()},
                       {"manifest_digest", source_.manifest_digest()},
                       {"selection", SelectionFacts(request_.selection)}};
    if (!is_complete) return facts;
    json::Array layers;
    for (const std::int32_t layer : source_.layers()) layers.emplace_back(std::int64_t{layer});
    json::Array advice;
    for (const std::string& line : format_.Advice(".", counts_)) advice.emplace_back(line);
    facts.emplace_back("totals", CountsAsJson(counts_));
    facts.emplace_back("layers", std::move(layers));
    facts.emplace_back("num_layers", std::int64_t{source_.num_layers()});
    facts.emplace_back("shift", "none");
    facts.emplace_back("set_in_trainer", std::move(advice));
    return facts;
  }

  static json::Value CountsAsJson(const ExportCounts& counts) {
    return json::Object{{"samples", counts.samples},
                        {"train_samples", counts.train_samples},
                        {"eval_samples", counts.eval_samples},
                        {"tokens", counts.tokens},
                        {"supervised_tokens", counts.supervised_tokens},
                        {"bytes", counts.bytes}};
  }

  /// What a folder says of itself; nothing where it says nothing.
  Result<std::optional<json::Value>> ReadFacts(const std::string& folder) const {
    const Result<std::string> text = files_.ReadAll(JoinPath(folder, kFactsName));
    if (text.status().code() == StatusCode::kNotFound) return std::optional<json::Value>();
    if (!text.ok()) return text.status();
    Result<json::Value> facts = json::Parse(*text);
    if (!facts.ok()) return std::optional<json::Value>(json::Object{});
    return std::optional<json::Value>(std::move(facts).value());
  }

  bool IsThisExport(const json::Value& facts) const {
    const json::Value* fingerprint = facts.Find("fingerprint");
    return fingerprint != nullptr && fingerprint->is_string() && fingerprint->as_string() == FingerprintHash();
  }

  /// A file is no place for an export, and what a run publishes is no place for anything else.
  Status CheckPlace() const {
    namespace fs = std::filesystem;
    const Result<FileInfo> info = files_.Stat(output_);
    if (info.ok() && !info->is_folder) {
      return Conflict(output_ + " is a file. Nothing was written. Name a folder to be made with --output DIR");
    }
    std::error_code ignored;  // a path that cannot be made canonical is compared as it is written
    const fs::path work = fs::weakly_canonical(request_.work_folder, ignored);
    const fs::path inside = fs::weakly_canonical(output_, ignored).lexically_relative(work);
    for (const char* published : {"ingested", "corpus", "vocab", "shards"}) {
      if (inside.empty() || *inside.begin() != published || inside == published) continue;
      return Conflict(output_ +
                      " lies among the files of the run itself. Nothing was written. Name another "
                      "folder with --output DIR");
    }
    return OkStatus();
  }

  /// The finished export where it stands already; kConflict where something else does.
  Result<std::optional<ExportReport>> FindFinished() {
    DRAFTMILL_RETURN_IF_ERROR(CheckPlace());
    if (!files_.Exists(output_)) return std::optional<ExportReport>();
    DRAFTMILL_ASSIGN_OR_RETURN(const std::optional<json::Value> facts, ReadFacts(output_));
    if (!facts || !IsThisExport(*facts)) {
      return Conflict(output_ + " exists and is not this export: " +
                      (facts ? "it was made from another state of the run, in another format or of other samples"
                             : "it is no export of draftmill") +
                      ". Nothing was written. Name another folder with --output DIR, or remove this one");
    }
    const json::Value* totals = facts->Find("totals");
    const auto number = [totals](std::string_view key) {
      const json::Value* value = totals == nullptr ? nullptr : totals->Find(key);
      return value != nullptr && value->is_integer() ? value->as_integer() : 0;
    };
    counts_ = {.samples = number("samples"),
               .train_samples = number("train_samples"),
               .eval_samples = number("eval_samples"),
               .tokens = number("tokens"),
               .supervised_tokens = number("supervised_tokens"),
               .bytes = number("bytes")};
    DRAFTMILL_RETURN_IF_ERROR(CheckThatNothingIsLost());
    return std::optional<ExportReport>(Report(true));
  }

  /// A finished export of which files were deleted or cut is not taken for whole. What a trainer put beside them, such as a
  /// cache, does not matter.
  Status CheckThatNothingIsLost() const {
    DRAFTMILL_ASSIGN_OR_RETURN(const std::int64_t found, BytesOfFolder(files_, output_, {std::string(kFactsName)}));
    if (found >= counts_.bytes) return OkStatus();
    return Conflict(
        fmt::format("{} was finished with {} bytes and holds {} now: files are missing or cut. Nothing was written. "
                    "Remove it and give the same command again",
                    output_, counts_.bytes, found));
  }

  // --- Before anything is written -----------------------------------------------------------------------------------

  Status CountRows() {
    for (const SourceChunk& chunk : source_.chunks()) {
      DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<ExportRow> rows, source_.RowsOf(chunk.chunk, request_.selection));
      ChunkNumbers numbers{.chunk = chunk.chunk};
      for (const ExportRow& row : rows) {
        ++(row.split == Split::kTrain ? numbers.train : numbers.eval);
        counts_.tokens += row.tokens;
        if (const std::optional<SampleFile> file = format_.FileOf(row)) {
          DRAFTMILL_ASSIGN_OR_RETURN(const std::int64_t bytes,
                                     SampleFileBytes(*file, row.tokens, source_.hidden_size()));
          forecast_bytes_ += bytes;
        }
      }
      numbers.first_train = counts_.train_samples;
      numbers.first_eval = counts_.eval_samples;
      counts_.train_samples += numbers.train;
      counts_.eval_samples += numbers.eval;
      numbers_.push_back(numbers);
      DRAFTMILL_RETURN_IF_ERROR(CheckStop());
    }
    counts_.samples = counts_.train_samples + counts_.eval_samples;
    forecast_bytes_ += counts_.tokens * kSideBytesPerToken + counts_.samples * kSideBytesPerRow;
    if (counts_.samples > 0) return OkStatus();
    return InvalidConfig("the selection takes no sample of the run in " + source_.work_folder() +
                         ". Nothing was written");
  }

  Status CheckStop() const {
    if (!request_.should_stop || !request_.should_stop()) return OkStatus();
    return Cancelled("the export was stopped. What is written stays in " + partial_ +
                     ": give the same command again to go on");
  }

  Status OpenPartial() {
    if (files_.Exists(partial_)) {
      DRAFTMILL_ASSIGN_OR_RETURN(const std::optional<json::Value> facts, ReadFacts(partial_));
      if (facts && IsThisExport(*facts)) return FindFinishedShards();
      DRAFTMILL_ASSIGN_OR_RETURN(const bool is_bare, HoldsNothing(partial_));
      if (is_bare) return BeginPartial();
      return Conflict(partial_ +
                      " holds an unfinished export of something else. Nothing was written. Name another folder with "
                      "--output DIR, or remove this one");
    }
    return BeginPartial();
  }

  /// Whether an export got no further than making its folder.
  Result<bool> HoldsNothing(const std::string& folder) const {
    DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<FileInfo> entries, files_.List(folder));
    return std::all_of(entries.begin(), entries.end(), [](const FileInfo& entry) {
      return entry.name == kDoneFolder || entry.name == PartialPath(std::string(kFactsName));
    });
  }

  Status BeginPartial() {
    DRAFTMILL_RETURN_IF_ERROR(files_.MakeFolder(JoinPath(partial_, kDoneFolder)));
    return files_.WriteAtomically(JoinPath(partial_, kFactsName),
                                  json::Write(Facts(false), json::Style::kPretty) + "\n");
  }

  Status FindFinishedShards() {
    DRAFTMILL_RETURN_IF_ERROR(files_.MakeFolder(JoinPath(partial_, kDoneFolder)));
    DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<FileInfo> marks, files_.List(JoinPath(partial_, kDoneFolder)));
    for (const FileInfo& mark : marks) finished_.insert(mark.name);
    if (!finished_.empty()) progress_.Line(fmt::format("going on: {} shards are exported already", finished_.size()));
    return OkStatus();
  }

  /// Samples of finished shards are there already.
  Status CheckDisk() {
    std::int64_t left = forecast_bytes_;
    if (!finished_.empty()) {
      DRAFTMILL_RETURN_IF_ERROR(ForEachTask([&](ShardTask task) {
        if (!finished_.contains(task.name())) return OkStatus();
        for (const ExportRow& row : task.rows) {
          DRAFTMILL_ASSIGN_OR_RETURN(const std::int64_t bytes,
                                     SampleFileBytes(*format_.FileOf(row), row.tokens, source_.hidden_size()));
          left -= bytes;
        }
        return OkStatus();
      }));
    }
    DRAFTMILL_ASSIGN_OR_RETURN(const DiskSpace space, files_.Space(partial_));
    progress_.Line(fmt::format("{} samples, {} tokens, about {} to write, {} free", FormatCount(counts_.samples),
                               FormatCount(counts_.tokens), FormatBytes(left), FormatBytes(space.free_bytes)));
    if (left <= space.free_bytes) return OkStatus();
    return DiskFull(fmt::format("about {} are to be written to {}, and {} are free", FormatBytes(left), output_,
                                FormatBytes(space.free_bytes)));
  }

  // --- Samples ------------------------------------------------------------------------------------------------------

  /// The rows of a chunk with their numbers.
  Result<std::vector<ExportRow>> NumberedRows(const ChunkNumbers& numbers) const {
    DRAFTMILL_ASSIGN_OR_RETURN(std::vector<ExportRow> rows, source_.RowsOf(numbers.chunk, request_.selection));
    std::int64_t train = numbers.first_train, eval = numbers.first_eval;
    for (ExportRow& row : rows) {
      row.index = row.split == Split::kTrain ? train++ : eval++;
      row.row = row.split == Split::kTrain ? row.index : counts_.train_samples + row.index;
    }
    const bool is_same = train == numbers.first_train + numbers.train && eval == numbers.first_eval + numbers.eval;
    if (is_same) return rows;
    return Conflict("the run in " + source_.work_folder() +
                    " was changed while it was exported: export again when it is finished");
  }

  Status ForEachTask(const std::function<Status(ShardTask)>& take) const {
    for (const ChunkNumbers& numbers : numbers_) {
      DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<ExportRow> rows, NumberedRows(numbers));
      std::map<std::int64_t, ShardTask> tasks;
      for (const ExportRow& row : rows) {
        ShardTask& task = tasks[row.shard];
        task.chunk = row.chunk;
        task.shard = row.shard;
        task.rows.push_back(row);
      }
      for (auto& [shard, task] : tasks) DRAFTMILL_RETURN_IF_ERROR(take(std::move(task)));
    }
    return OkStatus();
  }

  Status WriteSamples() {
    progress_.Update({.stage = "export", .unit = "samples", .done = 0, .total = counts_.samples});
    std::vector<std::thread> workers = StartThreads(static_cast<std::size_t>(std::max(1, request_.threads)),
                                                    [this](std::size_t) { return std::thread([this] { Work(); }); });
    if (workers.empty()) {
      return OutOfMemory("the system gives the export no thread. What is written is safe; run again when fewer run");
    }
    const Status status = ForEachTask([this](ShardTask task) { return Enqueue(std::move(task)); });
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!status.ok() && failure_.ok()) failure_ = status;
      no_more_tasks_ = true;
    }
    changed_.notify_all();
    for (std::thread& worker : workers) worker.join();
    return failure_;
  }

  Status Enqueue(ShardTask task) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return tasks_.size() < kTasksAhead || !failure_.ok(); });
    if (!failure_.ok()) return failure_;
    tasks_.push_back(std::move(task));
    changed_.notify_all();
    return OkStatus();
  }

  std::optional<ShardTask> NextTask() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return !tasks_.empty() || no_more_tasks_ || !failure_.ok(); });
    if (tasks_.empty() || !failure_.ok()) return std::nullopt;
    ShardTask task = std::move(tasks_.front());
    tasks_.pop_front();
    changed_.notify_all();
    return task;
  }

  void Work() {
    while (std::optional<ShardTask> task = NextTask()) {
      const Status status = finished_.contains(task->name()) ? Skip(*task) : ExportShard(*task);
      if (status.ok()) continue;
      const std::lock_guard<std::mutex> lock(mutex_);
      if (failure_.ok()) failure_ = status;
      changed_.notify_all();
      return;
    }
  }

  Status Skip(const ShardTask& task) {
    for (const ExportRow& row : task.rows) Count(row);
    return OkStatus();
  }

  void Count(const ExportRow& row) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++done_samples_;
    done_tokens_ += row.tokens;
    progress_.Update({.stage = "export",
                      .unit = "samples",
                      .done = done_samples_,
                      .total = counts_.samples,
                      .tokens = done_tokens_});
  }

  Status ExportShard(const ShardTask& task) {
    if (!format_.FileOf(task.rows.front())) return Skip(task);
    const std::string path =
        JoinPath(source_.work_folder(), ShardPath(static_cast<std::int32_t>(task.chunk), task.shard));
    DRAFTMILL_ASSIGN_OR_RETURN(ShardReader shard, ShardReader::Open(files_, path));
    DRAFTMILL_RETURN_IF_ERROR(CheckShard(shard, path));
    std::set<std::string> folders;
    for (const ExportRow& row : task.rows) {
      DRAFTMILL_RETURN_IF_ERROR(CheckStop());
      if (shard.contents().key(row.place) != row.key)
        return Corrupt(path + ": its samples do not stand where they stood");
      const std::optional<SampleFile> file = format_.FileOf(row);
      const std::string folder = ParentPath(JoinPath(partial_, file->path));
      if (folders.insert(folder).second) DRAFTMILL_RETURN_IF_ERROR(files_.MakeFolder(folder));
      DRAFTMILL_RETURN_IF_ERROR(
          WriteSampleFile(files_, partial_, *file, {&shard, path, row.place}, norm_ ? &*norm_ : nullptr)
              .WithContext("row " + std::to_string(row.row)));
      Count(row);
    }
    for (const std::string& folder : folders) DRAFTMILL_RETURN_IF_ERROR(files_.SyncFolder(folder));
    return files_.WriteAtomically(JoinPath(JoinPath(partial_, kDoneFolder), task.name()), "");
  }

  Status CheckShard(const ShardReader& shard, const std::string& path) const {
    const ShardContents& contents = shard.contents();
    std::string fingerprint;
    for (const auto& [key, value] : shard.metadata()) {
      if (key == "extract_fingerprint") fingerprint = value;
    }
    if (fingerprint == source_.extract_fingerprint() && contents.hidden_size == source_.hidden_size() &&
        contents.num_layers == static_cast<std::int64_t>(source_.layers().size())) {
      return OkStatus();
    }
    return Corrupt(path +
                   ": it was not made by the extraction that manifest.json speaks of. `draftmill verify` says more");
  }

  // --- Files beside the samples -------------------------------------------------------------------------------------

  Status WriteSideFiles() {
    OutputFiles side(files_, partial_);
    DRAFTMILL_RETURN_IF_ERROR(format_.Begin(side, counts_));
    DRAFTMILL_ASSIGN_OR_RETURN(const std::unique_ptr<OutputStream> index, side.Open(std::string(kRowsName)));
    for (const Split split : {Split::kTrain, Split::kEval}) {
      if (split == Split::kEval && counts_.eval_samples == 0) continue;
      for (const ChunkNumbers& numbers : numbers_) {
        DRAFTMILL_RETURN_IF_ERROR(CheckStop());
        DRAFTMILL_RETURN_IF_ERROR(DescribeChunk(numbers, split, *index));
      }
    }
    DRAFTMILL_RETURN_IF_ERROR(index->Close());
    DRAFTMILL_RETURN_IF_ERROR(format_.Finish());
    counts_.bytes += side.written();
    return OkStatus();
  }

  Status DescribeChunk(const ChunkNumbers& numbers, Split split, OutputStream& index) {
    if ((split == Split::kTrain ? numbers.train : numbers.eval) == 0) return OkStatus();
    DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<ExportRow> rows, NumberedRows(numbers));
    DRAFTMILL_ASSIGN_OR_RETURN(const CorpusChunk corpus, ReadCorpusChunk(files_, source_.work_folder(),
                                                                         static_cast<std::int32_t>(numbers.chunk)));
    std::size_t at = 0;
    for (const ExportRow& row : rows) {
      if (row.split != split) continue;
      const TokenizedChunk& chunk = corpus.chunk;
      while (at < chunk.sample_id.size() && SampleKey{chunk.sample_id[at], chunk.variant[at]} < row.key) ++at;
      if (at == chunk.sample_id.size() || SampleKey{chunk.sample_id[at], chunk.variant[at]} != row.key) {
        return Corrupt(CorpusChunkPath(chunk.chunk) + ": it lacks sample " + std::to_string(row.key.sample_id));
      }
      const auto begin = static_cast<std::size_t>(chunk.cu_seqlens[at]);
      const auto tokens = static_cast<std::size_t>(chunk.cu_seqlens[at + 1]) - begin;
      const RowTokens row_tokens{std::span(chunk.input_ids).subspan(begin, tokens),
                                 std::span(chunk.loss_mask).subspan(begin, tokens)};
      DRAFTMILL_RETURN_IF_ERROR(DescribeRow(row, row_tokens, index));
    }
    return OkStatus();
  }

  Status DescribeRow(const ExportRow& row, const RowTokens& tokens, OutputStream& index) {
    const std::int64_t supervised = std::count(tokens.loss_mask.begin(), tokens.loss_mask.end(), std::uint8_t{1});
    counts_.supervised_tokens += supervised;
    json::Object line{{"row", row.row},
                      {"split", SplitName(row.split)},
                      {"sample_id", row.key.sample_id},
                      {"variant", row.key.variant},
                      {"source", source_.SourceName(row.source)},
                      {"tokens", row.tokens},
                      {"supervised_tokens", supervised}};
    if (const std::optional<SampleFile> file = format_.FileOf(row)) {
      DRAFTMILL_ASSIGN_OR_RETURN(const FileInfo info, files_.Stat(JoinPath(partial_, file->path)));
      counts_.bytes += info.size_bytes;
      line.emplace_back("file", file->path);
      line.emplace_back("bytes", info.size_bytes);
    }
    DRAFTMILL_RETURN_IF_ERROR(index.Append(json::Write(json::Value(std::move(line))) + "\n"));
    return format_.AddRow(row, tokens);
  }

  /// The marks go with the rename's folder, so that a finished export holds nothing but itself.
  Status Publish() {
    DRAFTMILL_RETURN_IF_ERROR(
        files_.WriteAtomically(JoinPath(partial_, kFactsName), json::Write(Facts(true), json::Style::kPretty) + "\n"));
    DRAFTMILL_RETURN_IF_ERROR(files_.RemoveTree(JoinPath(partial_, kDoneFolder)));
    DRAFTMILL_RETURN_IF_ERROR(files_.SyncFolder(partial_));
    DRAFTMILL_RETURN_IF_ERROR(files_.Rename(partial_, output_));
    DRAFTMILL_RETURN_IF_ERROR(files_.SyncFolder(ParentPath(output_)));
    progress_.Update({.stage = "export",
                      .activity = StageActivity::kDone,
                      .unit = "samples",
                      .done = counts_.samples,
                      .total = counts_.samples,
                      .tokens = counts_.tokens,
                      .bytes = counts_.bytes});
    return OkStatus();
  }

  static constexpr std::size_t kTasksAhead = 4;

  FileSystem& files_;
  const ExportRequest& request_;
  const std::string output_;
  ProgressSink& progress_;
  const ExportSource& source_;
  ExportFormat& format_;
  const std::string partial_;
  std::optional<PostNorm> norm_;
  ExportCounts counts_;
  std::int64_t forecast_bytes_ = 0;
  std::vector<ChunkNumbers> numbers_;
  std::set<std::string> finished_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<ShardTask> tasks_;
  bool no_more_tasks_ = false;
  Status failure_;
  std::int64_t done_samples_ = 0;
  std::int64_t done_tokens_ = 0;
};

}  // namespace

Result<ExportReport> RunExport(FileSystem& file_system, const ExportRequest& request, ProgressSink& progress) {
  DRAFTMILL_ASSIGN_OR_RETURN(const ExportSource source, ExportSource::Open(file_system, request.work_folder));
  DRAFTMILL_ASSIGN_OR_RETURN(
      const std::unique_ptr<ExportFormat> format,
      MakeExportFormat(request.format,
                       {.source = &source, .selection = &request.selection, .token_bytes = request.token_bytes}));
  DRAFTMILL_RETURN_IF_ERROR(source.CheckSelection(request.selection));
  DRAFTMILL_RETURN_IF_ERROR(format->Check());
  return ExportRun(file_system, request, progress, source, *format).Execute();
}

json::Value ExportReportJson(const ExportReport& report) {
  json::Array advice;
  for (const std::string& line : report.advice) advice.emplace_back(line);
  return json::Object{{"format", report.format},
                      {"output", report.output},
                      {"was_there", report.was_there},
                      {"samples", report.counts.samples},
                      {"train_samples", report.counts.train_samples},
                      {"eval_samples", report.counts.eval_samples},
                      {"tokens", report.counts.tokens},
                      {"supervised_tokens", report.counts.supervised_tokens},
                      {"bytes", report.counts.bytes},
                      {"set_in_trainer", std::move(advice)}};
}

}  // namespace draftmill

#include "pipeline/run/forecast.h"

#include <sys/stat.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "stages/ingest/byte_stream.h"
#include "stages/ingest/conversation.h"
#include "stages/ingest/ingested_rows.h"
#include "stages/ingest/row_batch.h"
#include "stages/ingest/row_reader.h"
#include "state/state_place.h"

namespace draftmill {
namespace {

/// Rows looked at in each source file.
constexpr int kSampledRows = 64;

/// What the sampled rows of one file were like.
struct FileSample {
  std::int64_t rows = 0;
  std::int64_t tokens = 0;
  std::int64_t packed_bytes = 0;
  std::int64_t ingested_bytes = 0;  ///< of the rows as ingest packs them
  bool reached_end = false;
  std::string first_refusal;  ///< why the first row gave no token
};

/// What stands in a corpus chunk (docs/formats.md) for each token and each sample.
constexpr std::int64_t kCorpusBytesPerToken = 4 + 1;
constexpr std::int64_t kCorpusBytesPerSample = 8 + 8 + 4 + 16 + 8;

std::int64_t CorpusBytes(std::int64_t tokens, std::int64_t samples) {
  return tokens * kCorpusBytesPerToken + samples * kCorpusBytesPerSample;
}

/// Tokens of a row's samples; the failure of the first sample where there are none. The row is added to `ingested`.
Result<std::int64_t> TokensOfRow(const RawRow& raw, const RunInputs& inputs, RowForm form,
                                 TokenizeStage::LocalState& local, IngestedChunkText& ingested) {
  RowRefusal refusal;
  Result<json::Value> row = ParseRawRow(raw, inputs.ingest.max_row_bytes, refusal);
  if (!row.ok()) return row.status();
  DRAFTMILL_ASSIGN_OR_RETURN(const json::Value conversation,
                             CanonicalConversation(std::move(row).value(), form, inputs.ingest.normalize));
  ingested.Add({}, {}, json::Write(conversation));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<TokenizedSample> samples,
                             inputs.tokenize->TokenizeRow(conversation, local));
  std::int64_t tokens = 0;
  for (const TokenizedSample& sample : samples) {
    if (sample.error_reason.empty()) tokens += static_cast<std::int64_t>(sample.input_ids.size());
  }
  if (tokens == 0 && !samples.empty()) return InvalidInput(samples.front().error_message);
  return tokens;
}

Result<FileSample> SampleFile(const SourceFile& source, const RunInputs& inputs, FileSystem& files,
                              TokenizeStage::LocalState& local) {
  DRAFTMILL_ASSIGN_OR_RETURN(std::unique_ptr<ByteStream> stream, ByteStream::Open(files, source.path));
  RowReader reader(std::move(stream), source.layout, inputs.ingest.max_row_bytes);
  FileSample sample;
  IngestedChunkText ingested(0, 0, 0);
  std::int64_t unpacked_bytes = 0;
  RawRow row;
  while (sample.rows < kSampledRows) {
    DRAFTMILL_ASSIGN_OR_RETURN(const bool more, reader.Next(row));
    if (!more) {
      sample.reached_end = true;
      break;
    }
    ++sample.rows;
    unpacked_bytes = row.byte_offset + row.size_bytes;
    const Result<std::int64_t> tokens =
        TokensOfRow(row, inputs, inputs.ingest.sources[source.spec].form, local, ingested);
    if (tokens.ok()) sample.tokens += *tokens;
    if (!tokens.ok() && sample.rows == 1) sample.first_refusal = tokens.status().message();
  }
  // A packed file reads ahead, so its rows seem larger than they are; a plain one is counted exactly.
  sample.packed_bytes = std::max<std::int64_t>(1, std::min(reader.packed_bytes(), unpacked_bytes));
  DRAFTMILL_ASSIGN_OR_RETURN(sample.ingested_bytes, ingested.PackedBytes());
  return sample;
}

/// Whether two paths lie on one file system; not where one of them is not there.
bool OnOneDisk(const std::string& one, const std::string& other) {
  struct stat first {};
  struct stat second {};
  return ::stat(one.c_str(), &first) == 0 && ::stat(other.c_str(), &second) == 0 && first.st_dev == second.st_dev;
}

/// How many rows of a file may be taken, where files of the same entry gave `before`: an entry's limit is for all of them.
std::int64_t RowsTaken(const SourceSpec& spec, std::int64_t rows, std::int64_t before) {
  if (spec.take_rows) return std::min(*spec.take_rows - before, rows);
  if (spec.take_fraction) return static_cast<std::int64_t>(*spec.take_fraction * static_cast<double>(rows));
  return rows;
}

}  // namespace

std::string FolderOfStates(FileSystem& files, const std::string& work_folder) {
  std::string folder = JoinPath(work_folder, "shards");
  while (!files.Exists(folder) && ParentPath(folder) != folder) folder = ParentPath(folder);
  return folder;
}

WrittenFolders FoldersWrittenTo(FileSystem& files, const std::string& work_folder) {
  WrittenFolders folders{.states = FolderOfStates(files, work_folder), .others = {work_folder}};
  for (const std::string& folder : {JoinPath(work_folder, "corpus"), FolderOfStateDatabase(work_folder)}) {
    if (files.Exists(folder)) folders.others.push_back(folder);
  }
  return folders;
}

Result<std::vector<DiskDemand>> DemandsOnDisks(const Forecast& forecast, bool has_states, FileSystem& files,
                                               const std::string& work_folder) {
  const std::string of_states = FolderOfStates(files, work_folder);
  std::string of_rest = work_folder;
  while (!files.Exists(of_rest) && ParentPath(of_rest) != of_rest) of_rest = ParentPath(of_rest);
  const std::int64_t states = has_states ? forecast.disk_bytes : 0;
  const std::int64_t ingested = forecast.ingested_bytes_left;
  DRAFTMILL_ASSIGN_OR_RETURN(const DiskSpace space, files.Space(of_states));
  if (OnOneDisk(of_states, of_rest)) {
    const std::int64_t needed = ingested + std::max(ingested, forecast.corpus_bytes_left + states);
    return std::vector<DiskDemand>{{of_states, needed, space.free_bytes}};
  }
  DRAFTMILL_ASSIGN_OR_RETURN(const DiskSpace rest, files.Space(of_rest));
  const std::int64_t needed = ingested + std::max(ingested, forecast.corpus_bytes_left);
  return std::vector<DiskDemand>{{of_states, states, space.free_bytes}, {of_rest, needed, rest.free_bytes}};
}

std::optional<DiskDemand> FirstUnmet(const std::vector<DiskDemand>& demands, std::int64_t min_free_disk_bytes) {
  for (const DiskDemand& demand : demands) {
    if (demand.needed_bytes > demand.free_bytes - min_free_disk_bytes) return demand;
  }
  return std::nullopt;
}

std::int64_t BytesAtOnce(std::int64_t states_bytes, const PlanParameters& plan, bool discards_shards) {
  if (!discards_shards) return states_bytes;
  // A shard holds at least one batch, however small shard_bytes is.
  return std::min(states_bytes, std::max(plan.shard_bytes, plan.batch_tokens * plan.bytes_per_token));
}

Forecast ForecastFromChunks(const std::vector<ChunkRecord>& chunks, const RunInputs& inputs,
                            std::int64_t discarded_tokens) {
  Forecast forecast;
  forecast.is_exact = true;
  std::int64_t tokenized_rows = 0;
  std::int64_t tokenized_tokens = 0;
  std::int64_t done_tokens = inputs.discards_shards ? 0 : -discarded_tokens;
  for (const ChunkRecord& chunk : chunks) {
    forecast.rows += chunk.rows;
    done_tokens += chunk.published_tokens;
    if (!chunk.tokenized) continue;
    tokenized_rows += chunk.rows;
    tokenized_tokens += chunk.tokens;
  }
  forecast.is_exact = tokenized_rows == forecast.rows;
  const double share =
      tokenized_rows == 0 ? 0 : static_cast<double>(forecast.rows) / static_cast<double>(tokenized_rows);
  forecast.tokens =
      forecast.is_exact ? tokenized_tokens : static_cast<std::int64_t>(share * static_cast<double>(tokenized_tokens));
  forecast.corpus_bytes_left = CorpusBytes(forecast.tokens - tokenized_tokens, forecast.rows - tokenized_rows);
  forecast.states_bytes = forecast.tokens * inputs.plan.bytes_per_token;
  forecast.states_bytes_left = (forecast.tokens - done_tokens) * inputs.plan.bytes_per_token;
  forecast.disk_bytes = BytesAtOnce(forecast.states_bytes_left, inputs.plan, inputs.discards_shards);
  return forecast;
}

Result<Forecast> ForecastFromSources(const RunInputs& inputs, FileSystem& files) {
  Forecast forecast;
  const std::unique_ptr<TokenizeStage::LocalState> local = inputs.tokenize->MakeLocalState();
  std::vector<std::int64_t> taken_of_entry(inputs.ingest.sources.size());
  for (const SourceFile& source : inputs.source_files) {
    DRAFTMILL_ASSIGN_OR_RETURN(const FileSample sample, SampleFile(source, inputs, files, *local));
    if (sample.tokens == 0) {
      forecast.barren.push_back({source.path, sample.rows, sample.rows == 0 ? "it has no rows" : sample.first_refusal});
    }
    if (sample.rows == 0) continue;
    const double scale = sample.reached_end
                             ? 1.0
                             : static_cast<double>(source.info.size_bytes) / static_cast<double>(sample.packed_bytes);
    const auto rows = static_cast<std::int64_t>(scale * static_cast<double>(sample.rows));
    const std::int64_t taken = RowsTaken(inputs.ingest.sources[source.spec], rows, taken_of_entry[source.spec]);
    taken_of_entry[source.spec] += taken;
    forecast.rows += taken;
    forecast.ingested_bytes_left += static_cast<std::int64_t>(
        static_cast<double>(taken) * static_cast<double>(sample.ingested_bytes) / static_cast<double>(sample.rows));
    forecast.tokens += static_cast<std::int64_t>(static_cast<double>(taken) * static_cast<double>(sample.tokens) /
                                                 static_cast<double>(sample.rows));
  }
  forecast.corpus_bytes_left = CorpusBytes(forecast.tokens, forecast.rows);
  forecast.states_bytes = forecast.tokens * inputs.plan.bytes_per_token;
  forecast.states_bytes_left = forecast.states_bytes;
  forecast.disk_bytes = BytesAtOnce(forecast.states_bytes_left, inputs.plan, inputs.discards_shards);
  return forecast;
}

}  // namespace draftmill

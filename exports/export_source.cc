#include "exports/export_source.h"

#include <algorithm>

#include "formats/shard_reader.h"
#include "stages/vocab_map/vocab_files.h"
#include "state/state_reader.h"

namespace draftmill {
namespace {

/// More layers, hidden dims or vocabulary than any model has: products of three such numbers fit 64 bits.
constexpr std::int64_t kLargestNumber = std::int64_t{1} << 20;
constexpr std::int64_t kLargestVocabulary = std::int64_t{1} << 31;

Result<std::int64_t> NumberIn(const json::Value& facts, std::string_view key, std::int64_t largest = kLargestNumber) {
  const json::Value* value = facts.Find(key);
  if (value == nullptr || !value->is_integer() || value->as_integer() <= 0 || value->as_integer() > largest) {
    return Corrupt("manifest.json: its facts lack '" + std::string(key) + "', a number from 1 to " +
                   std::to_string(largest));
  }
  return value->as_integer();
}

Result<std::string> TextIn(const json::Value* facts, std::string_view key) {
  const json::Value* value = facts == nullptr ? nullptr : facts->Find(key);
  if (value == nullptr || !value->is_string())
    return Corrupt("manifest.json: its facts lack '" + std::string(key) + "'");
  return value->as_string();
}

/// Path and last name of a source are both accepted.
bool IsNamed(const std::string& source, const std::string& wanted) {
  return source == wanted || (source.size() > wanted.size() && source.ends_with("/" + wanted));
}

std::string DigestOf(const std::string& manifest) { return ToHex(HashBytes128(manifest)); }

}  // namespace

Result<ExportSource> ExportSource::Open(FileSystem& file_system, const std::string& work_folder) {
  ExportSource source(file_system, work_folder);
  const Result<std::string> text = file_system.ReadAll(ManifestPath(work_folder));
  if (text.status().code() == StatusCode::kNotFound) {
    return InvalidConfig("there is no manifest.json in " + work_folder +
                         ": only a finished run can be exported. Nothing was written. `draftmill run` finishes it");
  }
  if (!text.ok()) return text.status();
  source.manifest_digest_ = DigestOf(*text);
  DRAFTMILL_ASSIGN_OR_RETURN(const Manifest manifest, ParseManifest(*text, ManifestPath(work_folder)));
  if (const auto discarded = static_cast<std::int64_t>(manifest.discarded_shards.size()); discarded > 0) {
    return InvalidConfig(work_folder + " cannot be exported: " + DiscardedShardsNote(discarded) +
                         ". Nothing was written. Without that switch `draftmill run TARGET --accept-changes` computes "
                         "the states again");
  }
  DRAFTMILL_RETURN_IF_ERROR(source.ReadFacts(manifest));
  DRAFTMILL_RETURN_IF_ERROR(source.ReadState());
  DRAFTMILL_ASSIGN_OR_RETURN(source.vocab_, ReadVocab(file_system, work_folder));
  Result<FinalNorm> norm = ReadFinalNorm(file_system, work_folder);
  if (!norm.ok())
    return norm.status().code() == StatusCode::kNotFound ? Result<ExportSource>(std::move(source)) : norm.status();
  const bool fits = norm->model_fingerprint == source.model_fingerprint_ &&
                    static_cast<std::int64_t>(norm->weight.size()) == source.hidden_size_;
  if (!fits) {
    return Corrupt(FinalNormPath(work_folder) +
                   ": it is the norm of another model. Remove the file and give `draftmill run` again, which "
                   "writes the right one");
  }
  source.final_norm_ = std::move(norm).value();
  return source;
}

Status ExportSource::ReadFacts(const Manifest& manifest) {
  const json::Value* model = manifest.facts.Find("model");
  const json::Value* layers = manifest.facts.Find("layers");
  if (model == nullptr || layers == nullptr || !layers->is_array())
    return Corrupt("manifest.json: its facts lack model or layers");
  for (const json::Value& layer : layers->as_array()) {
    if (!layer.is_integer() || layer.as_integer() < 0 || layer.as_integer() > kLargestNumber) {
      return Corrupt("manifest.json: its layers are no numbers of layers");
    }
    layers_.push_back(static_cast<std::int32_t>(layer.as_integer()));
  }
  DRAFTMILL_ASSIGN_OR_RETURN(const std::int64_t num_layers, NumberIn(*model, "num_layers"));
  num_layers_ = static_cast<std::int32_t>(num_layers);
  DRAFTMILL_ASSIGN_OR_RETURN(hidden_size_, NumberIn(*model, "hidden_size"));
  DRAFTMILL_ASSIGN_OR_RETURN(vocab_rows_, NumberIn(*model, "vocab_rows", kLargestVocabulary));
  DRAFTMILL_ASSIGN_OR_RETURN(model_fingerprint_, TextIn(model, "fingerprint"));
  DRAFTMILL_ASSIGN_OR_RETURN(extract_fingerprint_, TextIn(manifest.facts.Find("fingerprints"), "extract"));
  return OkStatus();
}

Status ExportSource::ReadState() {
  DRAFTMILL_ASSIGN_OR_RETURN(StateReader state, StateReader::Open(work_folder_, *file_system_));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<SourceRecord> sources, state.Sources());
  for (const SourceRecord& source : sources) source_names_[source.source] = source.path;
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<ChunkRecord> chunks, state.Chunks());
  for (const ChunkRecord& chunk : chunks) chunks_.push_back({chunk.chunk, chunk.shards});
  return OkStatus();
}

const std::string& ExportSource::SourceName(std::int64_t source) const {
  static const std::string kUnknown;
  const auto found = source_names_.find(source);
  return found == source_names_.end() ? kUnknown : found->second;
}

Status ExportSource::CheckSelection(const Selection& selection) const {
  for (const std::string& wanted : selection.sources) {
    const bool exists = std::any_of(source_names_.begin(), source_names_.end(),
                                    [&](const auto& source) { return IsNamed(source.second, wanted); });
    if (exists) continue;
    std::string known;
    for (const auto& [number, name] : source_names_) known += (known.empty() ? "" : ", ") + name;
    return InvalidConfig("--select source=" + wanted + ": the run has no such source; it has " + known +
                         ". Nothing was written");
  }
  return OkStatus();
}

bool ExportSource::TakesSource(const Selection& selection, std::int64_t source) const {
  return selection.sources.empty() ||
         std::any_of(selection.sources.begin(), selection.sources.end(),
                     [&](const std::string& wanted) { return IsNamed(SourceName(source), wanted); });
}

Result<std::vector<ExportRow>> ExportSource::RowsOf(std::int64_t chunk, const Selection& selection) const {
  std::vector<SampleRecord> samples;
  std::vector<ShardRecord> shards;
  {
    DRAFTMILL_ASSIGN_OR_RETURN(StateReader state, StateReader::Open(work_folder_, *file_system_));
    DRAFTMILL_ASSIGN_OR_RETURN(samples, state.Samples(chunk));
    DRAFTMILL_ASSIGN_OR_RETURN(shards, state.Shards(chunk));
  }
  const auto key_of = [](const SampleRecord& sample) {
    return SampleKey{sample.sample_id, static_cast<std::int32_t>(sample.variant)};
  };
  const auto source_of = [&](const SampleKey& key) {
    const auto found =
        std::lower_bound(samples.begin(), samples.end(), key,
                         [&](const SampleRecord& sample, const SampleKey& k) { return key_of(sample) < k; });
    return found == samples.end() || key_of(*found) != key ? std::int64_t{-1} : found->source;
  };
  std::vector<ExportRow> rows;
  for (const ShardRecord& shard : shards) {
    DRAFTMILL_ASSIGN_OR_RETURN(const ShardReader reader,
                               ShardReader::Open(*file_system_, JoinPath(work_folder_, shard.file)));
    const ShardContents& contents = reader.contents();
    for (std::int64_t place = 0; place < contents.samples(); ++place) {
      const auto i = static_cast<std::size_t>(place);
      const SampleKey key = contents.key(place);
      if (contents.sample_state[i] != 0 || !selection.TakesSample(key.sample_id)) continue;
      ExportRow row{.split = selection.SideOf(contents.content_hash[i]),
                    .key = key,
                    .chunk = chunk,
                    .shard = shard.shard,
                    .place = place,
                    .tokens = contents.cu_seqlens[i + 1] - contents.cu_seqlens[i],
                    .source = source_of(key)};
      if (selection.only && row.split != *selection.only) continue;
      if (TakesSource(selection, row.source)) rows.push_back(row);
    }
  }
  std::sort(rows.begin(), rows.end(), [](const ExportRow& a, const ExportRow& b) { return a.key < b.key; });
  return rows;
}

Status ExportSource::CheckUnchanged() const {
  const Result<std::string> text = file_system_->ReadAll(ManifestPath(work_folder_));
  if (text.ok() && DigestOf(*text) == manifest_digest_) return OkStatus();
  return Conflict("the run in " + work_folder_ +
                  " was changed while it was exported. What was written stays unpublished: export "
                  "again when the run is finished");
}

}  // namespace draftmill

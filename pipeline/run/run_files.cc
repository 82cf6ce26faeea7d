#include "pipeline/run/run_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "base/shell_word.h"
#include "formats/corpus_chunk.h"
#include "pipeline/config/run_spec.h"
#include "pipeline/run/self_check_step.h"
#include "pipeline/run/stored_facts.h"
#include "pipeline/run/vocab_step.h"
#include "stages/ingest/ingest_summary.h"
#include "stages/ingest/ingested_rows.h"
#include "stages/write/shard_writer.h"
#include "state/state_reader.h"

namespace draftmill {
namespace {

constexpr std::int64_t kRunFileVersion = 1;

Status WriteWhereChanged(FileSystem& files, const std::string& path, const std::string& content) {
  const Result<std::string> old = files.ReadAll(path);
  if (old.ok() && *old == content) return OkStatus();
  return files.WriteAtomically(path, content);
}

json::Value FingerprintsAsJson(const std::map<std::string, Fingerprint>& fingerprints) {
  json::Object stages;
  for (const auto& [stage, fingerprint] : fingerprints) {
    json::Object parts;
    for (const FingerprintPart& part : fingerprint.parts()) parts.emplace_back(part.name, part.value);
    stages.emplace_back(stage, json::Object{{"hash", fingerprint.hash()}, {"parts", std::move(parts)}});
  }
  return stages;
}

json::Value LayersAsJson(const std::vector<std::int32_t>& layers) {
  json::Array list;
  for (const std::int32_t layer : layers) list.emplace_back(std::int64_t{layer});
  return list;
}

json::Value EpochsAsJson(const std::vector<std::int64_t>& sizes) {
  json::Array epochs;
  for (const std::int64_t size : sizes) {
    epochs.push_back(json::Object{{"epoch", static_cast<std::int64_t>(epochs.size())}, {"source_files", size}});
  }
  return epochs;
}

json::Value PlanAsJson(const PlanParameters& plan) {
  return json::Object{{"batch_tokens", plan.batch_tokens},
                      {"block_tokens", plan.block_tokens},
                      {"shard_bytes", plan.shard_bytes},
                      {"bytes_per_token", plan.bytes_per_token}};
}

/// The published files of vocab/, by name.
Result<std::vector<PublishedFile>> VocabFiles(FileSystem& files, const std::string& work_folder) {
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<FileInfo> entries, files.List(JoinPath(work_folder, "vocab")));
  std::vector<PublishedFile> published;
  for (const FileInfo& entry : entries) {
    DRAFTMILL_ASSIGN_OR_RETURN(PublishedFile file, DigestFile(files, work_folder, JoinPath("vocab", entry.name)));
    published.push_back(std::move(file));
  }
  return published;
}

json::Value ManifestFacts(const Config& config, const RunInputs& inputs,
                          const std::map<std::string, Fingerprint>& fingerprints,
                          const std::vector<ChunkRecord>& chunks) {
  json::Object hashes;
  for (const auto& [stage, fingerprint] : fingerprints) hashes.emplace_back(stage, fingerprint.hash());
  return json::Object{{"model", json::Object{{"family", inputs.model.family},
                                             {"fingerprint", inputs.model.model_fingerprint},
                                             {"num_layers", std::int64_t{inputs.model.num_layers}},
                                             {"hidden_size", std::int64_t{inputs.model.hidden_size}},
                                             {"vocab_rows", inputs.model.vocab_rows}}},
                      {"layers", LayersAsJson(inputs.model.layers)},
                      {"final_norm", "pre"},
                      {"mask_rule", MaskRule(config)},
                      {"tokenizer", inputs.tokenize->tokenizer_fingerprint()},
                      {"chat_template", inputs.tokenize->template_fingerprint()},
                      {"corpus_digest", CorpusDigest(chunks)},
                      {"fingerprints", std::move(hashes)}};
}

/// The effective configuration with every path relative to the pipeline file, so that the file does not depend on the
/// folder from which the run was started.
json::Value PortableValues(const Config& config) {
  json::Value values = config.EffectiveValues();
  const auto make_portable = [&](json::Value* path) {
    if (path != nullptr && path->is_string()) *path = PortablePath(config, path->as_string());
  };
  for (const SectionSpec& section : AllSections()) {
    json::Value* holder = section.name.empty() ? &values : values.Find(section.name);
    if (holder == nullptr) continue;
    for (const ParameterSpec& parameter : section.parameters) {
      json::Value* value = holder->Find(parameter.name);
      if (value == nullptr) continue;
      const bool is_word = value->is_string() && std::find(parameter.words.begin(), parameter.words.end(),
                                                           value->as_string()) != parameter.words.end();
      if (parameter.type == ParameterType::kPath && !is_word) make_portable(value);
      if (parameter.type != ParameterType::kSources) continue;
      for (json::Value& source : value->as_array()) make_portable(source.Find("path"));
    }
  }
  return values;
}

/// Notes a file that is not there in its recorded size.
void CheckSize(FileSystem& files, const std::string& work_folder, const std::string& path, std::int64_t bytes,
               std::vector<std::string>& missing) {
  const Result<FileInfo> info = files.Stat(JoinPath(work_folder, path));
  if (!info.ok() || info->size_bytes != bytes) missing.push_back(path);
}

/// The chunk that a name of our own form is about, or -1: "chunk-000012.safetensors", "000012".
std::int64_t ChunkOfName(std::string_view name) {
  constexpr std::string_view kPrefix = "chunk-";
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  std::int64_t chunk = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), chunk);
  const bool is_ours =
      error == std::errc() && end - name.data() >= 6 && (end == name.data() + name.size() || *end == '.');
  return is_ours ? chunk : -1;
}

}  // namespace

Status CheckThatFilesStand(FileSystem& files, const std::string& work_folder) {
  DRAFTMILL_ASSIGN_OR_RETURN(StateReader state, StateReader::Open(work_folder, files));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<ChunkRecord> chunks, state.Chunks());
  std::vector<std::string> missing;
  for (const ChunkRecord& chunk : chunks) {
    const auto number = static_cast<std::int32_t>(chunk.chunk);
    if (chunk.tokenized) CheckSize(files, work_folder, CorpusChunkPath(number), chunk.corpus_bytes, missing);
    if (chunk.published_shards == 0) continue;
    DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<ShardRecord> shards, state.Shards(chunk.chunk));
    for (const ShardRecord& shard : shards) {
      if (shard.state == ShardState::kPublished) CheckSize(files, work_folder, shard.file, shard.bytes, missing);
    }
  }
  if (missing.empty()) return OkStatus();
  return Corrupt(
      fmt::format("{} files that state.db knows are missing or have another size, the first is {}. What is "
                  "there stays. `draftmill verify --repair {}` marks them as work, and the next run makes them again",
                  missing.size(), JoinPath(work_folder, missing.front()), ShellWord(work_folder)));
}

Result<std::int64_t> CountMissingIngestedFiles(FileSystem& files, const std::string& work_folder) {
  DRAFTMILL_ASSIGN_OR_RETURN(StateReader state, StateReader::Open(work_folder, files));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<ChunkRecord> chunks, state.Chunks());
  std::int64_t missing = files.Exists(IngestSummaryPath(work_folder)) ? 0 : 1;
  for (const ChunkRecord& chunk : chunks) {
    const std::string path = IngestedChunkPath(work_folder, static_cast<std::int32_t>(chunk.chunk));
    if (chunk.ingested && !files.Exists(path)) ++missing;
  }
  return missing;
}

Status RemoveOrphans(FileSystem& files, const std::string& work_folder, std::int64_t chunks) {
  for (const char* part : {"corpus", "shards"}) {
    const std::string folder = JoinPath(work_folder, part);
    if (!files.Exists(folder)) continue;
    DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<FileInfo> entries, files.List(folder));
    for (const FileInfo& entry : entries) {
      if (ChunkOfName(entry.name) < chunks) continue;
      const std::string path = JoinPath(folder, entry.name);
      DRAFTMILL_RETURN_IF_ERROR(entry.is_folder ? files.RemoveTree(path) : files.Remove(path));
    }
    DRAFTMILL_RETURN_IF_ERROR(files.SyncFolder(folder));
  }
  return OkStatus();
}

Status RemoveDiscarded(FileSystem& files, const std::string& work_folder) {
  DRAFTMILL_ASSIGN_OR_RETURN(StateReader state, StateReader::Open(work_folder, files));
  DRAFTMILL_ASSIGN_OR_RETURN(const ShardStateCount discarded, state.DiscardedShards());
  if (discarded.shards == 0) return OkStatus();
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<ChunkRecord> chunks, state.Chunks());
  for (const ChunkRecord& chunk : chunks) {
    DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<ShardRecord> shards, state.Shards(chunk.chunk));
    for (const ShardRecord& shard : shards) {
      if (shard.state != ShardState::kDiscarded) continue;
      DRAFTMILL_RETURN_IF_ERROR(DiscardShard(files, work_folder, shard.file));
    }
  }
  return OkStatus();
}

Status WriteRunFiles(FileSystem& files, const Config& config, const RunInputs& inputs,
                     const std::map<std::string, Fingerprint>& fingerprints) {
  const std::string& work = config.work_folder();
  const json::Value facts = json::Object{{"version", kRunFileVersion},
                                         {std::string(kConfigFolderKey), config.ConfigFolderFromWork()},
                                         {std::string(kConfigFolderWasKey), config.AbsoluteConfigFolder()},
                                         {"epochs", EpochsAsJson(inputs.epoch_sizes)},
                                         {"parameters", PortableValues(config)},
                                         {"plan", PlanAsJson(inputs.plan)},
                                         {"layers", LayersAsJson(inputs.model.layers)},
                                         {"fingerprints", FingerprintsAsJson(fingerprints)}};
  DRAFTMILL_RETURN_IF_ERROR(
      WriteWhereChanged(files, JoinPath(work, kRunFactsName), json::Write(facts, json::Style::kPretty) + "\n"));
  const std::string copy = JoinPath(work, kPipelineCopyName);
  return config.path() == copy ? OkStatus() : WriteWhereChanged(files, copy, config.text());
}

std::string MaskRule(const Config& config) {
  const ParameterValues& values = config.section("tokenize");
  json::Object rule{{"rule", "draftmill-1"}};
  for (const char* name : {"train_on", "supervise_stop_token", "train_on_reasoning"})
    rule.emplace_back(name, values.Get(name));
  return json::Write(json::Value(std::move(rule)), json::Style::kCanonical);
}

Result<Manifest> MakeManifest(FileSystem& files, const std::string& work_folder, const Config& config,
                              const RunInputs& inputs, const std::map<std::string, Fingerprint>& fingerprints) {
  DRAFTMILL_ASSIGN_OR_RETURN(StateReader state, StateReader::Open(work_folder, files));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<ChunkRecord> chunks, state.Chunks());
  Manifest manifest;
  DRAFTMILL_ASSIGN_OR_RETURN(manifest.vocab, VocabFiles(files, work_folder));
  for (const ChunkRecord& chunk : chunks) {
    DRAFTMILL_ASSIGN_OR_RETURN(const Hash128 digest, Hash128FromHex(chunk.corpus_digest));
    manifest.corpus.push_back(
        {.file = {CorpusChunkPath(static_cast<std::int32_t>(chunk.chunk)), chunk.corpus_bytes, digest},
         .samples = chunk.samples,
         .tokens = chunk.tokens});
    DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<ShardRecord> shards, state.Shards(chunk.chunk));
    for (const ShardRecord& shard : shards) {
      DRAFTMILL_ASSIGN_OR_RETURN(const Hash128 shard_digest, Hash128FromHex(shard.digest));
      auto& list = shard.state == ShardState::kDiscarded ? manifest.discarded_shards : manifest.shards;
      list.push_back({.file = {shard.file, shard.bytes, shard_digest},
                      .samples = shard.samples,
                      .tokens = shard.tokens,
                      .quarantined = shard.quarantined});
    }
  }
  manifest.facts = ManifestFacts(config, inputs, fingerprints, chunks);
  std::vector<std::string> shards;
  for (const auto& shard : manifest.shards) shards.push_back(shard.file.path);
  DRAFTMILL_ASSIGN_OR_RETURN(json::Value self_check, CheckPublishedStates(files, work_folder, shards,
                                                                          inputs.extract.model_folder, inputs.model));
  manifest.facts.Set(kSelfCheckFact, std::move(self_check));
  return manifest;
}

Status RedoOpenShards(StateWriter& state, const std::string& work_folder, FileSystem& files,
                      const std::vector<ChunkRecord>& chunks) {
  for (const ChunkRecord& chunk : chunks) {
    if (chunk.extracted_batches == 0 || chunk.published_shards == chunk.shards) continue;
    DRAFTMILL_ASSIGN_OR_RETURN(StateReader reader, StateReader::Open(work_folder, files));
    DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<ShardRecord> shards, reader.Shards(chunk.chunk));
    std::vector<std::int64_t> batches;
    for (const ShardRecord& shard : shards) {
      if (CountsAsPublished(shard.state)) continue;
      for (std::int64_t i = 0; i < shard.batches; ++i) batches.push_back(shard.first_batch + i);
    }
    state.MarkBatchesDamaged(chunk.chunk, std::move(batches));
  }
  return state.Flush();
}

}  // namespace draftmill

#include "pipeline/verify/verify.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "formats/corpus_chunk.h"
#include "formats/manifest.h"
#include "formats/shard_reader.h"
#include "pipeline/verify/recorded_files.h"
#include "stages/ingest/ingested_rows.h"
#include "stages/vocab_map/vocab_files.h"
#include "state/consistency.h"

namespace draftmill {
namespace {

/// What a file is according to its row.
struct ExpectedFile {
  std::int64_t bytes = 0;
  std::string digest;
};

using ExpectedFiles = std::map<std::string, ExpectedFile>;

/// Whether a file is there that this process may not read, or a folder with such a file.
bool IsForbidden(const std::string& path) {
  if (::faccessat(AT_FDCWD, path.c_str(), R_OK, AT_EACCESS) != 0) return errno == EACCES || errno == EPERM;
  const Result<std::vector<FileInfo>> entries = RealFileSystem().List(path);
  return entries.ok() && std::any_of(entries->begin(), entries->end(), [&](const FileInfo& entry) {
           return !entry.is_folder && IsForbidden(JoinPath(path, entry.name));
         });
}

class Verifier {
 public:
  Verifier(FileSystem& files, StateReader& state, std::string work_folder, const VerifyOptions& options)
      : files_(files), state_(state), work_folder_(std::move(work_folder)), options_(options) {}

  Result<VerifyReport> Run() {
    report_.deep = options_.deep;
    DRAFTMILL_RETURN_IF_ERROR(ReadStageStates());
    DRAFTMILL_ASSIGN_OR_RETURN(const std::string contradiction, FindContradiction(state_.connection()));
    if (!contradiction.empty()) {
      StateFault(contradiction);
      return std::move(report_);  // what files are held against is not known
    }
    if (vocab_is_done_) CheckVocab();
    DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<ChunkRecord> chunks, state_.Chunks());
    for (const ChunkRecord& chunk : chunks) {
      if (options_.should_stop && options_.should_stop()) return Cancelled("verify was stopped; nothing was changed");
      is_deep_ = options_.deep && chunk.chunk >= options_.first_deep_chunk;
      CheckIngested(chunk);
      CheckCorpus(chunk);
      DRAFTMILL_RETURN_IF_ERROR(CheckShards(chunk));
      if (is_deep_ && options_.on_chunk) options_.on_chunk(chunk.chunk + 1, report_);
    }
    CompareFrequencies();
    DRAFTMILL_RETURN_IF_ERROR(CheckRecordedFiles());
    CheckManifest();
    FindUnknownFiles();
    return std::move(report_);
  }

 private:
  void Fault(VerifyFault fault) {
    fault.is_forbidden = IsForbidden(JoinPath(work_folder_, fault.file));
    report_.faults.push_back(std::move(fault));
  }

  void StateFault(const std::string& contradiction) {
    Fault({.target = VerifyTarget::kState, .file = "state.db", .message = "it contradicts itself " + contradiction});
  }

  void Looked(std::int64_t bytes) {
    ++report_.files;
    report_.bytes += bytes;
    if (options_.on_progress) options_.on_progress(report_.files, report_.bytes);
  }

  /// What is wrong with the size of a file; empty where nothing is.
  std::string SizeFault(const std::string& file, std::int64_t bytes) {
    const Result<FileInfo> info = files_.Stat(JoinPath(work_folder_, file));
    if (info.status().code() == StatusCode::kNotFound) return "the file is missing";
    if (!info.ok()) return info.status().message();
    Looked(info->size_bytes);
    if (info->size_bytes == bytes) return {};
    return "the file has " + std::to_string(info->size_bytes) + " bytes, recorded are " + std::to_string(bytes);
  }

  Status ReadStageStates() {
    DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<StageRecord> stages, state_.Stages());
    all_done_ = !stages.empty();
    for (const StageRecord& stage : stages) {
      all_done_ = all_done_ && stage.state == StageState::kDone;
      if (stage.stage == "ingest") ingest_is_done_ = stage.state == StageState::kDone;
      if (stage.stage == "vocab_map") vocab_is_done_ = stage.state == StageState::kDone;
    }
    return OkStatus();
  }

  void CheckIngested(const ChunkRecord& chunk) {
    if (!chunk.ingested) return;
    const auto number = static_cast<std::int32_t>(chunk.chunk);
    const std::string file = IngestedChunkPath(".", number).substr(2);
    VerifyFault fault{.target = VerifyTarget::kIngestedChunk, .file = file, .chunk = chunk.chunk};
    fault.message = SizeFault(file, chunk.bytes);
    if (fault.message.empty() && is_deep_) {
      const Result<Hash128> digest = Hash128FromHex(chunk.ingested_digest);
      const Status status =
          digest.ok() ? ReadIngestedChunk(files_, work_folder_, number, *digest).status() : digest.status();
      fault.message = status.message();
    }
    if (!fault.message.empty()) Fault(std::move(fault));
  }

  void CheckCorpus(const ChunkRecord& chunk) {
    if (!chunk.tokenized) return;
    const std::string file = CorpusChunkPath(static_cast<std::int32_t>(chunk.chunk));
    expected_[file] = {chunk.corpus_bytes, chunk.corpus_digest};
    VerifyFault fault{.target = VerifyTarget::kCorpusChunk, .file = file, .chunk = chunk.chunk};
    fault.message = SizeFault(file, chunk.corpus_bytes);
    if (fault.message.empty()) fault.message = is_deep_ ? CorpusBytesFault(chunk) : CorpusHeaderFault(chunk);
    if (!fault.message.empty()) {
      Fault(std::move(fault));
      frequencies_.reset();  // the counts of this chunk are not known
    }
  }

  std::string CorpusHeaderFault(const ChunkRecord& chunk) {
    const Result<CorpusChunkSizes> sizes =
        ReadCorpusChunkSizes(files_, work_folder_, static_cast<std::int32_t>(chunk.chunk));
    if (!sizes.ok()) return sizes.status().message();
    return SizesFault(chunk, sizes->samples, sizes->tokens);
  }

  static std::string SizesFault(const ChunkRecord& chunk, std::int64_t samples, std::int64_t tokens) {
    if (samples == chunk.samples && tokens == chunk.tokens) return {};
    return "it holds " + std::to_string(samples) + " samples and " + std::to_string(tokens) + " tokens, recorded are " +
           std::to_string(chunk.samples) + " and " + std::to_string(chunk.tokens);
  }

  std::string CorpusBytesFault(const ChunkRecord& chunk) {
    const auto number = static_cast<std::int32_t>(chunk.chunk);
    // The samples first: a damaged one is named, which the digest of the file cannot do.
    const Result<CorpusChunk> corpus = ReadCorpusChunk(files_, work_folder_, number);
    if (!corpus.ok()) return corpus.status().message();
    const Result<PublishedFile> digest = DigestFile(files_, work_folder_, CorpusChunkPath(number));
    if (!digest.ok()) return digest.status().message();
    if (ToHex(digest->digest) != chunk.corpus_digest) {
      return "its digest is " + ToHex(digest->digest) + ", recorded is " + chunk.corpus_digest;
    }
    CountSupervised(corpus->chunk);
    return SizesFault(chunk, corpus->chunk.samples(), corpus->chunk.tokens());
  }

  void CountSupervised(const TokenizedChunk& chunk) {
    if (!frequencies_) return;
    for (std::size_t token = 0; token < chunk.input_ids.size(); ++token) {
      const auto id = static_cast<std::size_t>(chunk.input_ids[token]);
      if (chunk.loss_mask[token] == 0) continue;
      if (id < frequencies_->size()) {
        ++(*frequencies_)[id];
      } else {
        Fault({.target = VerifyTarget::kVocab,
               .file = "vocab/token_freq.npy",
               .message = "the corpus has token id " + std::to_string(id) + ", the file ends before it"});
        frequencies_.reset();
        return;
      }
    }
  }

  Status CheckShards(const ChunkRecord& chunk) {
    DRAFTMILL_ASSIGN_OR_RETURN(std::vector<SampleRecord> samples, state_.Samples(chunk.chunk));
    DRAFTMILL_ASSIGN_OR_RETURN(const std::string contradiction,
                               FindContradictionInSamples(state_.connection(), chunk, samples));
    if (!contradiction.empty()) StateFault(contradiction);
    if (chunk.shards == 0) return OkStatus();
    DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<ShardRecord> shards, state_.Shards(chunk.chunk));
    DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<BatchRecord> batches, state_.Batches(chunk.chunk));
    std::sort(samples.begin(), samples.end(),
              [](const SampleRecord& a, const SampleRecord& b) { return a.position < b.position; });
    for (const ShardRecord& shard : shards) {
      if (shard.state == ShardState::kDiscarded) {
        ++report_.discarded_shards;
        discarded_[shard.file] = {shard.bytes, shard.digest};
        continue;
      }
      if (shard.state != ShardState::kPublished) {
        ++report_.unfinished_shards;
        if (!shard.file.empty()) known_files_.insert(shard.file);
        continue;
      }
      CheckShard(chunk, shard, batches, samples);
    }
    return OkStatus();
  }

  void CheckShard(const ChunkRecord& chunk, const ShardRecord& shard, const std::vector<BatchRecord>& batches,
                  const std::vector<SampleRecord>& samples) {
    expected_[shard.file] = {shard.bytes, shard.digest};
    VerifyFault fault{.target = VerifyTarget::kShard, .file = shard.file, .chunk = chunk.chunk, .shard = shard.shard};
    fault.message = SizeFault(shard.file, shard.bytes);
    if (!fault.message.empty()) return Fault(std::move(fault));
    Result<ShardReader> reader = ShardReader::Open(files_, JoinPath(work_folder_, shard.file));
    if (!reader.ok()) {
      fault.message = reader.status().message();
      return Fault(std::move(fault));
    }
    fault.message = ShardRowsFault(*reader, chunk, shard, samples);
    if (!fault.message.empty()) return Fault(std::move(fault));
    if (is_deep_) CheckShardBytes(*reader, shard, batches, std::move(fault));
  }

  /// Where header and side tensors contradict the rows.
  static std::string ShardRowsFault(const ShardReader& reader, const ChunkRecord& chunk, const ShardRecord& shard,
                                    const std::vector<SampleRecord>& samples) {
    const ShardContents& contents = reader.contents();
    if (contents.chunk != chunk.chunk || contents.shard != shard.shard) {
      return "it says it is shard " + std::to_string(contents.shard) + " of chunk " + std::to_string(contents.chunk);
    }
    const auto metadata = [&](std::string_view key) {
      const auto& entries = reader.metadata();
      const auto found = std::find_if(entries.begin(), entries.end(), [&](const auto& e) { return e.first == key; });
      return found == entries.end() ? std::string() : found->second;
    };
    if (metadata("plan_hash") != chunk.plan_hash) return "it was made under another plan of the chunk";
    if (metadata("extract_fingerprint") != shard.fingerprint) return "its extract fingerprint is not the recorded one";
    if (contents.tokens() != shard.tokens || contents.samples() != shard.samples ||
        contents.batches() != shard.batches) {
      return "it holds " + std::to_string(contents.samples()) + " samples, " + std::to_string(contents.tokens()) +
             " tokens and " + std::to_string(contents.batches()) + " batches, recorded are " +
             std::to_string(shard.samples) + ", " + std::to_string(shard.tokens) + " and " +
             std::to_string(shard.batches);
    }
    const auto bad = std::count_if(contents.sample_state.begin(), contents.sample_state.end(),
                                   [](std::uint8_t state) { return state != 0; });
    if (bad != shard.quarantined) {
      return "it holds " + std::to_string(bad) + " quarantined samples, recorded are " +
             std::to_string(shard.quarantined);
    }
    return SampleOrderFault(contents, shard, samples);
  }

  static std::string SampleOrderFault(const ShardContents& contents, const ShardRecord& shard,
                                      const std::vector<SampleRecord>& samples) {
    std::int64_t at = 0;
    for (const SampleRecord& sample : samples) {
      if (sample.batch < shard.first_batch || sample.batch >= shard.first_batch + shard.batches) continue;
      const std::string name = "sample " + std::to_string(sample.sample_id) + "/" + std::to_string(sample.variant);
      if (at >= contents.samples() || contents.key(at).sample_id != sample.sample_id ||
          contents.key(at).variant != sample.variant) {
        return "place " + std::to_string(at) + " does not hold " + name;
      }
      const auto i = static_cast<std::size_t>(at++);
      if (contents.cu_seqlens[i + 1] - contents.cu_seqlens[i] != sample.tokens) {
        return name + " has " + std::to_string(contents.cu_seqlens[i + 1] - contents.cu_seqlens[i]) +
               " tokens, recorded are " + std::to_string(sample.tokens);
      }
    }
    return {};
  }

  /// All digests. Damage within batches costs those batches, damage outside of them the shard.
  void CheckShardBytes(ShardReader& reader, const ShardRecord& shard, const std::vector<BatchRecord>& batches,
                       VerifyFault fault) {
    const Result<ShardCheck> check = reader.CheckBytes();
    if (!check.ok()) {
      fault.message = check.status().message();
      return Fault(std::move(fault));
    }
    std::set<std::int64_t> damaged;
    for (const BatchRecord& batch : batches) {
      if (batch.shard != shard.shard) continue;
      const auto i = static_cast<std::size_t>(batch.batch - shard.first_batch);
      if (i >= check->batch_digests.size() || ToHex(check->batch_digests[i]) != batch.digest)
        damaged.insert(batch.batch);
    }
    const ShardContents& contents = reader.contents();
    std::string names;
    for (const std::int64_t sample : check->damaged_samples) {
      const auto after = std::upper_bound(contents.batch_offsets.begin(), contents.batch_offsets.end(), sample);
      damaged.insert(shard.first_batch + (after - contents.batch_offsets.begin()) - 1);
      const SampleKey key = contents.key(sample);
      names += (names.empty() ? "" : ", ") + std::to_string(key.sample_id) + "/" + std::to_string(key.variant);
    }
    if (damaged.empty() && ToHex(check->digest) == shard.digest) return;
    if (damaged.empty()) {
      fault.message = "its digest is " + ToHex(check->digest) + ", recorded is " + shard.digest;
      return Fault(std::move(fault));
    }
    fault.target = VerifyTarget::kBatches;
    fault.batches.assign(damaged.begin(), damaged.end());
    fault.message = names.empty() ? "bytes of " + std::to_string(damaged.size()) + " batches are not those recorded"
                                  : "damaged samples: " + names;
    Fault(std::move(fault));
  }

  void CheckVocab() {
    const Result<VocabMap> map = ReadVocab(files_, work_folder_);
    if (!map.ok()) {
      const bool missing = map.status().code() == StatusCode::kNotFound;
      return Fault(
          {.target = VerifyTarget::kVocab,
           .file = "vocab",
           .message = missing ? "a file of the folder is missing: " + map.status().message() : map.status().message()});
    }
    token_freq_ = map->token_freq;
    // The counts can be compared only where all chunks are read.
    if (options_.deep && options_.first_deep_chunk == 0) frequencies_.emplace(token_freq_.size(), 0);
    for (const char* name : kVocabFiles) {
      const Result<PublishedFile> file = DigestFile(files_, work_folder_, name);
      if (!file.ok()) continue;  // a folder without a map lacks two of them
      Looked(file->bytes);
      expected_[name] = {file->bytes, ToHex(file->digest)};
    }
  }

  /// Deep: the frequencies of the map are those of the corpus.
  void CompareFrequencies() {
    if (!frequencies_ || *frequencies_ == token_freq_) return;
    Fault({.target = VerifyTarget::kVocab,
           .file = "vocab/token_freq.npy",
           .message = "its counts are not those of the supervised tokens in corpus/"});
  }

  /// The small files whose digests stand among the facts, where what they say is final.
  Status CheckRecordedFiles() {
    DRAFTMILL_ASSIGN_OR_RETURN(sqlite::Statement facts,
                               state_.connection().Prepare("SELECT name, value FROM facts WHERE name GLOB 'digest.*' "
                                                           "AND value <> '' ORDER BY name"));
    for (;;) {
      DRAFTMILL_ASSIGN_OR_RETURN(const bool found, facts.Step());
      if (!found) return OkStatus();
      const std::string file = facts.Text(0).substr(kFactDigestPrefix.size());
      const std::optional<VerifyTarget> target = TargetOf(file);
      if (target) CheckRecordedFile(file, *target, facts.Text(1));
    }
  }

  /// What a recorded file belongs to; nothing where a run has not come to its end yet.
  std::optional<VerifyTarget> TargetOf(const std::string& file) const {
    if (file.starts_with("ingested/")) return ingest_is_done_ ? std::optional(VerifyTarget::kIngested) : std::nullopt;
    if (file.starts_with("vocab/")) return vocab_is_done_ ? std::optional(VerifyTarget::kVocab) : std::nullopt;
    if (file == "manifest.json") return std::nullopt;  // CheckManifest has more to say
    return all_done_ ? std::optional(VerifyTarget::kRunFile) : std::nullopt;
  }

  void CheckRecordedFile(const std::string& file, VerifyTarget target, const std::string& digest) {
    VerifyFault fault{.target = target, .file = file};
    const Result<PublishedFile> found = DigestFile(files_, work_folder_, file);
    if (found.ok() && !expected_.contains(file)) Looked(found->bytes);  // the vocabulary was looked at before
    if (found.status().code() == StatusCode::kNotFound) {
      fault.message = "the file is missing";
    } else if (!found.ok()) {
      fault.message = found.status().message();
    } else if (ToHex(found->digest) != digest) {
      fault.message = "its digest is " + ToHex(found->digest) + ", recorded is " + digest;
    }
    if (!fault.message.empty()) Fault(std::move(fault));
  }

  void CheckManifest() {
    VerifyFault fault{.target = VerifyTarget::kManifest, .file = "manifest.json"};
    const Result<Manifest> manifest = ReadManifest(files_, work_folder_);
    if (manifest.status().code() == StatusCode::kNotFound) {
      if (!all_done_ || report_.unfinished_shards > 0) return;
      fault.message = "the run is complete, but the file is missing";
      return Fault(std::move(fault));
    }
    if (!manifest.ok()) {
      fault.message = manifest.status().message();
      return Fault(std::move(fault));
    }
    Looked(static_cast<std::int64_t>(ManifestText(*manifest).size()));
    fault.message = ManifestFault(*manifest);
    const Result<std::optional<std::string>> digest = state_.Fact(std::string(kFactDigestPrefix) + fault.file);
    const Result<PublishedFile> file = DigestFile(files_, work_folder_, fault.file);
    if (fault.message.empty() && digest.ok() && *digest && file.ok() && ToHex(file->digest) != **digest) {
      fault.message = "its digest is " + ToHex(file->digest) + ", recorded is " + **digest;
    }
    if (!fault.message.empty()) Fault(std::move(fault));
  }

  std::string ManifestFault(const Manifest& manifest) const {
    std::vector<PublishedFile> listed = manifest.vocab;
    for (const ManifestEntry& entry : manifest.corpus) listed.push_back(entry.file);
    for (const ManifestEntry& entry : manifest.shards) listed.push_back(entry.file);
    std::vector<PublishedFile> discarded;
    for (const ManifestEntry& entry : manifest.discarded_shards) discarded.push_back(entry.file);
    std::string fault = ListFault(listed, expected_, "published");
    return fault.empty() ? ListFault(discarded, discarded_, "discarded") : fault;
  }

  static std::string ListFault(const std::vector<PublishedFile>& listed, const ExpectedFiles& recorded,
                               const std::string& what) {
    for (const PublishedFile& file : listed) {
      const auto row = recorded.find(file.path);
      if (row == recorded.end()) return "it lists " + file.path + ", which is not " + what;
      if (row->second.bytes != file.bytes || row->second.digest != ToHex(file.digest)) {
        return "what it says of " + file.path + " is not what is recorded or found";
      }
    }
    if (listed.size() == recorded.size()) return {};
    return "it lists " + std::to_string(listed.size()) + " files, " + what + " are " + std::to_string(recorded.size());
  }

  void FindUnknownFiles() {
    for (const char* name : {"ingested.partial", "vocab.partial", "vocab.old", "manifest.json.partial",
                             "run.json.partial", "pipeline.yaml.partial"}) {
      if (files_.Exists(JoinPath(work_folder_, name))) {
        report_.notes.push_back(std::string(name) +
                                ": left by a run that was interrupted; the next run clears it away");
      }
    }
    ListUnknown("corpus");
    const Result<std::vector<FileInfo>> folders = files_.List(JoinPath(work_folder_, "shards"));
    if (!folders.ok()) return;
    for (const FileInfo& folder : *folders) {
      if (folder.is_folder) ListUnknown("shards/" + folder.name);
    }
  }

  void ListUnknown(const std::string& folder) {
    const Result<std::vector<FileInfo>> entries = files_.List(JoinPath(work_folder_, folder));
    if (!entries.ok()) return;
    for (const FileInfo& entry : *entries) {
      const std::string file = JoinPath(folder, entry.name);
      if (expected_.contains(file) || known_files_.contains(file)) continue;
      report_.notes.push_back(file + UnknownNote(file));
    }
  }

  std::string UnknownNote(const std::string& file) const {
    if (discarded_.contains(file)) return ": recorded as discarded; the next run deletes it";
    if (file.ends_with(".partial")) return ": not complete; the next run goes on with it";
    return ": no row speaks of it; the next run decides";
  }

  FileSystem& files_;
  StateReader& state_;
  const std::string work_folder_;
  const VerifyOptions& options_;
  VerifyReport report_;
  bool is_deep_ = false;  ///< the chunk that is looked at
  bool all_done_ = false;
  bool ingest_is_done_ = false;
  bool vocab_is_done_ = false;
  std::vector<std::int64_t> token_freq_;
  std::optional<std::vector<std::int64_t>> frequencies_;  ///< of the corpus, while all of it is known
  ExpectedFiles expected_;                                ///< published files by their path
  ExpectedFiles discarded_;                               ///< what files that were deleted on purpose had been
  std::set<std::string> known_files_;                     ///< of shards that wait to be replaced
};

}  // namespace

Result<std::int64_t> BytesToVerify(FileSystem& files, StateReader& state, const std::string& work_folder) {
  std::int64_t bytes = 0;
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<ChunkRecord> chunks, state.Chunks());
  for (const ChunkRecord& chunk : chunks) bytes += chunk.bytes + chunk.corpus_bytes + chunk.published_bytes;
  DRAFTMILL_ASSIGN_OR_RETURN(const ShardStateCount discarded, state.DiscardedShards());
  bytes -= discarded.bytes;
  DRAFTMILL_ASSIGN_OR_RETURN(
      sqlite::Statement recorded,
      state.connection().Prepare("SELECT name FROM facts WHERE name GLOB 'digest.*' AND value <> ''"));
  for (;;) {
    DRAFTMILL_ASSIGN_OR_RETURN(const bool found, recorded.Step());
    if (!found) return bytes;
    const Result<FileInfo> info = files.Stat(JoinPath(work_folder, recorded.Text(0).substr(kFactDigestPrefix.size())));
    if (info.ok()) bytes += info->size_bytes;
  }
}

Result<VerifyReport> VerifyWork(FileSystem& files, StateReader& state, const std::string& work_folder,
                                const VerifyOptions& options) {
  return Verifier(files, state, work_folder, options).Run();
}

}  // namespace draftmill

// The part of verify.h about what was found: marking it as work, telling people and programs of it.
#include <algorithm>
#include <utility>

#include "base/shell_word.h"
#include "formats/manifest.h"
#include "pipeline/verify/verify.h"
#include "state/fingerprint.h"

namespace draftmill {
namespace {

bool HasStateFault(const VerifyReport& report) {
  return std::any_of(report.faults.begin(), report.faults.end(),
                     [](const VerifyFault& fault) { return fault.target == VerifyTarget::kState; });
}

}  // namespace

std::string_view VerifyTargetName(VerifyTarget target) {
  switch (target) {
    case VerifyTarget::kIngestedChunk: return "ingested chunk";
    case VerifyTarget::kCorpusChunk: return "corpus chunk";
    case VerifyTarget::kBatches: return "batches";
    case VerifyTarget::kShard: return "shard";
    case VerifyTarget::kVocab: return "vocabulary map";
    case VerifyTarget::kManifest: return "manifest";
    case VerifyTarget::kIngested: return "ingested rows";
    case VerifyTarget::kState: return "state database";
    case VerifyTarget::kRunFile: return "description of the run";
  }
  return "file";
}

Status MarkDamage(FileSystem& files, const std::string& work_folder, StateWriter& state, const VerifyReport& report) {
  if (HasStateFault(report)) return OkStatus();  // it will be made anew from the files
  const auto is_marked = [](const VerifyFault& fault) { return fault.no_repair.empty() && !fault.is_forbidden; };
  if (std::none_of(report.faults.begin(), report.faults.end(), is_marked)) return OkStatus();
  DRAFTMILL_RETURN_IF_ERROR(RemoveManifest(files, work_folder));
  for (const VerifyFault& fault : report.faults) {
    if (!is_marked(fault)) continue;
    switch (fault.target) {
      case VerifyTarget::kIngestedChunk: state.MarkIngestedDamaged(fault.chunk); break;
      case VerifyTarget::kCorpusChunk: state.MarkCorpusDamaged(fault.chunk); break;
      case VerifyTarget::kBatches: state.MarkBatchesDamaged(fault.chunk, fault.batches); break;
      case VerifyTarget::kShard: state.MarkShardDamaged(fault.chunk, fault.shard); break;
      case VerifyTarget::kVocab: state.SetStageState("vocab_map", StageState::kStale); break;
      case VerifyTarget::kIngested: state.SetStageState("ingest", StageState::kStale); break;
      case VerifyTarget::kManifest:
      case VerifyTarget::kState:
      case VerifyTarget::kRunFile: break;  // the next run writes what is not as it should be
    }
  }
  return state.Flush();
}

Status CheckSourcesOfFaults(FileSystem& files, StateReader& state, const std::string& config_folder,
                            VerifyReport& report) {
  const auto is_of_ingest = [](const VerifyFault& fault) {
    return fault.target == VerifyTarget::kIngested || fault.target == VerifyTarget::kIngestedChunk;
  };
  if (std::none_of(report.faults.begin(), report.faults.end(), is_of_ingest)) return OkStatus();
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<SourceRecord> sources, state.Sources());
  std::string reason;
  for (const SourceRecord& source : sources) {
    const std::string path = source.path.starts_with('/') ? source.path : JoinPath(config_folder, source.path);
    const Result<FileDigest> found = HashFile(files, path);
    if (found.ok() && ToHex(found->hash) == source.content_hash) continue;
    reason = found.ok() ? "its source " + path + " has another content now" : found.status().message();
    break;
  }
  for (VerifyFault& fault : report.faults) {
    if (is_of_ingest(fault)) fault.no_repair = reason;
  }
  return OkStatus();
}

std::string VerifyAdvice(const VerifyReport& report, const std::string& target, bool is_marked) {
  if (report.ok()) return {};
  const std::string named = ShellWord(target);
  const std::string run = "`draftmill run " + named + "`";
  if (HasStateFault(report)) {
    return "state.db contradicts itself, so nothing was marked by it. The files are not touched by this: `draftmill " +
           ("state " + named) + " rebuild` moves it aside and makes it again from them, then " + run +
           " keeps what is whole and right and makes the rest again.";
  }
  for (const VerifyFault& fault : report.faults) {
    if (!fault.is_forbidden) continue;
    return fault.file +
           " may not be read by this user, so nothing is known of it, and it was not marked as damaged. Give the "
           "user who runs draftmill the right to it, then verify again" +
           (report.faults.size() > 1 ? "; other faults are listed above" : "");
  }
  for (const VerifyFault& fault : report.faults) {
    if (fault.no_repair.empty()) continue;
    return fault.file + " cannot be made again: " + fault.no_repair +
           ". What was made of it stands and stays usable. Put the source back as it was, or restore the file from a "
           "backup, "
           "then verify again" +
           (report.faults.size() > 1 ? "; other faults are listed above" : "");
  }
  if (is_marked)
    return "What is damaged is marked as work: " + run + " makes it again. Everything else is as it was recorded.";
  const std::string mark = "Everything else is as it was recorded. `draftmill verify " + named +
                           " --repair` marks what is damaged as work, then " + run + " makes it again.";
  return report.deep ? mark : mark + " `--deep` reads every byte and says which samples are affected.";
}

json::Value VerifyReportJson(const VerifyReport& report) {
  json::Array faults;
  for (const VerifyFault& fault : report.faults) {
    json::Object object{{"target", VerifyTargetName(fault.target)}, {"file", fault.file}, {"message", fault.message}};
    if (fault.chunk >= 0) object.emplace_back("chunk", fault.chunk);
    if (fault.shard >= 0) object.emplace_back("shard", fault.shard);
    json::Array batches;
    for (const std::int64_t batch : fault.batches) batches.emplace_back(batch);
    if (!batches.empty()) object.emplace_back("batches", std::move(batches));
    if (!fault.no_repair.empty()) object.emplace_back("no_repair", fault.no_repair);
    if (fault.is_forbidden) object.emplace_back("forbidden", true);
    faults.emplace_back(std::move(object));
  }
  json::Array notes;
  for (const std::string& note : report.notes) notes.emplace_back(note);
  json::Object facts{{"ok", report.ok()},
                     {"deep", report.deep},
                     {"files", report.files},
                     {"bytes", report.bytes},
                     {"unfinished_shards", report.unfinished_shards},
                     {"discarded_shards", report.discarded_shards}};
  if (report.discarded_shards > 0) {
    facts.emplace_back("not_checked", DiscardedShardsNote(report.discarded_shards) +
                                          ". Of these shards only what state.db and manifest.json say was compared");
  }
  facts.emplace_back("faults", std::move(faults));
  facts.emplace_back("notes", std::move(notes));
  return facts;
}

}  // namespace draftmill

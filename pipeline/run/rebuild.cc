#include "pipeline/run/rebuild.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "formats/shard_reader.h"
#include "pipeline/config/config.h"
#include "pipeline/exit_status.h"
#include "pipeline/run/ingest_step.h"
#include "pipeline/run/run_facts.h"
#include "pipeline/run/stored_facts.h"
#include "stages/stage_spec.h"
#include "state/consistency.h"
#include "state/run_lock.h"
#include "state/schema.h"
#include "state/state_place.h"
#include "state/state_reader.h"

namespace draftmill {
namespace {

/// The number of the stage's code that the fingerprint was made with.
std::int64_t CodeVersion(const Fingerprint& fingerprint) {
  std::int64_t version = 0;
  for (const FingerprintPart& part : fingerprint.parts()) {
    if (part.name == "code version") std::from_chars(part.value.data(), part.value.data() + part.value.size(), version);
  }
  return version;
}

/// The numerics environment of the first shard that says one; empty where none does.
std::string NumericsOfShards(FileSystem& files, const std::string& work_folder) {
  const Result<std::vector<FileInfo>> folders = files.List(JoinPath(work_folder, "shards"));
  if (!folders.ok()) return "";
  for (const FileInfo& folder : *folders) {
    const std::string path = JoinPath(JoinPath(work_folder, "shards"), folder.name);
    const Result<std::vector<FileInfo>> shards = files.List(path);
    if (!shards.ok()) continue;
    for (const FileInfo& shard : *shards) {
      if (!shard.name.ends_with(".safetensors")) continue;
      Result<ShardReader> reader = ShardReader::Open(files, JoinPath(path, shard.name));
      if (!reader.ok()) continue;
      for (const auto& [name, value] : reader->metadata()) {
        if (name == "numerics_environment") return value;
      }
    }
  }
  return "";
}

/// What only run.json says; without it there is a way that needs the sources.
Result<RunFacts> FactsToRebuildFrom(FileSystem& files, const std::string& work_folder) {
  Result<RunFacts> facts = ReadRunFacts(files, work_folder);
  if (facts.ok()) return facts;
  return Status(facts.status().code(),
                facts.status().message() +
                    ". Nothing was changed. Where no backup has the file, move state.db away: `draftmill run` with the "
                    "pipeline file then reads the sources again and keeps the shards that are whole and right");
}

/// Whether another version of draftmill wrote it: whole then, and not for this program to judge.
bool IsOfAnotherVersion(const std::string& path) {
  Result<sqlite::Connection> connection = sqlite::Connection::Open(path, sqlite::Access::kReadOnly);
  if (!connection.ok()) return false;
  const Result<std::int64_t> application = connection->QueryInteger("PRAGMA application_id");
  const Result<std::int64_t> version = connection->QueryInteger("PRAGMA user_version");
  return application.ok() && *application == kStateApplicationId && version.ok() && *version > 0 &&
         *version != SchemaVersion();
}

/// Whether it can be read to the end and its rows agree with each other.
bool IsWhole(StateReader& state) {
  const Result<std::string> finding = state.connection().QueryText("PRAGMA quick_check(1)");
  if (!finding.ok() || *finding != "ok") return false;
  const Result<std::string> contradiction = FindContradiction(state.connection());
  const Result<std::vector<ChunkRecord>> chunks = state.Chunks();
  if (!contradiction.ok() || !contradiction->empty() || !chunks.ok()) return false;
  return std::all_of(chunks->begin(), chunks->end(), [&](const ChunkRecord& chunk) {
    const Result<std::vector<SampleRecord>> samples = state.Samples(chunk.chunk);
    if (!samples.ok()) return false;
    const Result<std::string> found = FindContradictionInSamples(state.connection(), chunk, *samples);
    return found.ok() && found->empty();
  });
}

/// Makes room for a new database; one that can be read and agrees with itself stays.
Status MoveDamagedAway(FileSystem& files, const std::string& work_folder) {
  const std::string path = StateDatabasePath(work_folder);
  {
    Result<StateReader> state = StateReader::Open(work_folder, files);
    if (state.status().code() == StatusCode::kNotFound) return OkStatus();
    if (!state.ok() && IsOfAnotherVersion(path)) return state.status();
    if (state.ok() && IsWhole(*state)) {
      return Conflict(path +
                      " can be read and agrees with itself, so there is nothing to rebuild. Nothing was changed. To "
                      "have it made again all "
                      "the same, move it away first");
    }
  }
  for (const char* suffix : {"", "-wal", "-journal"}) {
    if (!files.Exists(path + suffix)) continue;
    DRAFTMILL_RETURN_IF_ERROR(files.Rename(path + suffix, path + ".damaged" + suffix));
  }
  DRAFTMILL_RETURN_IF_ERROR(files.Remove(path + "-shm"));
  return files.SyncFolder(work_folder);
}

/// A run that only says where the database came from, so that `status` has something to show.
Status RecordRun(const std::string& program_version, Clock& clock, StateWriter& state) {
  RunRecord run;
  const LockOwner owner = ThisProcess(clock);
  run.host = owner.host;
  run.boot_id = owner.boot_id;
  run.pid = owner.pid;
  run.program_version = program_version;
  run.parameters = "{}";
  DRAFTMILL_RETURN_IF_ERROR(state.BeginRun(std::move(run)).status());
  state.AddEvent(EventLevel::kInfo, "state.db was made again from the files of the work folder");
  return state.Wait(state.FinishRun(kExitRunAgain, ""));
}

}  // namespace

Result<json::Value> RebuildState(FileSystem& files, Clock& clock, const std::string& work_folder,
                                 const std::string& program_version) {
  // Everything is read before anything is moved.
  const Result<IngestSummary> summary = ReadIngestSummary(files, work_folder);
  if (summary.status().code() == StatusCode::kNotFound) {
    return NotFound("there is no finished ingest in " + work_folder +
                    " to rebuild from (no ingested/index.json). "
                    "`draftmill run` starts from the sources and keeps the shards that are whole and right");
  }
  if (!summary.ok()) return summary.status();
  DRAFTMILL_ASSIGN_OR_RETURN(const RunFacts run, FactsToRebuildFrom(files, work_folder));
  DRAFTMILL_RETURN_IF_ERROR(PlaceState(files, work_folder, std::nullopt));
  DRAFTMILL_RETURN_IF_ERROR(MoveDamagedAway(files, work_folder));

  DRAFTMILL_ASSIGN_OR_RETURN(const std::unique_ptr<StateWriter> state,
                             StateWriter::Open(work_folder, {.create = true, .files = &files, .clock = &clock}));
  std::vector<std::string> names;
  for (const StageSpec* spec : AllStages()) names.push_back(spec->name);
  state->DeclareStages(names);
  for (const auto& [stage, fingerprint] : run.fingerprints)
    state->SetFingerprint(stage, CodeVersion(fingerprint), fingerprint);
  if (run.plan.batch_tokens > 0 && run.plan.block_tokens > 0) StoreSizes(*state, run.plan);
  const std::string numerics = NumericsOfShards(files, work_folder);
  if (!numerics.empty()) state->SetFact(std::string(kFactNumerics), numerics);
  DRAFTMILL_RETURN_IF_ERROR(RecordIngested(files, work_folder, *summary, *state));
  DRAFTMILL_RETURN_IF_ERROR(RecordRun(program_version, clock, *state));
  DRAFTMILL_RETURN_IF_ERROR(state->Close());
  const auto write = run.fingerprints.find("write");
  const bool was_discarding = write != run.fingerprints.end() && write->second.Has(kDiscardPart);
  return json::Value(json::Object{
      {"work", work_folder},
      {"sources", static_cast<std::int64_t>(summary->sources.size())},
      {"chunks", static_cast<std::int64_t>(summary->chunks.size())},
      {"conversations", summary->kept()},
      {"rejected", summary->rejected()},
      {"next",
       std::string("`draftmill run` tokenizes the ingested rows again, keeps every shard that is whole and right, and "
                   "computes what is missing") +
           (was_discarding ? ". Shards that write.discard_after_publish had deleted are missing, too" : "")}});
}

}  // namespace draftmill

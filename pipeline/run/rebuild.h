// `draftmill state TARGET rebuild`: makes a lost or damaged state.db again from the files of the work folder alone.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(const json::Value facts, RebuildState(files, clock, work_folder, {}));
//
// From ingested/ come sources, conversations, chunks and refused rows, from run.json the fingerprints of the stages with
// their parts and the sizes that `auto` was resolved to, from a shard the numerics environment. Sources are not read: they
// may be gone. The next run then tokenizes the ingested rows again (text alone, to the same bytes), keeps every shard that
// is whole and right, and computes what is missing: the database is then equal to the lost one in all but runs, events,
// times and rates.
//
// A database that can be read and whose rows agree with each other is not replaced, nor one of another version of draftmill
// (kConflict); any other is moved aside as state.db.damaged. Errors
// change nothing else: kNotFound where ingested/ holds no finished ingest, kCorrupt where one of its files is damaged. The
// caller holds the run lock. One thread.
#pragma once

#include <string>

#include "base/json.h"
#include "base/status.h"
#include "state/file_system.h"

namespace draftmill {

/// Returns what was found, for people and programs.
Result<json::Value> RebuildState(FileSystem& files, Clock& clock, const std::string& work_folder,
                                 const std::string& program_version);

}  // namespace draftmill

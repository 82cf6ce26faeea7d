// Whether the rows of state.db agree with each other. What SQLite checks is the form of its file; a bit that flipped in a
// value, or a row that somebody edited, is well formed.
//
// Plain functions on an open database. The result names the first contradiction, for people; empty where there is none.
// Errors are those of SQLite (kCorrupt where the file itself is damaged). Threads: as the connection.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "state/sqlite.h"
#include "state/state_records.h"

namespace draftmill {

/// Chunks, batches and shards: numbers that follow one another, counters that are the sums of their rows, digests where
/// something is said to stand, no figure out of all bounds. Reads no row of a sample: a moment, whatever the size.
Result<std::string> FindContradiction(sqlite::Connection& connection);

/// The same of what a chunk's conversations and planned samples say: `samples` are those of the chunk.
Result<std::string> FindContradictionInSamples(sqlite::Connection& connection, const ChunkRecord& chunk,
                                               const std::vector<SampleRecord>& samples);

/// Whether a failure says that the database itself is damaged, and not a file that it speaks of.
bool SaysThatStateIsDamaged(const Status& status);

}  // namespace draftmill

#include "pipeline/testing/state_facts.h"

#include <array>
#include <sstream>

#include "base/hash.h"
#include "state/state_reader.h"

namespace draftmill {
namespace {

struct Query {
  const char* table;
  const char* sql;
};

constexpr std::array kQueries = {
    Query{"stages", "SELECT stage, state, version, fingerprint FROM stages ORDER BY position"},
    Query{"fingerprint_parts", "SELECT * FROM fingerprint_parts ORDER BY stage, position"},
    Query{"facts", "SELECT * FROM facts WHERE name <> 'written_at' ORDER BY name"},
    Query{"sources",
          "SELECT source, epoch, path, format, bytes, content_hash, rows, kept, duplicates, rejected, not_taken FROM "
          "sources "
          "ORDER BY source"},
    Query{"conversations", "SELECT * FROM conversations ORDER BY sample_id"},
    Query{"chunks", "SELECT * FROM chunks ORDER BY chunk"},
    Query{"plans", "SELECT * FROM plans ORDER BY chunk"},
    Query{"samples", "SELECT * FROM samples ORDER BY sample_id, variant"},
    Query{"batches",
          "SELECT chunk, batch, block, shard, samples, tokens, bytes, state, digest, quarantined FROM batches "
          "ORDER BY chunk, batch"},
    Query{"shards",
          "SELECT chunk, shard, first_batch, batches, samples, tokens, state, file, bytes, digest, quarantined, "
          "fingerprint, "
          "numerics FROM shards ORDER BY chunk, shard"},
    Query{"failures",
          "SELECT stage, reason, message, source, row, line, byte_offset, sample_id, variant, chunk FROM failures "
          "ORDER BY stage, source, row, sample_id, variant, reason"}};

std::string ValueOf(const sqlite::Statement& row, int column) {
  if (row.IsNull(column)) return "-";
  return row.Text(column);
}

Status AddRows(sqlite::Connection& connection, const Query& query, std::string& text) {
  DRAFTMILL_ASSIGN_OR_RETURN(sqlite::Statement rows, connection.Prepare(query.sql));
  for (;;) {
    DRAFTMILL_ASSIGN_OR_RETURN(const bool found, rows.Step());
    if (!found) return OkStatus();
    text += query.table;
    for (int column = 0; column < rows.columns(); ++column)
      text += " " + rows.ColumnName(column) + "=" + ValueOf(rows, column);
    text += "\n";
  }
}

}  // namespace

std::string StateFacts(const std::string& work_folder) {
  Result<StateReader> state = StateReader::Open(work_folder);
  if (!state.ok()) return state.status().message();
  std::string text;
  for (const Query& query : kQueries) {
    if (const Status status = AddRows(state->connection(), query, text); !status.ok()) return status.message();
  }
  return text;
}

std::string FirstDifference(const std::string& expected, const std::string& found) {
  std::istringstream expected_lines(expected);
  std::istringstream found_lines(found);
  for (;;) {
    std::string one;
    std::string other;
    const bool more_expected = static_cast<bool>(std::getline(expected_lines, one));
    const bool more_found = static_cast<bool>(std::getline(found_lines, other));
    if (!more_expected && !more_found) return "";
    if (one != other) return "expected <" + one + ">, found <" + other + ">";
  }
}

}  // namespace draftmill

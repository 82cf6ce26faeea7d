#include "state/consistency.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace draftmill {
namespace {

/// A query that finds rows which contradict others: the chunk of the first.
struct Rule {
  std::string_view what;
  std::string_view sql;
};

/// Columns of a table that count or measure.
struct Figures {
  std::string_view what;
  std::string_view table;
  std::string_view columns;
};

constexpr Figures kFigures[] = {
    {"a figure of its row in chunks is out of bounds", "chunks",
     "chunk, epoch, first_sample, rows, bytes, samples, tokens, supervised_tokens, tokenize_failed, corpus_bytes, "
     "batches, "
     "shards"},
    {"a figure of a row in batches is out of bounds", "batches",
     "batch, block, shard, samples, tokens, bytes, quarantined"},
    {"a figure of a row in shards is out of bounds", "shards",
     "shard, first_batch, batches, samples, tokens, bytes, quarantined"},
};

/// 2^52: sums of figures below it stay below 2^63 for any number of rows that fits on a disk.
constexpr std::string_view kLargestFigure = "4503599627370496";

constexpr Rule kCounters[] = {
    {"its counters are not the sums of its batches", R"(
      SELECT c.chunk
      FROM chunks AS c
      LEFT JOIN (
        SELECT chunk, count(*) AS batches, sum(state = 'written') AS written,
               sum(iif(state = 'written', samples, 0)) AS samples, sum(iif(state = 'written', tokens, 0)) AS tokens,
               sum(iif(state = 'written', bytes, 0)) AS bytes,
               sum(iif(state = 'written', quarantined, 0)) AS quarantined
        FROM batches GROUP BY chunk) AS b ON b.chunk = c.chunk
      WHERE (c.batches, c.extracted_batches, c.extracted_samples, c.extracted_tokens, c.extracted_bytes, c.quarantined)
         <> (coalesce(b.batches, 0), coalesce(b.written, 0), coalesce(b.samples, 0), coalesce(b.tokens, 0),
             coalesce(b.bytes, 0), coalesce(b.quarantined, 0))
      LIMIT 1)"},
    {"its counters are not the sums of its shards", R"(
      SELECT c.chunk
      FROM chunks AS c
      LEFT JOIN (
        SELECT chunk, count(*) AS shards, count(*) FILTER (WHERE state IN ('published', 'discarded')) AS published,
               sum(samples) FILTER (WHERE state IN ('published', 'discarded')) AS samples,
               sum(tokens) FILTER (WHERE state IN ('published', 'discarded')) AS tokens,
               sum(bytes) FILTER (WHERE state IN ('published', 'discarded')) AS bytes
        FROM shards GROUP BY chunk) AS s ON s.chunk = c.chunk
      WHERE (c.shards, c.published_shards, c.published_samples, c.published_tokens, c.published_bytes)
         <> (coalesce(s.shards, 0), coalesce(s.published, 0), coalesce(s.samples, 0), coalesce(s.tokens, 0),
             coalesce(s.bytes, 0))
      LIMIT 1)"},
    {"a shard is not made of the batches that name it", R"(
      SELECT s.chunk
      FROM shards AS s
      LEFT JOIN (
        SELECT chunk, shard, min(batch) AS first_batch, count(*) AS batches, sum(samples) AS samples,
               sum(tokens) AS tokens
        FROM batches GROUP BY chunk, shard) AS b ON b.chunk = s.chunk AND b.shard = s.shard
      WHERE (s.first_batch, s.batches, s.samples, s.tokens)
         <> (coalesce(b.first_batch, -1), coalesce(b.batches, 0), coalesce(b.samples, 0), coalesce(b.tokens, 0))
      LIMIT 1)"},
    {"a shard is published without its file, size or digest", R"(
      SELECT chunk
      FROM shards
      WHERE state IN ('published', 'discarded')
        AND (bytes = 0 OR length(digest) <> 32
             OR file <> printf('shards/%06d/c%06d-s%03d.safetensors', chunk, chunk, shard))
      LIMIT 1)"},
    {"a batch is written without its digest",
     "SELECT chunk FROM batches WHERE state = 'written' AND length(digest) <> 32 LIMIT 1"},
    {"it is tokenized without the digest of its corpus",
     "SELECT chunk FROM chunks WHERE tokenized AND (length(corpus_digest) <> 32 OR corpus_bytes = 0) LIMIT 1"},
};

/// Only where ingest has ended: until then new chunks take the places of old ones, one after the other.
constexpr Rule kOrder[] = {
    {"chunks do not follow one another", R"(
      SELECT chunk
      FROM (SELECT chunk, first_sample, row_number() OVER by_chunk - 1 AS place,
                   coalesce(sum(rows) OVER (by_chunk ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
            FROM chunks WINDOW by_chunk AS (ORDER BY chunk))
      WHERE chunk <> place OR first_sample <> before
      LIMIT 1)"},
    {"it is ingested without its digest",
     "SELECT chunk FROM chunks WHERE ingested AND length(ingested_digest) <> 32 LIMIT 1"},
    {"shards are left of a chunk that there is not",
     "SELECT chunk FROM shards WHERE chunk NOT IN (SELECT chunk FROM chunks) LIMIT 1"},
    {"batches are left of a chunk that there is not",
     "SELECT chunk FROM batches WHERE chunk NOT IN (SELECT chunk FROM chunks) LIMIT 1"},
};

/// What the query finds to be broken; empty where it finds nothing.
Result<std::string> Broken(sqlite::Connection& connection, std::string_view what, std::string_view sql) {
  DRAFTMILL_ASSIGN_OR_RETURN(sqlite::Statement query, connection.Prepare(sql));
  DRAFTMILL_ASSIGN_OR_RETURN(const bool found, query.Step());
  if (!found) return std::string();
  return "of chunk " + std::to_string(query.Integer(0)) + ": " + std::string(what);
}

Result<std::string> FirstOutOfBounds(sqlite::Connection& connection) {
  for (const Figures& figures : kFigures) {
    const std::string columns(figures.columns);
    std::string sql = "SELECT chunk FROM " + std::string(figures.table) + " WHERE min(" + columns + ") < 0 OR max(" +
                      columns + ") > " + std::string(kLargestFigure) + " LIMIT 1";
    DRAFTMILL_ASSIGN_OR_RETURN(std::string broken, Broken(connection, figures.what, sql));
    if (!broken.empty()) return broken;
  }
  return std::string();
}

template <std::size_t kCount>
Result<std::string> FirstBroken(sqlite::Connection& connection, const Rule (&rules)[kCount]) {
  for (const Rule& rule : rules) {
    DRAFTMILL_ASSIGN_OR_RETURN(std::string broken, Broken(connection, rule.what, rule.sql));
    if (!broken.empty()) return broken;
  }
  return std::string();
}

}  // namespace

Result<std::string> FindContradiction(sqlite::Connection& connection) {
  DRAFTMILL_ASSIGN_OR_RETURN(std::string found, FirstOutOfBounds(connection));
  if (!found.empty()) return found;
  DRAFTMILL_ASSIGN_OR_RETURN(found, FirstBroken(connection, kCounters));
  if (!found.empty()) return found;
  DRAFTMILL_ASSIGN_OR_RETURN(
      const std::int64_t is_ingested,
      connection.QueryInteger("SELECT count(*) FROM stages WHERE stage = 'ingest' AND state IN ('done', 'stale')"));
  if (is_ingested == 0) return found;
  return FirstBroken(connection, kOrder);
}

bool SaysThatStateIsDamaged(const Status& status) {
  return status.code() == StatusCode::kCorrupt && status.message().find(sqlite::kDamagedAdvice) != std::string::npos;
}

Result<std::string> FindContradictionInSamples(sqlite::Connection& connection, const ChunkRecord& chunk,
                                               const std::vector<SampleRecord>& samples) {
  if (!chunk.ingested) return std::string();
  const std::string of_chunk = "of chunk " + std::to_string(chunk.chunk) + ": ";
  const std::int64_t end = chunk.first_sample + chunk.rows;
  DRAFTMILL_ASSIGN_OR_RETURN(
      sqlite::Statement query,
      connection.Prepare("SELECT count(*) FROM conversations WHERE sample_id >= ? AND sample_id < ? AND chunk = ?"));
  DRAFTMILL_RETURN_IF_ERROR(query.Bind(chunk.first_sample, end, chunk.chunk));
  DRAFTMILL_RETURN_IF_ERROR(query.Step().status());
  if (query.Integer(0) != chunk.rows) {
    return of_chunk + std::to_string(query.Integer(0)) + " conversations have its numbers, it has " +
           std::to_string(chunk.rows) + " rows";
  }
  if (!chunk.tokenized || chunk.plan_hash.empty()) return std::string();
  std::int64_t tokens = 0;
  for (const SampleRecord& sample : samples) {
    tokens += sample.tokens;
    if (sample.sample_id >= chunk.first_sample && sample.sample_id < end && sample.batch >= 0 &&
        sample.batch < chunk.batches) {
      continue;
    }
    return of_chunk + "sample " + std::to_string(sample.sample_id) + "/" + std::to_string(sample.variant) +
           " is none of its conversations or in none of its batches";
  }
  if (static_cast<std::int64_t>(samples.size()) == chunk.samples && tokens == chunk.tokens) return std::string();
  return of_chunk + std::to_string(samples.size()) + " samples have " + std::to_string(tokens) +
         " tokens, it is said to have " + std::to_string(chunk.samples) + " with " + std::to_string(chunk.tokens);
}

}  // namespace draftmill

#include "state/consistency.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

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
    {"a figure of a row in shards is out of bounds", "shards",
     "shard, first_batch, batches, samples, tokens, bytes, quarantined"},
};

/// 2^52: no disk holds as much, and sums of two such figures stay far below 2^63.
constexpr std::int64_t kLargestFigure = std::int64_t{1} << 52;

constexpr Rule kCounters[] = {
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
    {"a shard is published without its file, size or digest", R"(
      SELECT chunk
      FROM shards
      WHERE state IN ('published', 'discarded')
        AND (bytes = 0 OR length(digest) <> 32
             OR file <> printf('shards/%06d/c%06d-s%03d.safetensors', chunk, chunk, shard))
      LIMIT 1)"},
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
};

std::string OfChunk(std::int64_t chunk, std::string_view what) {
  return "of chunk " + std::to_string(chunk) + ": " + std::string(what);
}

/// What the query finds to be broken; empty where it finds nothing.
Result<std::string> Broken(sqlite::Connection& connection, std::string_view what, std::string_view sql) {
  DRAFTMILL_ASSIGN_OR_RETURN(sqlite::Statement query, connection.Prepare(sql));
  DRAFTMILL_ASSIGN_OR_RETURN(const bool found, query.Step());
  if (!found) return std::string();
  return OfChunk(query.Integer(0), what);
}

Result<std::string> FirstOutOfBounds(sqlite::Connection& connection) {
  for (const Figures& figures : kFigures) {
    const std::string columns(figures.columns);
    std::string sql = "SELECT chunk FROM " + std::string(figures.table) + " WHERE min(" + columns + ") < 0 OR max(" +
                      columns + ") > " + std::to_string(kLargestFigure) + " LIMIT 1";
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

/// The rows of a table in the order of their chunks, which is their first column.
class RowsByChunk {
 public:
  static constexpr std::int64_t kNoChunk = std::numeric_limits<std::int64_t>::max();

  static Result<RowsByChunk> Open(sqlite::Connection& connection, std::string_view sql) {
    RowsByChunk rows;
    DRAFTMILL_ASSIGN_OR_RETURN(rows.query_, connection.Prepare(sql));
    DRAFTMILL_RETURN_IF_ERROR(rows.Next());
    return rows;
  }
  /// The chunk of this row; kNoChunk behind the last one.
  std::int64_t chunk() const { return chunk_; }
  std::int64_t operator[](int column) const { return query_.Integer(column); }
  Status Next() {
    DRAFTMILL_ASSIGN_OR_RETURN(const bool has_row, query_.Step());
    chunk_ = has_row ? std::min(query_.Integer(0), kNoChunk - 1) : kNoChunk;
    return OkStatus();
  }

 private:
  sqlite::Statement query_;
  std::int64_t chunk_ = kNoChunk;
};

constexpr std::string_view kBatchesSql = R"(
    SELECT chunk, batch, block, shard, samples, tokens, bytes, quarantined, state = 'written', length(digest)
    FROM batches ORDER BY chunk, batch)";
enum BatchColumn { kBatch = 1, kBlock, kShard, kSamples, kTokens, kBytes, kQuarantined, kIsWritten, kDigestLength };

/// What batches add up to.
struct BatchTotals {
  std::int64_t first_batch = -1;
  std::int64_t batches = 0;
  std::int64_t samples = 0;
  std::int64_t tokens = 0;
  std::int64_t bytes = 0;
  std::int64_t quarantined = 0;

  /// False where a sum is more than any disk holds.
  bool Add(const RowsByChunk& batch) {
    if (batches == 0) first_batch = batch[kBatch];
    ++batches;
    samples += batch[kSamples];
    tokens += batch[kTokens];
    bytes += batch[kBytes];
    quarantined += batch[kQuarantined];
    return std::max({samples, tokens, bytes, quarantined}) <= kLargestFigure;
  }
};

/// The batches of one chunk.
struct ChunkBatches {
  std::int64_t batches = 0;
  BatchTotals written;
  std::map<std::int64_t, BatchTotals> by_shard;  ///< by the number of the shard that they name

  /// What is wrong with the batch itself; empty where nothing is.
  std::string_view Add(const RowsByChunk& batch) {
    constexpr std::int64_t kDigestLetters = 32;
    constexpr std::string_view kOutOfBounds = "a figure of a row in batches is out of bounds";
    for (int column = kBatch; column <= kQuarantined; ++column) {
      if (batch[column] < 0 || batch[column] > kLargestFigure) return kOutOfBounds;
    }
    ++batches;
    if (!by_shard[batch[kShard]].Add(batch)) return kOutOfBounds;
    if (batch[kIsWritten] == 0) return {};
    if (batch[kDigestLength] != kDigestLetters) return "a batch is written without its digest";
    return written.Add(batch) ? std::string_view() : kOutOfBounds;
  }
};

bool AreCounted(const RowsByChunk& chunk, const ChunkBatches& batches) {
  const BatchTotals& written = batches.written;
  return std::tuple(chunk[1], chunk[2], chunk[3], chunk[4], chunk[5], chunk[6]) ==
         std::tuple(batches.batches, written.batches, written.samples, written.tokens, written.bytes,
                    written.quarantined);
}

bool IsMadeOf(const RowsByChunk& shard, const ChunkBatches& batches) {
  const auto named = batches.by_shard.find(shard[1]);
  const BatchTotals totals = named == batches.by_shard.end() ? BatchTotals() : named->second;
  return std::tuple(shard[2], shard[3], shard[4], shard[5]) ==
         std::tuple(totals.first_batch, totals.batches, totals.samples, totals.tokens);
}

/// Chunks and shards against their batches. Each table is read once, side by side: of batches there are so many more that
/// a query for each rule would take most of a start's time.
Result<std::string> FirstWithOtherBatches(sqlite::Connection& connection, bool is_ingested) {
  DRAFTMILL_ASSIGN_OR_RETURN(RowsByChunk chunks, RowsByChunk::Open(connection, R"(
      SELECT chunk, batches, extracted_batches, extracted_samples, extracted_tokens, extracted_bytes, quarantined
      FROM chunks ORDER BY chunk)"));
  DRAFTMILL_ASSIGN_OR_RETURN(
      RowsByChunk shards,
      RowsByChunk::Open(
          connection, "SELECT chunk, shard, first_batch, batches, samples, tokens FROM shards ORDER BY chunk, shard"));
  DRAFTMILL_ASSIGN_OR_RETURN(RowsByChunk batches, RowsByChunk::Open(connection, kBatchesSql));
  for (;;) {
    const std::int64_t chunk = std::min({chunks.chunk(), shards.chunk(), batches.chunk()});
    if (chunk == RowsByChunk::kNoChunk) return std::string();
    ChunkBatches found;
    while (batches.chunk() == chunk) {
      const std::string_view wrong = found.Add(batches);
      if (!wrong.empty()) return OfChunk(chunk, wrong);
      DRAFTMILL_RETURN_IF_ERROR(batches.Next());
    }
    if (chunks.chunk() == chunk) {
      if (!AreCounted(chunks, found)) return OfChunk(chunk, "its counters are not the sums of its batches");
      DRAFTMILL_RETURN_IF_ERROR(chunks.Next());
    } else if (is_ingested && found.batches > 0) {
      return OfChunk(chunk, "batches are left of a chunk that there is not");
    }
    while (shards.chunk() == chunk) {
      if (!IsMadeOf(shards, found)) return OfChunk(chunk, "a shard is not made of the batches that name it");
      DRAFTMILL_RETURN_IF_ERROR(shards.Next());
    }
  }
}

}  // namespace

Result<std::string> FindContradiction(sqlite::Connection& connection) {
  DRAFTMILL_ASSIGN_OR_RETURN(std::string found, FirstOutOfBounds(connection));
  if (!found.empty()) return found;
  DRAFTMILL_ASSIGN_OR_RETURN(found, FirstBroken(connection, kCounters));
  if (!found.empty()) return found;
  DRAFTMILL_ASSIGN_OR_RETURN(
      const std::int64_t ingested,
      connection.QueryInteger("SELECT count(*) FROM stages WHERE stage = 'ingest' AND state IN ('done', 'stale')"));
  DRAFTMILL_ASSIGN_OR_RETURN(found, FirstWithOtherBatches(connection, ingested > 0));
  if (!found.empty() || ingested == 0) return found;
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

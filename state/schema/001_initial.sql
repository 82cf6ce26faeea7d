-- The state of a work folder (docs/state.md). Sizes in bytes, times in milliseconds since 1970 (UTC), hashes in
-- hexadecimal unless they are blobs, paths relative to the work folder.

CREATE TABLE runs (                       -- one row for each start of the pipeline on this work folder
  run             INTEGER PRIMARY KEY,
  name            TEXT NOT NULL,          -- kept by the runs that resume it
  program_version TEXT NOT NULL,
  parameters      TEXT NOT NULL,          -- resolved, JSON
  host            TEXT NOT NULL,
  boot_id         TEXT NOT NULL,
  pid             INTEGER NOT NULL,
  started_ms      INTEGER NOT NULL,
  finished_ms     INTEGER,                -- NULL while it runs, and for ever where it was killed
  exit_status     INTEGER,
  summary         TEXT                    -- JSON
) STRICT;

CREATE TABLE stages (
  stage       TEXT PRIMARY KEY,           -- ingest, tokenize, vocab_map, extract, write
  position    INTEGER NOT NULL UNIQUE,    -- order in which data passes
  state       TEXT NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'running', 'done', 'stale')),
  version     INTEGER NOT NULL,           -- of the stage's code
  fingerprint TEXT NOT NULL DEFAULT '',
  reported_done INTEGER NOT NULL DEFAULT 0, -- where no counter of a chunk tells: ingest (bytes), vocab_map (samples)
  changed_ms  INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE fingerprint_parts (          -- what a stage's fingerprint was made of
  stage    TEXT NOT NULL REFERENCES stages (stage) ON DELETE CASCADE,
  position INTEGER NOT NULL,
  name     TEXT NOT NULL,
  value    TEXT NOT NULL,
  PRIMARY KEY (stage, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE facts (                      -- single values: model fingerprint, digests of weights and vocabulary map
  name  TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE sources (
  source       INTEGER PRIMARY KEY,       -- its number in the rows' places
  epoch        INTEGER NOT NULL,
  path         TEXT NOT NULL,             -- as configured, relative to the pipeline file
  format       TEXT NOT NULL,
  bytes        INTEGER NOT NULL,
  content_hash TEXT NOT NULL,
  modified_ns  INTEGER NOT NULL,          -- with inode and bytes: an unchanged file need not be hashed again
  inode        INTEGER NOT NULL,
  rows         INTEGER NOT NULL,          -- = kept + duplicates + rejected + not_taken
  kept         INTEGER NOT NULL,
  duplicates   INTEGER NOT NULL,
  rejected     INTEGER NOT NULL,
  not_taken    INTEGER NOT NULL           -- beyond a limit or a share that the configuration states
) STRICT;

CREATE TABLE conversations (              -- written once, at ingest
  sample_id    INTEGER PRIMARY KEY,
  chunk        INTEGER NOT NULL,
  source       INTEGER NOT NULL,
  row          INTEGER NOT NULL,
  line         INTEGER NOT NULL,
  byte_offset  INTEGER NOT NULL,
  content_hash BLOB NOT NULL              -- 16 bytes; without an index: only ingest looks for duplicates
) STRICT;

CREATE TABLE chunks (                     -- with running counters, so that progress never counts samples
  chunk             INTEGER PRIMARY KEY,
  epoch             INTEGER NOT NULL,
  first_sample      INTEGER NOT NULL,     -- conversations of a chunk have consecutive numbers
  rows              INTEGER NOT NULL,
  bytes             INTEGER NOT NULL,
  ingested_digest   TEXT NOT NULL,
  ingested          INTEGER NOT NULL DEFAULT 1, -- 0: to be ingested again; what follows is kept until bytes differ
  tokenized         INTEGER NOT NULL DEFAULT 0, -- 0: to be tokenized (again)
  samples           INTEGER NOT NULL DEFAULT 0,
  tokens            INTEGER NOT NULL DEFAULT 0,
  supervised_tokens INTEGER NOT NULL DEFAULT 0,
  tokenize_failed   INTEGER NOT NULL DEFAULT 0,
  corpus_digest     TEXT NOT NULL DEFAULT '',
  corpus_bytes      INTEGER NOT NULL DEFAULT 0,
  plan_hash         TEXT NOT NULL DEFAULT '',   -- '' until planned
  batches           INTEGER NOT NULL DEFAULT 0,
  shards            INTEGER NOT NULL DEFAULT 0,
  extracted_batches INTEGER NOT NULL DEFAULT 0,
  extracted_samples INTEGER NOT NULL DEFAULT 0,
  extracted_tokens  INTEGER NOT NULL DEFAULT 0,
  extracted_bytes   INTEGER NOT NULL DEFAULT 0,
  quarantined       INTEGER NOT NULL DEFAULT 0, -- samples whose states were refused after planning
  published_shards  INTEGER NOT NULL DEFAULT 0,
  published_samples INTEGER NOT NULL DEFAULT 0,
  published_tokens  INTEGER NOT NULL DEFAULT 0,
  published_bytes   INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE plans (                      -- apart from chunks: progress does not read it
  chunk INTEGER PRIMARY KEY,
  plan  BLOB NOT NULL
) STRICT;

CREATE TABLE samples (                    -- written once, with the plan of their chunk
  sample_id         INTEGER NOT NULL,
  variant           INTEGER NOT NULL,
  chunk             INTEGER NOT NULL,
  batch             INTEGER NOT NULL,
  position          INTEGER NOT NULL,     -- place in the chunk's packed order
  tokens            INTEGER NOT NULL,
  supervised_tokens INTEGER NOT NULL,
  turn              INTEGER NOT NULL,     -- index of the last supervised message
  source            INTEGER NOT NULL,
  PRIMARY KEY (sample_id, variant)
) STRICT, WITHOUT ROWID;

CREATE TABLE batches (
  chunk       INTEGER NOT NULL,
  batch       INTEGER NOT NULL,
  block       INTEGER NOT NULL,
  shard       INTEGER NOT NULL,
  samples     INTEGER NOT NULL,
  tokens      INTEGER NOT NULL,
  bytes       INTEGER NOT NULL,           -- of its hidden states
  state       TEXT NOT NULL DEFAULT 'planned' CHECK (state IN ('planned', 'written')),
  digest      TEXT NOT NULL DEFAULT '',   -- once written
  quarantined INTEGER NOT NULL DEFAULT 0,
  seconds     REAL NOT NULL DEFAULT 0,
  PRIMARY KEY (chunk, batch)
) STRICT, WITHOUT ROWID;

CREATE TABLE shards (
  chunk        INTEGER NOT NULL,
  shard        INTEGER NOT NULL,
  first_batch  INTEGER NOT NULL,
  batches      INTEGER NOT NULL,
  samples      INTEGER NOT NULL,
  tokens       INTEGER NOT NULL,
  state        TEXT NOT NULL DEFAULT 'planned' CHECK (state IN ('planned', 'published', 'damaged', 'stale')),
  file         TEXT NOT NULL DEFAULT '',  -- the rest once published
  bytes        INTEGER NOT NULL DEFAULT 0,
  digest       TEXT NOT NULL DEFAULT '',
  quarantined  INTEGER NOT NULL DEFAULT 0,
  fingerprint  TEXT NOT NULL DEFAULT '',  -- of extract, as in the file
  numerics     TEXT NOT NULL DEFAULT '',  -- library versions and instruction set or GPU model it was computed with
  published_ms INTEGER,
  PRIMARY KEY (chunk, shard)
) STRICT, WITHOUT ROWID;
CREATE INDEX shards_by_state_index ON shards (state, samples, tokens, bytes);

CREATE TABLE failures (                   -- quarantine
  failure     INTEGER PRIMARY KEY,
  stage       TEXT NOT NULL,
  reason      TEXT NOT NULL,              -- a fixed word
  message     TEXT NOT NULL,
  source      INTEGER NOT NULL,
  row         INTEGER NOT NULL,
  line        INTEGER NOT NULL,
  byte_offset INTEGER NOT NULL,
  sample_id   INTEGER,                    -- NULL where the row never got a number
  variant     INTEGER NOT NULL DEFAULT 0,
  chunk       INTEGER
) STRICT;
CREATE INDEX failures_by_reason_index ON failures (stage, reason);
CREATE INDEX failures_by_chunk_index ON failures (chunk, stage) WHERE chunk IS NOT NULL;
CREATE INDEX failures_by_sample_index ON failures (sample_id) WHERE sample_id IS NOT NULL;

CREATE TABLE events (
  event INTEGER PRIMARY KEY,
  run   INTEGER NOT NULL,
  at_ms INTEGER NOT NULL,
  level TEXT NOT NULL CHECK (level IN ('info', 'warning', 'error')),
  text  TEXT NOT NULL
) STRICT;

CREATE TABLE throughput (                 -- what a stage did in the span that ended at at_ms
  point   INTEGER PRIMARY KEY,
  run     INTEGER NOT NULL,
  stage   TEXT NOT NULL,
  at_ms   INTEGER NOT NULL,
  span_ms INTEGER NOT NULL,
  samples INTEGER NOT NULL,               -- rows for ingest and tokenize
  tokens  INTEGER NOT NULL,
  bytes   INTEGER NOT NULL
) STRICT;
CREATE INDEX throughput_by_stage ON throughput (stage, at_ms);

-- Rates over the last minute that a stage reported.
CREATE VIEW recent_rates AS
SELECT s.stage,
       1000.0 * sum(t.samples) / sum(t.span_ms) AS samples_per_second,
       1000.0 * sum(t.tokens) / sum(t.span_ms) AS tokens_per_second,
       1000.0 * sum(t.bytes) / sum(t.span_ms) AS bytes_per_second
FROM stages AS s
JOIN throughput AS t
  ON t.stage = s.stage AND t.at_ms > (SELECT max(at_ms) FROM throughput WHERE stage = s.stage) - 60000
GROUP BY s.stage
HAVING sum(t.span_ms) > 0;

-- Samples of chunks that are not tokenized yet are taken to be one for each row.
CREATE VIEW progress AS
WITH
  totals AS (
    SELECT count(*) AS chunks, coalesce(sum(rows), 0) AS rows, coalesce(sum(bytes), 0) AS bytes,
           coalesce(sum(iif(tokenized, rows, 0)), 0) AS tokenized_rows,
           coalesce(sum(iif(tokenized, samples, rows)), 0) AS samples,
           coalesce(sum(iif(tokenized, tokens, 0)), 0) AS tokens,
           coalesce(sum(iif(tokenized, tokenize_failed, 0)), 0) AS tokenize_failed,
           coalesce(sum(iif(tokenized, corpus_bytes, 0)), 0) AS corpus_bytes,
           coalesce(sum(extracted_samples), 0) AS extracted_samples,
           coalesce(sum(extracted_tokens), 0) AS extracted_tokens,
           coalesce(sum(extracted_bytes), 0) AS extracted_bytes,
           coalesce(sum(quarantined), 0) AS quarantined,
           coalesce(sum(published_samples), 0) AS published_samples,
           coalesce(sum(published_tokens), 0) AS published_tokens,
           coalesce(sum(published_bytes), 0) AS published_bytes
    FROM chunks),
  source_totals AS (
    SELECT coalesce(sum(bytes), 0) AS bytes, coalesce(sum(rejected), 0) AS rejected FROM sources),
  estimates AS (
    SELECT iif(tokenized_rows = 0, NULL, 1.0 * tokens * rows / tokenized_rows) AS tokens FROM totals),
  counted AS (
    SELECT s.stage, s.position, s.state,
      CASE s.stage WHEN 'ingest' THEN 'bytes' WHEN 'tokenize' THEN 'rows' ELSE 'samples' END AS unit,
      CASE s.stage WHEN 'ingest' THEN st.bytes WHEN 'tokenize' THEN t.rows ELSE t.samples END AS total,
      CASE s.stage
        WHEN 'ingest' THEN iif(s.state = 'done', st.bytes, min(s.reported_done, st.bytes))
        WHEN 'tokenize' THEN t.tokenized_rows
        WHEN 'vocab_map' THEN iif(s.state = 'done', t.samples, min(s.reported_done, t.samples))
        WHEN 'extract' THEN t.extracted_samples
        WHEN 'write' THEN t.published_samples
        ELSE s.reported_done END AS done,
      CASE s.stage WHEN 'ingest' THEN st.rejected WHEN 'tokenize' THEN t.tokenize_failed
        WHEN 'extract' THEN t.quarantined ELSE 0 END AS failed,
      CASE s.stage WHEN 'ingest' THEN t.bytes WHEN 'tokenize' THEN t.corpus_bytes
        WHEN 'extract' THEN t.extracted_bytes WHEN 'write' THEN t.published_bytes ELSE 0 END AS bytes,
      CASE s.stage WHEN 'extract' THEN e.tokens - t.extracted_tokens
        WHEN 'write' THEN e.tokens - t.published_tokens END AS tokens_left,
      r.samples_per_second, r.tokens_per_second, r.bytes_per_second
    FROM stages AS s CROSS JOIN totals AS t CROSS JOIN source_totals AS st CROSS JOIN estimates AS e
      LEFT JOIN recent_rates AS r ON r.stage = s.stage)
SELECT stage, state, unit, total, done, failed,
  CASE WHEN total > 0 THEN round(100.0 * done / total, 2) WHEN state = 'done' THEN 100.0 ELSE 0.0 END AS percent,
  round(samples_per_second, 1) AS samples_per_second,
  round(tokens_per_second, 1) AS tokens_per_second,
  bytes,
  CASE
    WHEN state = 'done' OR (total > 0 AND done >= total) THEN 0
    WHEN unit = 'bytes' AND bytes_per_second > 0 THEN CAST((total - done) / bytes_per_second + 0.5 AS INTEGER)
    WHEN tokens_left IS NOT NULL AND tokens_per_second > 0
      THEN CAST(max(tokens_left, 0) / tokens_per_second + 0.5 AS INTEGER)
    WHEN unit <> 'bytes' AND samples_per_second > 0 THEN CAST((total - done) / samples_per_second + 0.5 AS INTEGER)
  END AS eta_seconds
FROM counted
ORDER BY position;

-- Where each sample stands. A conversation without samples yet, or whose samples all failed, has one row.
CREATE VIEW sample_stage AS
SELECT c.sample_id, coalesce(s.variant, 0) AS variant,
  CASE
    WHEN s.sample_id IS NULL AND f.failure IS NOT NULL THEN 'failed'
    WHEN f.failure IS NOT NULL THEN 'quarantined'
    WHEN s.sample_id IS NULL THEN iif(k.tokenized, 'tokenized', 'ingested')
    WHEN d.state = 'published' THEN 'written'
    WHEN b.state = 'written' THEN 'extracted'
    ELSE 'planned'
  END AS stage,
  c.chunk, s.batch, b.block, b.shard, s.position, s.tokens, s.supervised_tokens, s.turn, nullif(d.file, '') AS file,
  f.stage AS failed_in, f.reason, c.source, c.row, c.line, c.byte_offset
FROM conversations AS c
LEFT JOIN chunks AS k ON k.chunk = c.chunk
LEFT JOIN samples AS s ON s.sample_id = c.sample_id
LEFT JOIN batches AS b ON b.chunk = s.chunk AND b.batch = s.batch
LEFT JOIN shards AS d ON d.chunk = b.chunk AND d.shard = b.shard
LEFT JOIN failures AS f ON f.failure = (
  SELECT min(failure) FROM failures
  WHERE sample_id = c.sample_id AND sample_id IS NOT NULL AND (s.variant IS NULL OR variant = s.variant));

CREATE VIEW failures_by_reason AS
SELECT g.stage, g.reason, g.failures, f.message AS example, f.source AS example_source, f.line AS example_line
FROM (SELECT stage, reason, count(*) AS failures, min(failure) AS first FROM failures GROUP BY stage, reason) AS g
JOIN failures AS f ON f.failure = g.first
ORDER BY g.failures DESC, g.stage, g.reason;

CREATE VIEW shards_by_state AS
SELECT state, count(*) AS shards, sum(samples) AS samples, sum(tokens) AS tokens, sum(bytes) AS bytes
FROM shards GROUP BY state;

CREATE VIEW timeline AS
SELECT strftime('%Y-%m-%d %H:%M:%S', at_ms / 1000, 'unixepoch') AS at, run, name, what, text FROM (
  SELECT started_ms AS at_ms, 0 AS rank, run AS id, run, name, 'started' AS what,
         'on ' || host || ', draftmill ' || program_version AS text FROM runs
  UNION ALL
  SELECT e.at_ms, 1, e.event, e.run, r.name, e.level, e.text FROM events AS e JOIN runs AS r ON r.run = e.run
  UNION ALL
  SELECT finished_ms, 2, run, run, name, 'finished', 'exit status ' || exit_status
  FROM runs WHERE finished_ms IS NOT NULL)
ORDER BY at_ms, rank, id;

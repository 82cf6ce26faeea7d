-- Shards may be deleted once they are published (write.discard_after_publish). Their rows say so before the files go, so
-- that nobody takes what is left for a data set, nor a file that is gone for damage. A CHECK cannot be altered: the table
-- is made anew.
DROP VIEW sample_stage;
DROP VIEW shards_by_state;
CREATE TABLE old_shards AS SELECT * FROM shards;
DROP TABLE shards;

CREATE TABLE shards (
  chunk        INTEGER NOT NULL,
  shard        INTEGER NOT NULL,
  first_batch  INTEGER NOT NULL,
  batches      INTEGER NOT NULL,
  samples      INTEGER NOT NULL,
  tokens       INTEGER NOT NULL,
  state        TEXT NOT NULL DEFAULT 'planned'
               CHECK (state IN ('planned', 'published', 'discarded', 'damaged', 'stale')),
  file         TEXT NOT NULL DEFAULT '',  -- the rest once published; of a discarded shard: what it had been
  bytes        INTEGER NOT NULL DEFAULT 0,
  digest       TEXT NOT NULL DEFAULT '',
  quarantined  INTEGER NOT NULL DEFAULT 0,
  fingerprint  TEXT NOT NULL DEFAULT '',  -- of extract, as in the file
  numerics     TEXT NOT NULL DEFAULT '',  -- library versions and instruction set or GPU model it was computed with
  published_ms INTEGER,
  PRIMARY KEY (chunk, shard)
) STRICT, WITHOUT ROWID;
INSERT INTO shards (chunk, shard, first_batch, batches, samples, tokens, state, file, bytes, digest, quarantined,
                    fingerprint, numerics, published_ms)
SELECT chunk, shard, first_batch, batches, samples, tokens, state, file, bytes, digest, quarantined, fingerprint,
       numerics, published_ms
FROM old_shards;
DROP TABLE old_shards;
CREATE INDEX shards_by_state_index ON shards (state, samples, tokens, bytes);

CREATE VIEW shards_by_state AS
SELECT state, count(*) AS shards, sum(samples) AS samples, sum(tokens) AS tokens, sum(bytes) AS bytes
FROM shards GROUP BY state;

-- Where each sample stands. A conversation without samples yet, or whose samples all failed, has one row.
CREATE VIEW sample_stage AS
SELECT c.sample_id, coalesce(s.variant, 0) AS variant,
  CASE
    WHEN s.sample_id IS NULL AND f.failure IS NOT NULL THEN 'failed'
    WHEN f.failure IS NOT NULL THEN 'quarantined'
    WHEN s.sample_id IS NULL THEN iif(k.tokenized, 'tokenized', 'ingested')
    WHEN d.state = 'published' THEN 'written'
    WHEN d.state = 'discarded' THEN 'discarded'
    WHEN b.state = 'written' THEN 'extracted'
    ELSE 'planned'
  END AS stage,
  c.chunk, s.batch, b.block, b.shard, s.position, s.tokens, s.supervised_tokens, s.turn,
  iif(d.state = 'discarded', NULL, nullif(d.file, '')) AS file,
  f.stage AS failed_in, f.reason, c.source, c.row, c.line, c.byte_offset
FROM conversations AS c
LEFT JOIN chunks AS k ON k.chunk = c.chunk
LEFT JOIN samples AS s ON s.sample_id = c.sample_id
LEFT JOIN batches AS b ON b.chunk = s.chunk AND b.batch = s.batch
LEFT JOIN shards AS d ON d.chunk = b.chunk AND d.shard = b.shard
LEFT JOIN failures AS f ON f.failure = (
  SELECT min(failure) FROM failures
  WHERE sample_id = c.sample_id AND sample_id IS NOT NULL AND (s.variant IS NULL OR variant = s.variant));

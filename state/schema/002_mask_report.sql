-- What tokenization counted, as JSON: {"rows": 4096, "boundary_tokens": 3, ...}. Kept by chunk, so that the sums cover the
-- whole corpus however often a run was resumed.
ALTER TABLE chunks ADD COLUMN tokenize_report TEXT NOT NULL DEFAULT '{}';

CREATE VIEW mask_report AS
SELECT j.key AS counter, sum(j.value) AS count
FROM chunks AS c CROSS JOIN json_each(c.tokenize_report) AS j
WHERE c.tokenized AND j.type = 'integer'
GROUP BY j.key
ORDER BY min(j.id);

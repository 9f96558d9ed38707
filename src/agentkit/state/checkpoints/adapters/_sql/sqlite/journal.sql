-- name: head
-- A run's head, found within its scope: number, lease, seals, and what its last append wrote.
SELECT number, epoch, owner, boot, expires_ms, lease_seal, seal, seq, tip, claims, status, agent,
       iteration, recoveries, input_tokens, output_tokens, requests, unknown, cached_tokens,
       started_at, updated_at, detail, due_at
FROM agentkit_run INDEXED BY agentkit_run_name
WHERE scope = :scope AND run = :run;

-- name: hidden
-- Whether a run that its name does not find is there after all.
SELECT 1 FROM agentkit_run INDEXED BY agentkit_run_identity WHERE identity = :identity;

-- name: page
-- Heads of the runs of a scope that hold something, newest start first, behind a cursor.
WITH wanted AS MATERIALIZED (
    SELECT number AS wanted_number
    FROM agentkit_run NOT INDEXED
    WHERE scope = :scope
      AND seq > 0
      AND (:status IS NULL OR status = :status)
      AND (:agent IS NULL OR agent = :agent)
      AND (:behind_at IS NULL OR started_at < :behind_at
           OR (started_at = :behind_at AND run > :behind_run))
    ORDER BY started_at DESC, run
    LIMIT :limit
)
SELECT number, epoch, owner, boot, expires_ms, lease_seal, seal, seq, tip, claims, status, agent,
       iteration, recoveries, input_tokens, output_tokens, requests, unknown, cached_tokens,
       started_at, updated_at, detail, due_at, run
FROM wanted CROSS JOIN agentkit_run ON number = wanted_number
ORDER BY started_at DESC, run;

-- name: list_check
-- What tells that the table lists a scope's runs rightly: their number and the sum of their numbers
-- in the table and in the index, and the first run whose filed copy is not what lists go by.
SELECT t.runs, t.numbers, i.runs, i.numbers, t.misfiled
FROM (
    SELECT count(*) AS runs, total(number) AS numbers, min(
        CASE WHEN typeof(run) <> 'text' OR typeof(status) <> 'text' OR typeof(agent) <> 'text'
                  OR filed IS NOT concat_ws(' ', seq, status, ifnull(due_at, '-'), started_at, agent, run) THEN run END
    ) AS misfiled
    FROM agentkit_run NOT INDEXED
    WHERE scope = :scope
) AS t, (
    SELECT count(*) AS runs, total(number) AS numbers
    FROM agentkit_run INDEXED BY agentkit_run_name
    WHERE scope = :scope
) AS i;

-- name: forgotten_epoch
-- The highest epoch that went with a deleted run, from both of its copies.
SELECT count(*), min(forgotten_epoch), max(forgotten_epoch) FROM agentkit_store;

-- name: create_head
-- A head without entries, for whoever claims the run or leaves the first note.
INSERT INTO agentkit_run VALUES (
    NULL, :scope, :run, :identity, :epoch, :owner, :boot, :expires_ms, :lease_seal, :seal, :filed,
    0, x'', 0, '', '', 0, 0, 0, 0, 0, 0, 0, 0, 0, x'', NULL
)
ON CONFLICT DO NOTHING
RETURNING number;

-- name: claim
-- Hand the lease to a new owner; `claims` counts those over an unreleased one.
UPDATE agentkit_run
SET epoch = :epoch, owner = :owner, boot = :boot, expires_ms = :expires_ms,
    lease_seal = :lease_seal, claims = :claims, seal = :seal
WHERE number = :number AND identity = :identity
RETURNING number;

-- name: renew
-- Extend a lease that is still its owner's.
UPDATE agentkit_run INDEXED BY agentkit_run_name
SET boot = :boot, expires_ms = :expires_ms, lease_seal = :lease_seal
WHERE scope = :scope AND run = :run AND owner = :owner AND epoch = :epoch
RETURNING seq;

-- name: advance
-- Move the head if nobody did and the lease holds. Positional: named values cost a lookup each.
UPDATE agentkit_run INDEXED BY agentkit_run_name
SET seq = ?, tip = ?, claims = ?, status = ?, agent = ?, iteration = ?, recoveries = ?,
    input_tokens = ?, output_tokens = ?, requests = ?, unknown = ?, cached_tokens = ?,
    started_at = ?, updated_at = ?, detail = ?, due_at = ?, seal = ?, filed = ?
WHERE scope = ? AND run = ? AND seq = ? AND epoch = ? AND owner = ? AND identity = ?
RETURNING number, boot, expires_ms, lease_seal;

-- name: note
-- Move the head for a note if nobody moved it and the run has not ended. Positional as above.
UPDATE agentkit_run INDEXED BY agentkit_run_name
SET seq = ?, tip = ?, claims = ?, status = ?, agent = ?, iteration = ?, recoveries = ?,
    input_tokens = ?, output_tokens = ?, requests = ?, unknown = ?, cached_tokens = ?,
    started_at = ?, updated_at = ?, detail = ?, due_at = ?, seal = ?, filed = ?
WHERE scope = ? AND run = ? AND seq = ?
  AND (seq = 0 OR status NOT IN ('done', 'failed', 'cancelled'))
RETURNING number;

-- name: release
-- Give the lease up.
UPDATE agentkit_run SET owner = '', boot = '', expires_ms = 0, lease_seal = :lease_seal
WHERE number = :number;

-- name: insert_entry
-- Put an entry in its place.
INSERT INTO agentkit_entry VALUES (?, ?, ?) ON CONFLICT DO NOTHING;

-- name: entries
-- A run's entries behind a position, in order; what a hand edit made text comes out as its bytes.
-- The identity stands in the table alone: an index that leads to another run's row finds nothing.
WITH it AS (
    SELECT number << 32 AS base
    FROM agentkit_run INDEXED BY agentkit_run_name
    WHERE scope = :scope AND run = :run AND identity = :identity
)
SELECT place - base, CAST(body AS BLOB), CAST(chained AS BLOB)
FROM it CROSS JOIN agentkit_entry
WHERE place > base + :after AND place <= base + 4294967295
ORDER BY place
LIMIT :limit;

-- name: delete_entries
-- Remove a run's entries.
DELETE FROM agentkit_entry WHERE place > :number << 32 AND place < (:number + 1) << 32;

-- name: delete_head
-- Remove a run's head.
DELETE FROM agentkit_run WHERE number = :number;

-- name: entomb
-- Mark in an ended run's head that its entries are gone.
UPDATE agentkit_run SET tip = x'', seal = :seal WHERE number = :number;

-- name: due
-- Heads of the runs of all scopes that want a worker now, those that somebody holds behind.
WITH wanted AS MATERIALIZED (
    SELECT number AS wanted_number,
           owner <> '' AND boot = :boot AND expires_ms > :elapsed_ms AS held
    FROM agentkit_run INDEXED BY agentkit_run_due
    WHERE due_at <= :now_ms
      AND seq > 0
      AND (:agents IS NULL OR agent IN (SELECT value FROM json_each(:agents)))
    ORDER BY held, due_at, scope, run
    LIMIT :limit
)
SELECT number, epoch, owner, boot, expires_ms, lease_seal, seal, seq, tip, claims, status, agent,
       iteration, recoveries, input_tokens, output_tokens, requests, unknown, cached_tokens,
       started_at, updated_at, detail, due_at, scope, run
FROM wanted CROSS JOIN agentkit_run ON number = wanted_number
ORDER BY held, due_at, scope, run;

-- name: scopes
-- Scopes that hold runs, from the table alone: an index cannot hide one.
SELECT DISTINCT scope
FROM agentkit_run NOT INDEXED
WHERE seq > 0 AND (:after IS NULL OR scope > :after)
ORDER BY scope
LIMIT :limit;

-- name: forget_epoch
-- Remember the epoch of a run that goes, so that the same run id never counts from below it.
UPDATE agentkit_store SET forgotten_epoch = max(forgotten_epoch, :epoch);

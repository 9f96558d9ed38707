-- name: head
-- A run's head, found within its scope.
SELECT number, run, seq, tip, epoch, owner, boot, expires_ms, claims, status, agent, iteration,
       recoveries, input_tokens, output_tokens, requests, unknown, cached_tokens, started_at,
       updated_at, detail
FROM agentkit_run
WHERE scope = :scope AND run = :run;

-- name: page
-- Heads of the runs of a scope that hold something, newest start first, behind a cursor.
SELECT number, run, seq, tip, epoch, owner, boot, expires_ms, claims, status, agent, iteration,
       recoveries, input_tokens, output_tokens, requests, unknown, cached_tokens, started_at,
       updated_at, detail
FROM agentkit_run
WHERE scope = :scope
  AND seq > 0
  AND (:status IS NULL OR status = :status)
  AND (:agent IS NULL OR agent = :agent)
  AND (:behind_at IS NULL OR started_at < :behind_at
       OR (started_at = :behind_at AND run > :behind_run))
ORDER BY started_at DESC, run
LIMIT :limit;

-- name: forgotten_epoch
-- The highest epoch that went with a deleted run.
SELECT forgotten_epoch FROM agentkit_store;

-- name: create_head
-- A head without entries, for whoever claims the run or leaves the first note.
INSERT INTO agentkit_run VALUES (
    NULL, :scope, :run, 0, x'', :epoch, :owner, :boot, :expires_ms, 0, '', '', 0, 0, 0, 0, 0, 0, 0,
    0, 0, x''
);

-- name: claim
-- Hand the lease to a new owner; a claim over an unreleased one is counted.
UPDATE agentkit_run
SET epoch = :epoch, claims = claims + (owner <> ''), owner = :owner, boot = :boot,
    expires_ms = :expires_ms
WHERE scope = :scope AND run = :run;

-- name: renew
-- Extend a lease that is still its owner's.
UPDATE agentkit_run
SET boot = :boot, expires_ms = :expires_ms
WHERE scope = :scope AND run = :run AND owner = :owner AND epoch = :epoch
RETURNING seq;

-- name: advance
-- Move the head if nobody did and the lease holds. Positional: named values cost a lookup each.
UPDATE agentkit_run
SET status = ?, agent = ?, iteration = ?, recoveries = ?, input_tokens = ?, output_tokens = ?,
    requests = ?, unknown = ?, cached_tokens = ?, updated_at = ?, detail = ?, claims = 0,
    seq = ?, tip = coalesce(?, tip), owner = iif(?, '', owner)
WHERE scope = ? AND run = ? AND seq = ? AND epoch = ? AND owner = ?
RETURNING number, seq, tip, epoch, owner, boot, expires_ms, started_at, claims;

-- name: note
-- Move the head for a note if nobody moved it and the run has not ended. Positional as above.
UPDATE agentkit_run
SET status = ?, agent = ?, iteration = ?, recoveries = ?, input_tokens = ?, output_tokens = ?,
    requests = ?, unknown = ?, cached_tokens = ?, updated_at = ?, detail = ?,
    seq = ?, tip = ?
WHERE scope = ? AND run = ? AND seq = ? AND status NOT IN ('done', 'failed', 'cancelled')
RETURNING number, seq, tip, epoch, owner, boot, expires_ms, started_at, claims;

-- name: start
-- Set when the run started; apart from the others, because an index depends on it.
UPDATE agentkit_run SET started_at = :started_at WHERE number = :number;

-- name: release
-- Give the lease up.
UPDATE agentkit_run SET owner = '' WHERE number = :number;

-- name: insert_entry
-- Put an entry in its place.
INSERT INTO agentkit_entry VALUES (?, ?, ?) ON CONFLICT DO NOTHING;

-- name: entries
-- A run's entries behind a position, in order; what a hand edit made text comes out as its bytes.
WITH it AS (SELECT number << 32 AS base FROM agentkit_run WHERE scope = :scope AND run = :run)
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

-- name: forget_epoch
-- Remember the epoch of a run that goes, so that the same run id never counts from below it.
UPDATE agentkit_store SET forgotten_epoch = max(forgotten_epoch, :epoch);

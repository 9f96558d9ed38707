-- name: find_value
-- Who claimed a key, with what value, until when.
SELECT token, value, boot, expires_ms, expires_wall_ms
FROM agentkit_value
WHERE scope = :scope AND key = :key;

-- name: claim_value
-- Claim a key, over a claim that has lapsed.
INSERT INTO agentkit_value VALUES (
    :scope, :key, :token, NULL, :boot, :expires_ms, :expires_wall_ms
)
ON CONFLICT (scope, key) DO UPDATE
SET token = :token, value = NULL, boot = :boot, expires_ms = :expires_ms,
    expires_wall_ms = :expires_wall_ms;

-- name: settle_value
-- Bring the value of one's own claim.
UPDATE agentkit_value SET value = :value
WHERE scope = :scope AND key = :key AND token = :token
RETURNING 1;

-- name: purge_values
-- Forget some claims that have lapsed, the oldest first.
DELETE FROM agentkit_value
WHERE rowid IN (
    SELECT rowid FROM agentkit_value
    WHERE expires_wall_ms <= :wall_ms AND (boot <> :boot OR expires_ms <= :elapsed_ms)
    ORDER BY expires_wall_ms
    LIMIT :limit
);

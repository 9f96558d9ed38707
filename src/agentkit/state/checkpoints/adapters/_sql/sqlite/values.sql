-- name: find_value
-- Who claimed a key, with what value, until when, and the seal over it.
SELECT token, value, boot, expires_ms, expires_wall_ms, seal
FROM agentkit_value INDEXED BY agentkit_value_name
WHERE scope = :scope AND key = :key;

-- name: hidden_value
-- Whether a key that its name does not find is there after all.
SELECT 1 FROM agentkit_value INDEXED BY agentkit_value_identity WHERE identity = :identity;

-- name: claim_value
-- Claim a key, over a claim that has lapsed.
INSERT INTO agentkit_value VALUES (
    :scope, :key, :token, NULL, :boot, :expires_ms, :expires_wall_ms, :seal, :identity
)
ON CONFLICT (scope, key) DO UPDATE
SET token = :token, value = NULL, boot = :boot, expires_ms = :expires_ms,
    expires_wall_ms = :expires_wall_ms, seal = :seal;

-- name: settle_value
-- Bring the value of one's own claim.
UPDATE agentkit_value SET value = :value, seal = :seal
WHERE scope = :scope AND key = :key AND token = :token
RETURNING 1;

-- name: lapsed_values
-- Some claims that have lapsed, the oldest first.
SELECT rowid, scope, key, token, value, boot, expires_ms, expires_wall_ms, seal
FROM agentkit_value
WHERE expires_wall_ms <= :wall_ms AND (boot <> :boot OR expires_ms <= :elapsed_ms)
ORDER BY expires_wall_ms
LIMIT :limit;

-- name: forget_value
-- Forget a claim.
DELETE FROM agentkit_value WHERE rowid = ?;

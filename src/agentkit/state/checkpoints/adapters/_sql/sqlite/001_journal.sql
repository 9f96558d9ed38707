-- The first schema. The application id spells "AgKt". An entry's place is its run's number * 2^32 + seq.
-- Whatever a flipped bit could change unseen is there twice or sealed: see _sqlite_heads.py.
CREATE TABLE agentkit_store (
    copy INTEGER PRIMARY KEY CHECK (copy IN (1, 2)),
    forgotten_epoch INTEGER NOT NULL
);
INSERT INTO agentkit_store VALUES (1, 0), (2, 0);
CREATE TABLE agentkit_run (
    number INTEGER PRIMARY KEY,
    scope TEXT NOT NULL,
    run TEXT NOT NULL,
    identity INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    owner TEXT NOT NULL,
    boot TEXT NOT NULL,
    expires_ms INTEGER NOT NULL,
    lease_seal BLOB NOT NULL,
    seal BLOB NOT NULL,
    filed TEXT NOT NULL,
    seq INTEGER NOT NULL,
    tip BLOB NOT NULL,
    claims INTEGER NOT NULL,
    status TEXT NOT NULL,
    agent TEXT NOT NULL,
    iteration INTEGER NOT NULL,
    recoveries INTEGER NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    requests INTEGER NOT NULL,
    unknown INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    detail BLOB NOT NULL,
    due_at INTEGER
);
CREATE UNIQUE INDEX agentkit_run_name ON agentkit_run (scope, run);
CREATE UNIQUE INDEX agentkit_run_identity ON agentkit_run (identity);
CREATE INDEX agentkit_run_due ON agentkit_run (due_at) WHERE due_at IS NOT NULL;
CREATE TABLE agentkit_entry (
    place INTEGER PRIMARY KEY,
    body BLOB NOT NULL,
    chained BLOB NOT NULL
);
CREATE TABLE agentkit_value (
    scope TEXT NOT NULL,
    key TEXT NOT NULL,
    token TEXT NOT NULL,
    value TEXT,
    boot TEXT NOT NULL,
    expires_ms INTEGER NOT NULL,
    expires_wall_ms INTEGER NOT NULL,
    seal BLOB NOT NULL,
    identity INTEGER NOT NULL
);
CREATE UNIQUE INDEX agentkit_value_name ON agentkit_value (scope, key);
CREATE UNIQUE INDEX agentkit_value_identity ON agentkit_value (identity);
CREATE INDEX agentkit_value_lapse ON agentkit_value (expires_wall_ms);
CREATE VIEW agentkit_journal AS
    SELECT r.scope, r.run, e.place & 4294967295 AS seq, CAST(e.body AS TEXT) AS body
    FROM agentkit_entry AS e JOIN agentkit_run AS r ON r.number = e.place >> 32;
PRAGMA application_id = 1097288564;
PRAGMA user_version = 1;

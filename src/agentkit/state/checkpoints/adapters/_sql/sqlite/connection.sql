-- name: identity
-- Whose file this is and which schema it has.
SELECT (SELECT application_id FROM pragma_application_id),
       (SELECT user_version FROM pragma_user_version),
       (SELECT count(*) FROM sqlite_schema WHERE name = 'agentkit_run');

-- name: journal_mode
-- How the file is journaled now.
SELECT journal_mode FROM pragma_journal_mode;

-- name: durability
-- What this connection makes of a commit.
SELECT (SELECT journal_mode FROM pragma_journal_mode), (SELECT synchronous FROM pragma_synchronous);

-- name: integrity
-- What SQLite finds wrong with the structure of the file, in tables and against their indexes.
PRAGMA integrity_check(20);

-- name: page_size
-- For a file that is still empty: an append changes two pages, and smaller ones are less to write.
PRAGMA page_size = 2048;

-- name: use_wal
-- Keep a write-ahead log from now on; needs the file for itself for a moment.
PRAGMA journal_mode = WAL;

-- name: settings
-- What every connection is set to. Without fullfsync a commit on macOS does not reach the disk.
PRAGMA fullfsync = ON;
PRAGMA trusted_schema = OFF;
PRAGMA journal_size_limit = 67108864;
PRAGMA wal_autocheckpoint = 2000;

-- name: synchronous_full
-- A commit returns when its bytes are on the disk.
PRAGMA synchronous = FULL;

-- name: synchronous_normal
-- A commit may be lost when the power fails; never when the process dies.
PRAGMA synchronous = NORMAL;

-- name: read_only
-- Refuse writes on this connection.
PRAGMA query_only = ON;

-- name: begin
-- Begin a transaction that writes, waiting for other writers here rather than later.
BEGIN IMMEDIATE;

-- name: look
-- Begin a transaction that reads: what it sees is of one moment.
BEGIN;

-- name: commit
-- Make the transaction durable.
COMMIT;

-- name: rollback
-- Forget the transaction.
ROLLBACK;

-- name: savepoint
-- Begin one operation of a shared transaction.
SAVEPOINT operation;

-- name: keep
-- End the operation and keep what it did.
RELEASE operation;

-- name: undo
-- Forget what the operation did.
ROLLBACK TO operation;

-- name: free_pages
-- How much of the file nobody uses.
SELECT (SELECT freelist_count FROM pragma_freelist_count), (SELECT page_count FROM pragma_page_count);

-- name: vacuum
-- Write the file anew, without what nobody uses. Atomic; other processes wait.
VACUUM;

-- name: truncate_log
-- Have the log's content in the file and the log empty, if nobody needs it now.
PRAGMA wal_checkpoint(TRUNCATE);

-- name: version
-- The number of the newest migration, and whether anything of ours is there at all.
SELECT max(version) FROM {schema}.agentkit_schema;

-- name: has_schema
-- Whether the schema and its table of migrations are there. Reading a table makes the session hear
-- of what others made; without, it goes on believing that nothing was there when it last looked.
SELECT to_regnamespace(%s) IS NOT NULL, to_regclass(%s) IS NOT NULL
FROM (SELECT FROM pg_catalog.pg_namespace LIMIT 1) AS heard;

-- name: create_schema
-- Where everything of ours is.
CREATE SCHEMA {schema};

-- name: create_versions
-- Which migrations were applied.
CREATE TABLE {schema}.agentkit_schema (
    version integer PRIMARY KEY,
    name text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- name: grants
-- What a role needs that works with the store, for its owner to give.
-- A role that works with the store needs no more than this:
-- GRANT USAGE ON SCHEMA {schema} TO its_role;
-- GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO its_role;
-- GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO its_role;

-- name: lock_migrations
-- One migrates, the others wait until its transaction has ended; works behind a pooler.
SELECT pg_advisory_xact_lock(hashtextextended('agentkit migrations of ' || %s, 0));

-- name: add_version
-- Note that a migration was applied.
INSERT INTO {schema}.agentkit_schema (version, name) VALUES ({number}, '{name}');

-- name: durability
-- What a commit of ours and the server itself are set to.
SELECT {schema}.agentkit_set(%s), current_setting('synchronous_commit'), current_setting('fsync'),
       current_setting('full_page_writes'), current_setting('lock_timeout');

-- name: statement_limit
-- How long what is sent behind this, in the same transaction, may take.
SELECT set_config('statement_timeout', %s, true);

-- name: append
-- Appends of several runs; the verdict of each and its head.
SELECT a.place, a.verdict, a.now_ms, (a.head).run, (a.head).epoch, (a.head).owner,
       (a.head).expires_ms, (a.head).seq, (a.head).tip, (a.head).claims, (a.head).status,
       (a.head).agent, (a.head).iteration, (a.head).recoveries, (a.head).input_tokens,
       (a.head).output_tokens, (a.head).requests, (a.head).unknown, (a.head).cached_tokens,
       (a.head).started_at, (a.head).updated_at, (a.head).due_at, (a.head).detail
FROM {schema}.agentkit_append(
    %b::bytea[], %b::bytea[], %b::text[], %b::text[], %b::bigint[], %b::bigint[], %b::text[],
    %b::boolean[], %b::text[], %b::text[], %b::bigint[], %b::bytea[], %b::integer[], %b::bytea[],
    %b::bytea[], %s::integer, %s::bigint
) AS a;

-- name: acquire
-- Take a lease; the head as it is then.
SELECT a.verdict, a.took_over, a.now_ms, (a.head).run, (a.head).epoch, (a.head).owner,
       (a.head).expires_ms, (a.head).seq, (a.head).tip, (a.head).claims, (a.head).status,
       (a.head).agent, (a.head).iteration, (a.head).recoveries, (a.head).input_tokens,
       (a.head).output_tokens, (a.head).requests, (a.head).unknown, (a.head).cached_tokens,
       (a.head).started_at, (a.head).updated_at, (a.head).due_at, (a.head).detail
FROM {schema}.agentkit_acquire(
    %b::bytea, %b::bytea, %s::text, %s::text, %s::text, %s::bigint, %s::text, %s::bigint,
    %s::bigint, %s::integer, %s::bigint, %s::bigint
) AS a;

-- name: renew
-- Extend leases.
SELECT place, verdict, seq
FROM {schema}.agentkit_renew(
    %b::bytea[], %b::text[], %b::text[], %b::text[], %b::bigint[], %b::bigint[], %s::integer,
    %s::bigint
);

-- name: delete
-- Remove a run that nobody holds.
SELECT d.verdict, d.now_ms, (d.head).run, (d.head).epoch, (d.head).owner, (d.head).expires_ms,
       (d.head).seq, (d.head).tip, (d.head).claims, (d.head).status, (d.head).agent,
       (d.head).iteration, (d.head).recoveries, (d.head).input_tokens, (d.head).output_tokens,
       (d.head).requests, (d.head).unknown, (d.head).cached_tokens, (d.head).started_at,
       (d.head).updated_at, (d.head).due_at, (d.head).detail
FROM {schema}.agentkit_delete(%b::bytea, %s::text, %s::text, %s::integer, %s::bigint) AS d;

-- name: entomb
-- Remove the entries of an ended run that nobody holds.
SELECT {schema}.agentkit_entomb(
    %b::bytea, %s::text, %s::text, %s::bigint, %s::integer, %s::bigint
);

-- name: head
-- A run's head, found within its scope.
SELECT {schema}.agentkit_now(%(at_ms)s::bigint), run, epoch, owner, expires_ms, seq, tip, claims,
       status, agent, iteration, recoveries, input_tokens, output_tokens, requests, unknown,
       cached_tokens, started_at, updated_at, due_at, detail
FROM {schema}.agentkit_run
WHERE identity = %(identity)b AND scope = %(scope)s AND run = %(run)s;

-- name: hold
-- A run's head, kept from everybody else until the transaction ends.
SELECT {schema}.agentkit_now(%(at_ms)s::bigint), run, epoch, owner, expires_ms, seq, tip, claims,
       status, agent, iteration, recoveries, input_tokens, output_tokens, requests, unknown,
       cached_tokens, started_at, updated_at, due_at, detail
FROM {schema}.agentkit_run
WHERE identity = %(identity)b AND scope = %(scope)s AND run = %(run)s
FOR NO KEY UPDATE;

-- name: entries
-- A run's entries behind a position, in order.
SELECT e.seq, e.body, e.chained
FROM {schema}.agentkit_run AS r JOIN {schema}.agentkit_entry AS e USING (number)
WHERE r.identity = %(identity)b AND r.scope = %(scope)s AND r.run = %(run)s
    AND e.seq > %(after)s::bigint
ORDER BY e.seq
LIMIT %(limit)s;

-- name: page
-- Heads of the runs of a scope that hold something, newest start first, behind a cursor.
SELECT {schema}.agentkit_now(%(at_ms)s::bigint), run, epoch, owner, expires_ms, seq, tip, claims,
       status, agent, iteration, recoveries, input_tokens, output_tokens, requests, unknown,
       cached_tokens, started_at, updated_at, due_at, detail
FROM {schema}.agentkit_run
WHERE tenancy = %(tenancy)b AND scope = %(scope)s AND seq > 0
    AND (%(status)s::text IS NULL OR status = %(status)s)
    AND (%(agent)s::text IS NULL OR agent = %(agent)s)
    AND (%(behind_at)s::bigint IS NULL OR started_at < %(behind_at)s
         OR (started_at = %(behind_at)s AND run > %(behind_run)s))
ORDER BY started_at DESC, run
LIMIT %(limit)s;

-- name: due
-- Runs of all scopes that are due: first those that nobody holds, the longest due first.
SELECT scope, run, agent, due_at, owner,
       owner <> '' AND expires_ms > (SELECT {schema}.agentkit_now(%(at_ms)s::bigint)) AS held
FROM {schema}.agentkit_run
WHERE due_at <= (SELECT {schema}.agentkit_now(%(wall_ms)s::bigint)) AND seq > 0
    AND (%(agents)s::text[] IS NULL OR agent = ANY (%(agents)s))
ORDER BY held, due_at, scope, run
LIMIT %(limit)s;

-- name: scopes
-- Keys of the scopes that hold runs.
SELECT DISTINCT scope
FROM {schema}.agentkit_run
WHERE seq > 0 AND (%(after)s::text IS NULL OR scope > %(after)s)
ORDER BY scope
LIMIT %(limit)s;

-- name: claim_value
-- Claim a key, unless it is claimed.
SELECT token, value
FROM {schema}.agentkit_claim_value(
    %b::bytea, %s::text, %s::text, %b::bytea, %s::bigint, %s::integer, %s::integer, %s::bigint
);

-- name: settle_value
-- Bring the value of one's own claim.
SELECT {schema}.agentkit_settle_value(%b::bytea, %b::bytea, %b::bytea, %s::integer, %s::bigint);

-- name: begin
-- Begin a transaction for a tool.
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;

-- name: patience
-- How long this transaction waits for locks, and what its commit is worth.
SELECT {schema}.agentkit_set(%s::integer);

-- name: limit
-- How long a statement of this transaction may take, and how long it may stand still.
SELECT set_config('statement_timeout', %s::text, true),
       set_config('idle_in_transaction_session_timeout', %s::text, true);

-- name: session_settings
-- What is set in this session.
SELECT name, setting FROM pg_settings WHERE source = 'session'
UNION ALL SELECT 'role', current_setting('role') WHERE current_setting('role') <> 'none';

-- name: reset_session
-- Let the session be as it was opened, as far as it may within a transaction.
RESET SESSION AUTHORIZATION;
RESET ROLE;
RESET ALL;
SELECT pg_advisory_unlock_all();

-- name: forget_tables
-- Drop temporary tables.
DISCARD TEMP;

-- name: set_settings
-- Set again what was set.
SELECT set_config(name, setting, false)
FROM unnest(%s::text[], %s::text[]) WITH ORDINALITY AS s (name, setting, place) ORDER BY place;

-- name: unlock
-- Let go of locks that outlive a transaction.
SELECT pg_advisory_unlock_all();

-- name: standing
-- Which transaction this is, its locks on tables of ours, and what our functions are.
SELECT coalesce(pg_current_xact_id_if_assigned()::text, ''), coalesce(array_agg(
    c.relname || ' ' || l.mode ORDER BY c.relname, l.mode
) FILTER (WHERE c.oid IS NOT NULL), '{}'), (
    SELECT sum(hashtextextended(p.oid || ' ' || p.xmin, 0)) FROM pg_proc AS p
    WHERE p.proname LIKE 'agentkit\_%%' AND p.pronamespace = to_regnamespace(%s)
)
FROM pg_locks AS l LEFT JOIN pg_class AS c
    ON c.oid = l.relation AND c.relnamespace = to_regnamespace(%s) AND c.relname LIKE 'agentkit\_%%'
WHERE l.pid = pg_backend_pid();

-- name: savepoint
-- Begin one statement of a tool.
SAVEPOINT agentkit_statement;

-- name: keep
-- End the statement and keep what it did.
RELEASE SAVEPOINT agentkit_statement;

-- name: undo
-- Forget what the statement did.
ROLLBACK TO SAVEPOINT agentkit_statement;

-- name: constraints
-- Check now what would be checked at the commit.
SET CONSTRAINTS ALL IMMEDIATE;

-- name: commit
-- Make the transaction durable.
COMMIT;

-- name: rollback
-- Forget the transaction.
ROLLBACK;

-- name: vacuum
-- Let new rows use the space of removed ones, and give back what lies at the end of a table.
VACUUM {schema}.agentkit_entry, {schema}.agentkit_run, {schema}.agentkit_value;

-- name: size
-- Bytes on the disk, indexes and what lies outside of the rows included.
SELECT coalesce(sum(pg_total_relation_size(oid)), 0)
FROM pg_class WHERE relnamespace = to_regnamespace(%s) AND relkind = 'r';

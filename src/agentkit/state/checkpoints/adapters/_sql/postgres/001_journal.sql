-- Schema 1: journals, leases, kept values. A run's names find its number; its number its entries.
-- What grows with a tenant's or a run's name is found by a digest, so no name is too long to index.

CREATE TABLE {schema}.agentkit_store (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    forgotten_epoch bigint NOT NULL DEFAULT 0
);
INSERT INTO {schema}.agentkit_store DEFAULT VALUES;

CREATE TABLE {schema}.agentkit_run (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    identity bytea NOT NULL UNIQUE,
    tenancy bytea NOT NULL,
    scope text COLLATE "C" NOT NULL,
    run text COLLATE "C" NOT NULL,
    epoch bigint NOT NULL DEFAULT 0,
    owner text NOT NULL DEFAULT '',
    expires_ms bigint NOT NULL DEFAULT 0,
    claims integer NOT NULL DEFAULT 0,
    claim text NOT NULL DEFAULT '',
    seq bigint NOT NULL DEFAULT 0,
    tip bytea NOT NULL DEFAULT '',
    status text NOT NULL DEFAULT '',
    agent text COLLATE "C" NOT NULL DEFAULT '',
    iteration bigint NOT NULL DEFAULT 0,
    recoveries bigint NOT NULL DEFAULT 0,
    input_tokens bigint NOT NULL DEFAULT 0,
    output_tokens bigint NOT NULL DEFAULT 0,
    requests bigint NOT NULL DEFAULT 0,
    unknown bigint NOT NULL DEFAULT 0,
    cached_tokens bigint NOT NULL DEFAULT 0,
    started_at bigint NOT NULL DEFAULT 0,
    updated_at bigint NOT NULL DEFAULT 0,
    due_at bigint,
    detail bytea NOT NULL DEFAULT ''
) WITH (fillfactor = 50);  -- so that a moved head finds room on its page and no index has to follow
CREATE INDEX agentkit_run_newest ON {schema}.agentkit_run (tenancy, started_at DESC, run);
CREATE INDEX agentkit_run_due ON {schema}.agentkit_run (due_at) WHERE due_at IS NOT NULL;

CREATE TABLE {schema}.agentkit_entry (
    number bigint NOT NULL,
    seq bigint NOT NULL,
    body bytea NOT NULL,
    chained bytea NOT NULL,
    PRIMARY KEY (number, seq)
);

CREATE TABLE {schema}.agentkit_value (
    identity bytea PRIMARY KEY,
    scope text NOT NULL,
    key text NOT NULL,
    token bytea NOT NULL,
    value bytea,
    expires_ms bigint NOT NULL
);
CREATE INDEX agentkit_value_lapse ON {schema}.agentkit_value (expires_ms);

CREATE VIEW {schema}.agentkit_journal AS
    SELECT r.scope, r.run, e.seq, convert_from(e.body, 'UTF8') AS body
    FROM {schema}.agentkit_entry AS e JOIN {schema}.agentkit_run AS r USING (number);

-- The server's time in ms since the Unix epoch; a test may give its own instead.
CREATE FUNCTION {schema}.agentkit_now(given_ms bigint) RETURNS bigint LANGUAGE sql AS $$
    SELECT coalesce(given_ms, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
$$;

-- Settings of this transaction alone, since behind a pooler a session is anybody's: a commit is on
-- the disk when it returns, and nobody waits for a lock for ever.
CREATE FUNCTION {schema}.agentkit_set(wait_ms integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    PERFORM set_config('lock_timeout', wait_ms::text, true);
END $$;

-- Appends of several runs, one transaction and one round trip for all of them, each with a verdict
-- of its own: 'new', 'kept' (the rows are there from an earlier attempt) or 'refused'. The head is
-- as it is then; of a new one the detail is left out. An epoch of -1 makes it a note. `numbers` are
-- ten for each append (-1 in the last: not due), `bodies` and `checks` those of all in a row.
CREATE FUNCTION {schema}.agentkit_append(
    identities bytea[], tenancies bytea[], scopes text[], runs text[], afters bigint[],
    epochs bigint[], owners text[], releases boolean[], statuses text[], agents text[],
    numbers bigint[], details bytea[], counts integer[], bodies bytea[], checks bytea[],
    wait_ms integer, at_ms bigint
) RETURNS TABLE (place integer, verdict text, now_ms bigint, head {schema}.agentkit_run)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    base integer := 0;
    n integer := 0;
BEGIN
    PERFORM {schema}.agentkit_set(wait_ms);
    IF -1 = ANY (epochs) THEN
        INSERT INTO {schema}.agentkit_run (identity, tenancy, scope, run)
        SELECT DISTINCT ON (g.identity) g.identity, g.tenancy, g.scope, g.run
        FROM unnest(identities, tenancies, scopes, runs, afters, epochs)
            AS g (identity, tenancy, scope, run, after, epoch)
        WHERE g.epoch = -1 AND g.after = 0
        ORDER BY g.identity
        ON CONFLICT DO NOTHING;
    END IF;
    IF cardinality(identities) > 1 THEN
        -- In one order for everybody, or two such transactions could wait for each other.
        PERFORM 1 FROM {schema}.agentkit_run AS r
        WHERE r.identity = ANY (identities) ORDER BY r.identity FOR NO KEY UPDATE;
    END IF;
    FOR i IN 1 .. cardinality(identities) LOOP
        UPDATE {schema}.agentkit_run AS r
        SET seq = afters[i] + counts[i],
            tip = CASE WHEN counts[i] > 0 THEN checks[base + counts[i]] ELSE r.tip END,
            claims = CASE WHEN epochs[i] = -1 THEN r.claims ELSE 0 END,
            owner = CASE WHEN releases[i] THEN '' ELSE r.owner END,
            expires_ms = CASE WHEN releases[i] THEN 0 ELSE r.expires_ms END,
            status = statuses[i],
            agent = agents[i],
            iteration = numbers[n + 1],
            recoveries = numbers[n + 2],
            input_tokens = numbers[n + 3],
            output_tokens = numbers[n + 4],
            requests = numbers[n + 5],
            unknown = numbers[n + 6],
            cached_tokens = numbers[n + 7],
            started_at = numbers[n + 8],
            updated_at = numbers[n + 9],
            due_at = nullif(numbers[n + 10], -1),
            detail = details[i]
        WHERE r.identity = identities[i] AND r.scope = scopes[i] AND r.run = runs[i]
            AND r.seq = afters[i]
            AND CASE
                WHEN epochs[i] = -1
                THEN r.seq = 0 OR r.status NOT IN ('done', 'failed', 'cancelled')
                ELSE r.epoch = epochs[i] AND r.owner = owners[i]
            END
        RETURNING r.* INTO head;
        IF FOUND THEN
            INSERT INTO {schema}.agentkit_entry (number, seq, body, chained)
            SELECT head.number, afters[i] + k, bodies[base + k], checks[base + k]
            FROM generate_series(1, counts[i]) AS k;
            verdict := 'new';
            head.detail := NULL;
        ELSE
            SELECT r.* INTO head FROM {schema}.agentkit_run AS r
            WHERE r.identity = identities[i] AND r.scope = scopes[i] AND r.run = runs[i]
            FOR NO KEY UPDATE;
            IF head.seq > afters[i] AND counts[i] > 0 AND counts[i] = (
                SELECT count(*) FROM generate_series(1, counts[i]) AS k
                JOIN {schema}.agentkit_entry AS e
                    ON e.number = head.number AND e.seq = afters[i] + k
                        AND e.body = bodies[base + k] AND e.chained = checks[base + k]
            ) OR counts[i] = 0 AND head.epoch = epochs[i] AND head.owner = '' THEN
                verdict := 'kept';
                IF releases[i] AND head.epoch = epochs[i] AND head.owner = owners[i] THEN
                    UPDATE {schema}.agentkit_run AS r SET owner = '', expires_ms = 0
                    WHERE r.number = head.number
                    RETURNING r.* INTO head;
                END IF;
            ELSE
                verdict := 'refused';
            END IF;
        END IF;
        place := i;
        now_ms := {schema}.agentkit_now(at_ms);
        RETURN NEXT;
        base := base + counts[i];
        n := n + 10;
    END LOOP;
END $$;

-- Take a lease: 'taken' or 'held', whether from somebody who had not given it back, and the head as
-- it is then. A request is known again by its token, as its answer may have been lost.
CREATE FUNCTION {schema}.agentkit_acquire(
    of_identity bytea, of_tenancy bytea, of_scope text, of_run text, new_owner text, ttl_ms bigint,
    token text, supersede bigint, above bigint, wait_ms integer, at_ms bigint, wall_ms bigint
) RETURNS TABLE (verdict text, took_over boolean, now_ms bigint, head {schema}.agentkit_run)
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM {schema}.agentkit_set(wait_ms);
    FOR attempt IN 1 .. 20 LOOP
        SELECT r.* INTO head FROM {schema}.agentkit_run AS r
        WHERE r.identity = of_identity AND r.scope = of_scope AND r.run = of_run
        FOR NO KEY UPDATE;
        EXIT WHEN FOUND;
        INSERT INTO {schema}.agentkit_run (identity, tenancy, scope, run)
        VALUES (of_identity, of_tenancy, of_scope, of_run) ON CONFLICT DO NOTHING;
    END LOOP;
    now_ms := {schema}.agentkit_now(at_ms);
    verdict := 'taken';
    IF head.owner = new_owner AND substr(head.claim, 3) = token THEN
        took_over := left(head.claim, 1) = '1';
    ELSIF head.owner = '' OR head.expires_ms <= now_ms OR head.epoch = supersede THEN
        took_over := head.owner <> ''
            AND (head.seq = 0 OR head.status NOT IN ('done', 'failed', 'cancelled'));
        UPDATE {schema}.agentkit_run AS r
        SET epoch = greatest(
                coalesce(
                    nullif(r.epoch, 0), (SELECT s.forgotten_epoch FROM {schema}.agentkit_store AS s)
                ) + 1,
                above + 1,
                {schema}.agentkit_now(wall_ms)
            ),
            owner = new_owner,
            expires_ms = now_ms + ttl_ms,
            claims = r.claims + CASE WHEN r.owner = '' THEN 0 ELSE 1 END,
            claim = CASE WHEN took_over THEN '1:' ELSE '0:' END || token
        WHERE r.number = head.number
        RETURNING r.* INTO head;
    ELSE
        verdict := 'held';
    END IF;
    RETURN NEXT;
END $$;

-- Extend leases: 'renewed', 'lost', or 'busy' where the head is locked and nothing is waited.
CREATE FUNCTION {schema}.agentkit_renew(
    identities bytea[], scopes text[], runs text[], owners text[], epochs bigint[], ttls_ms bigint[],
    wait_ms integer, at_ms bigint
) RETURNS TABLE (place integer, verdict text, seq bigint)
LANGUAGE plpgsql AS $$
DECLARE
    free bytea[];
BEGIN
    PERFORM {schema}.agentkit_set(wait_ms);
    IF wait_ms > 0 THEN
        PERFORM 1 FROM {schema}.agentkit_run AS r
        WHERE r.identity = ANY (identities) ORDER BY r.identity FOR NO KEY UPDATE;
        free := identities;
    ELSE
        SELECT array_agg(l.identity) INTO free FROM (
            SELECT r.identity FROM {schema}.agentkit_run AS r
            WHERE r.identity = ANY (identities) ORDER BY r.identity FOR NO KEY UPDATE SKIP LOCKED
        ) AS l;
    END IF;
    FOR i IN 1 .. cardinality(identities) LOOP
        place := i;
        seq := 0;
        IF identities[i] = ANY (free) THEN
            UPDATE {schema}.agentkit_run AS r
            SET expires_ms = {schema}.agentkit_now(at_ms) + ttls_ms[i]
            WHERE r.identity = identities[i] AND r.scope = scopes[i] AND r.run = runs[i]
                AND r.owner = owners[i] AND r.epoch = epochs[i]
            RETURNING r.seq INTO seq;
            verdict := CASE WHEN FOUND THEN 'renewed' ELSE 'lost' END;
        ELSE
            PERFORM 1 FROM {schema}.agentkit_run AS r WHERE r.identity = identities[i];
            verdict := CASE WHEN FOUND THEN 'busy' ELSE 'lost' END;
        END IF;
        IF verdict = 'lost' THEN
            SELECT r.seq INTO seq FROM {schema}.agentkit_run AS r
            WHERE r.identity = identities[i] AND r.scope = scopes[i] AND r.run = runs[i];
            seq := coalesce(seq, 0);
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;

-- Remove a run that nobody holds: 'deleted', 'held' (with the head), or no row where there is none.
CREATE FUNCTION {schema}.agentkit_delete(
    of_identity bytea, of_scope text, of_run text, wait_ms integer, at_ms bigint
) RETURNS TABLE (verdict text, now_ms bigint, head {schema}.agentkit_run)
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM {schema}.agentkit_set(wait_ms);
    SELECT r.* INTO head FROM {schema}.agentkit_run AS r
    WHERE r.identity = of_identity AND r.scope = of_scope AND r.run = of_run FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    now_ms := {schema}.agentkit_now(at_ms);
    verdict := 'held';
    IF head.owner = '' OR head.expires_ms <= now_ms THEN
        verdict := 'deleted';
        DELETE FROM {schema}.agentkit_entry AS e WHERE e.number = head.number;
        DELETE FROM {schema}.agentkit_run AS r WHERE r.number = head.number;
        UPDATE {schema}.agentkit_store AS s SET forgotten_epoch = head.epoch
        WHERE s.forgotten_epoch < head.epoch;
    END IF;
    RETURN NEXT;
END $$;

-- Remove the entries of an ended run that nobody holds; whether that was done.
CREATE FUNCTION {schema}.agentkit_entomb(
    of_identity bytea, of_scope text, of_run text, of_update bigint, wait_ms integer, at_ms bigint
) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    buried bigint;
BEGIN
    PERFORM {schema}.agentkit_set(wait_ms);
    UPDATE {schema}.agentkit_run AS r SET tip = ''
    WHERE r.identity = of_identity AND r.scope = of_scope AND r.run = of_run
        AND r.seq > 0 AND r.tip <> '' AND r.status IN ('done', 'failed', 'cancelled')
        AND r.updated_at = of_update
        AND (r.owner = '' OR r.expires_ms <= {schema}.agentkit_now(at_ms))
    RETURNING r.number INTO buried;
    DELETE FROM {schema}.agentkit_entry AS e WHERE e.number = buried;
    RETURN buried IS NOT NULL;
END $$;

-- Claim a key unless it is claimed, and forget some of what has lapsed. Whose it is now.
CREATE FUNCTION {schema}.agentkit_claim_value(
    of_identity bytea, of_scope text, of_key text, new_token bytea, ttl_ms bigint, forget integer,
    wait_ms integer, at_ms bigint
) RETURNS TABLE (token bytea, value bytea)
LANGUAGE plpgsql AS $$
DECLARE
    now_ms bigint;
BEGIN
    PERFORM {schema}.agentkit_set(wait_ms);
    now_ms := {schema}.agentkit_now(at_ms);
    INSERT INTO {schema}.agentkit_value AS v (identity, scope, key, token, expires_ms)
    VALUES (of_identity, of_scope, of_key, new_token, now_ms + ttl_ms)
    ON CONFLICT (identity) DO UPDATE
    SET token = excluded.token, value = NULL, expires_ms = excluded.expires_ms
    WHERE v.expires_ms <= now_ms;
    IF FOUND THEN
        DELETE FROM {schema}.agentkit_value AS v WHERE v.identity IN (
            SELECT l.identity FROM {schema}.agentkit_value AS l
            WHERE l.expires_ms <= now_ms ORDER BY l.expires_ms LIMIT forget FOR UPDATE SKIP LOCKED
        );
    END IF;
    RETURN QUERY SELECT v.token, v.value FROM {schema}.agentkit_value AS v
        WHERE v.identity = of_identity;
END $$;

-- Bring the value of one's own claim; whether it was still there.
CREATE FUNCTION {schema}.agentkit_settle_value(
    of_identity bytea, by_token bytea, new_value bytea, wait_ms integer, at_ms bigint
) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM {schema}.agentkit_set(wait_ms);
    UPDATE {schema}.agentkit_value AS v SET value = new_value
    WHERE v.identity = of_identity AND v.token = by_token
      AND v.expires_ms > {schema}.agentkit_now(at_ms);
    RETURN FOUND;
END $$;

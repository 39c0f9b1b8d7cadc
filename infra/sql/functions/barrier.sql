-- Barrier: everything buffered since the last one, then an effect's intent, in
-- one commit. Rows come as JSON arrays; their binary values stand one after the other in
-- p_blob, each given by its start, counted from 1, and its length (null for no value):
--   checkpoints [ns, id, parent, checkpoint, metadata]
--   blobs       [ns, channel, version, type, start, length]
--   writes      [ns, checkpoint_id, task_id, task_path, idx, channel, type, start, length]
--   replacing_writes  the same, for those that take an older one's place
--   results     [request_id, state, type, start, length, error, attempts]
--   events      [n, type, payload, at in seconds], of this epoch
--   clock       the largest checkpoint id among them

-- Called only when the fence has been passed, in the same transaction.
DROP FUNCTION IF EXISTS fleet.write_rows(text, text, jsonb, bytea);
CREATE OR REPLACE FUNCTION fleet.write_rows(
    p_thread text, p_checkpoints text, p_epoch bigint, p_rows jsonb, p_blob bytea) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF p_rows ? 'events' THEN
        INSERT INTO fleet.events (thread_id, epoch, n, type, payload, at)
        SELECT p_thread, p_epoch, (r->>0)::integer, r->>1, r->2, to_timestamp((r->>3)::float8)
        FROM jsonb_array_elements(p_rows->'events') AS r
        ON CONFLICT DO NOTHING;
    END IF;
    IF p_rows ? 'blobs' THEN
        INSERT INTO checkpoint_blobs (thread_id, checkpoint_ns, channel, version, type, blob)
        SELECT p_checkpoints, r->>0, r->>1, r->>2, r->>3, substring(p_blob FROM (r->>4)::integer FOR (r->>5)::integer)
        FROM jsonb_array_elements(p_rows->'blobs') AS r
        ON CONFLICT DO NOTHING;
    END IF;
    IF p_rows ? 'checkpoints' THEN
        INSERT INTO checkpoints (
            thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, checkpoint, metadata)
        SELECT p_checkpoints, r->>0, r->>1, r->>2, r->3, r->4
        FROM jsonb_array_elements(p_rows->'checkpoints') AS r
        ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id)
        DO UPDATE SET checkpoint = EXCLUDED.checkpoint, metadata = EXCLUDED.metadata;
    END IF;
    IF p_rows ? 'writes' THEN
        INSERT INTO checkpoint_writes (
            thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, blob)
        SELECT p_checkpoints, r->>0, r->>1, r->>2, r->>3, (r->>4)::integer, r->>5, r->>6,
            substring(p_blob FROM (r->>7)::integer FOR (r->>8)::integer)
        FROM jsonb_array_elements(p_rows->'writes') AS r
        ON CONFLICT DO NOTHING;
    END IF;
    IF p_rows ? 'replacing_writes' THEN
        INSERT INTO checkpoint_writes (
            thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, blob)
        SELECT p_checkpoints, r->>0, r->>1, r->>2, r->>3, (r->>4)::integer, r->>5, r->>6,
            substring(p_blob FROM (r->>7)::integer FOR (r->>8)::integer)
        FROM jsonb_array_elements(p_rows->'replacing_writes') AS r
        ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id, task_id, idx)
        DO UPDATE SET channel = EXCLUDED.channel, type = EXCLUDED.type, blob = EXCLUDED.blob;
    END IF;
    FOR n IN 0 .. coalesce(jsonb_array_length(p_rows->'results'), 0) - 1 LOOP
        PERFORM fleet.write_result(p_thread, p_rows->'results'->n, p_blob);
    END LOOP;
END $$;

-- 'forgotten': it did not happen, the same request may be sent again.
CREATE OR REPLACE FUNCTION fleet.write_result(p_thread text, r jsonb, p_blob bytea) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_key    text;
    v_result bytea := substring(p_blob FROM (r->>3)::integer FOR (r->>4)::integer);
    v_now    timestamptz := fleet.now();
BEGIN
    IF r->>1 = 'forgotten' THEN
        DELETE FROM fleet.effects
        WHERE thread_id = p_thread AND request_id = r->>0 AND state = 'intent'
        RETURNING effect_key INTO v_key;
        DELETE FROM fleet.keyed_effects
        WHERE effect_key = v_key AND request_id = r->>0 AND state = 'intent';
        RETURN;
    END IF;
    IF r->>1 NOT IN ('done', 'failed', 'unstorable') THEN
        RAISE EXCEPTION '% is no state of an effect that has ended', r->>1
            USING ERRCODE = 'check_violation';
    END IF;
    UPDATE fleet.effects SET state = r->>1, result_type = r->>2,
        result = v_result, error = nullif(r->5, 'null'),
        attempts = greatest(attempts, (r->>6)::integer), finished_at = v_now
    WHERE thread_id = p_thread AND request_id = r->>0
    RETURNING effect_key INTO v_key;
    IF v_key IS NOT NULL THEN
        UPDATE fleet.keyed_effects SET state = r->>1, result_type = r->>2,
            result = v_result, error = nullif(r->5, 'null'),
            attempts = greatest(attempts, (r->>6)::integer), finished_at = v_now
        WHERE effect_key = v_key;
        -- Safe before the commit: whoever takes the lock next also takes
        -- the row FOR UPDATE, and waits there for this transaction.
        PERFORM pg_advisory_unlock(fleet.effect_lock(v_key));
    END IF;
END $$;

-- An intent {request_id, name, policy, args_hash, effect_key, again, held}: what stood in the
-- ledger before it ('again': one more call begins now), and the intent itself unless the
-- effect is finished already or another session is at the same business effect. p_clock is
-- the newest checkpoint of the step that makes it: amendments go by it.
DROP TYPE IF EXISTS fleet.recorded CASCADE;
CREATE TYPE fleet.recorded AS (
    stop        boolean,   -- the thread is cancelled: nothing was recorded, nothing may be sent
    state       text,      -- new | intent | done | failed | unstorable | busy
    attempts    integer,
    args_hash   text,
    result_type text,
    result      bytea,
    error       jsonb,
    age         float8,
    first_age   float8
);

-- The business effect's own row; null when it is new.
CREATE OR REPLACE FUNCTION fleet.intend_keyed(p_thread text, i jsonb) RETURNS fleet.recorded
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    r     fleet.recorded;
    k     fleet.keyed_effects;
    v_now timestamptz := fleet.now();
BEGIN
    -- Held by this turn already? The lock is counted, and is given back once.
    IF NOT coalesce((i->>'held')::boolean, false)
       AND NOT pg_try_advisory_lock(fleet.effect_lock(i->>'effect_key')) THEN
        r.state := 'busy';
        RETURN r;
    END IF;
    INSERT INTO fleet.keyed_effects (effect_key, request_id, thread_id, name, state, args_hash,
        attempts, first_started_at, started_at)
    VALUES (i->>'effect_key', i->>'request_id', p_thread, i->>'name', 'intent', i->>'args_hash',
        1, v_now, v_now)
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
        RETURN NULL;
    END IF;
    SELECT * INTO k FROM fleet.keyed_effects WHERE effect_key = i->>'effect_key' FOR UPDATE;
    r.state := k.state; r.attempts := k.attempts; r.args_hash := k.args_hash;
    r.result_type := k.result_type; r.result := k.result; r.error := k.error;
    r.age := extract(epoch FROM v_now - k.started_at);
    r.first_age := extract(epoch FROM v_now - k.first_started_at);
    IF k.state <> 'intent' THEN
        PERFORM pg_advisory_unlock(fleet.effect_lock(i->>'effect_key'));
    ELSIF (i->>'again')::boolean THEN
        r.attempts := k.attempts + 1;
        UPDATE fleet.keyed_effects SET attempts = r.attempts, started_at = v_now
        WHERE effect_key = k.effect_key;
    END IF;
    RETURN r;
END $$;

CREATE OR REPLACE FUNCTION fleet.intend(
    p_thread text, p_epoch bigint, p_generation integer, p_seq bigint, p_clock text, i jsonb)
RETURNS fleet.recorded
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    r     fleet.recorded;
    e     fleet.effects;
    v_now timestamptz := fleet.now();
BEGIN
    IF i->>'policy' NOT IN ('resend', 'lookup', 'park') THEN
        RAISE EXCEPTION '% is no policy of an effect', i->>'policy'
            USING ERRCODE = 'check_violation';
    END IF;
    IF i->>'effect_key' IS NOT NULL THEN
        r := fleet.intend_keyed(p_thread, i);
        IF r.state = 'busy' THEN
            RETURN r;
        END IF;
    END IF;
    -- Mostly it is new: one statement then.
    INSERT INTO fleet.effects (thread_id, request_id, generation, seq, name, policy, state,
        effect_key, args_hash, result_type, result, error, attempts, epoch, checkpoint,
        first_started_at, started_at, finished_at)
    VALUES (p_thread, i->>'request_id', p_generation, p_seq, i->>'name', i->>'policy',
        coalesce(r.state, 'intent'), i->>'effect_key', coalesce(r.args_hash, i->>'args_hash'),
        r.result_type, r.result, r.error, coalesce(r.attempts, 1), p_epoch, p_clock,
        v_now - coalesce(r.first_age, 0) * interval '1 s',
        v_now - coalesce(r.age, 0) * interval '1 s',
        CASE WHEN coalesce(r.state, 'intent') <> 'intent' THEN v_now END)
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
        IF r.state IS NULL THEN
            r.state := 'new'; r.attempts := 1; r.args_hash := i->>'args_hash';
            r.age := 0; r.first_age := 0;
        END IF;
        RETURN r;
    END IF;
    SELECT * INTO e FROM fleet.effects WHERE thread_id = p_thread AND request_id = i->>'request_id';
    IF r.state IS NULL THEN
        r.state := e.state; r.attempts := e.attempts; r.args_hash := e.args_hash;
        r.result_type := e.result_type; r.result := e.result; r.error := e.error;
        r.age := extract(epoch FROM v_now - e.started_at);
        r.first_age := extract(epoch FROM v_now - e.first_started_at);
        IF e.state = 'intent' AND (i->>'again')::boolean THEN
            r.attempts := e.attempts + 1;
        END IF;
    END IF;
    IF e.state = 'intent' AND r.state = 'intent' AND (i->>'again')::boolean THEN
        UPDATE fleet.effects SET attempts = r.attempts, started_at = v_now, epoch = p_epoch
        WHERE thread_id = p_thread AND request_id = e.request_id;
    ELSIF e.state = 'intent' AND r.state <> 'intent' THEN
        UPDATE fleet.effects SET state = r.state, result_type = r.result_type, result = r.result,
            error = r.error, finished_at = v_now
        WHERE thread_id = p_thread AND request_id = e.request_id;
    END IF;
    RETURN r;
END $$;

-- The fence comes first: no write of an older epoch, ever.
CREATE OR REPLACE FUNCTION fleet.barrier(
    p_thread text, p_checkpoints text, p_epoch bigint, p_generation integer, p_seq bigint,
    p_rows jsonb, p_blob bytea, p_intent jsonb) RETURNS fleet.recorded
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    r       fleet.recorded;
    v_stop  boolean;
    v_clock text;
BEGIN
    UPDATE fleet.threads SET progress_at = fleet.now(),
        checkpoint_clock = greatest(checkpoint_clock, p_rows->>'clock')
    -- The CASE keeps Postgres from looking the thread up by its status, among all that run
    -- and all that have.
    WHERE thread_id = p_thread AND epoch = p_epoch AND CASE status WHEN 'running' THEN true END
    RETURNING cancel_requested, checkpoint_clock INTO v_stop, v_clock;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'epoch % no longer owns thread %', p_epoch, p_thread USING ERRCODE = 'FL001';
    END IF;
    IF p_rows <> '{}' THEN
        PERFORM fleet.write_rows(p_thread, p_checkpoints, p_epoch, p_rows, p_blob);
    END IF;
    IF p_intent IS NOT NULL AND NOT v_stop THEN
        r := fleet.intend(p_thread, p_epoch, p_generation, p_seq, v_clock, p_intent);
    END IF;
    r.stop := v_stop;
    RETURN r;
END $$;

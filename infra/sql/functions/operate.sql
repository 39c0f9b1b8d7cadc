-- What an operator may do to a thread, a graph's mail or a worker. Outcomes that
-- refuse write nothing. A thread is changed under its own lock, taken for the
-- transaction: a turn under way is never written beside.

-- Effects begun, without a result: nobody knows whether they happened.
CREATE OR REPLACE FUNCTION fleet.effects_in_doubt(p_thread text, p_generation integer) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT coalesce(jsonb_agg(jsonb_build_object('name', name, 'request_id', request_id)
        ORDER BY first_started_at, request_id), '[]')
    FROM fleet.effects
    WHERE thread_id = p_thread AND generation = p_generation AND state = 'intent'
$$;

-- The reply about a message, with what a wake-up for it needs; the sweep's leader
-- is told where the caller has no broker.
CREATE OR REPLACE FUNCTION fleet.operated(p_outcome text, msg fleet.messages, p_notify boolean)
RETURNS jsonb
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF p_notify AND msg.status = 'pending' THEN
        PERFORM pg_notify('fleet_mail', msg.thread_id);
    END IF;
    RETURN jsonb_build_object(
        'outcome', p_outcome, 'thread_id', msg.thread_id, 'seq', msg.seq,
        'message_id', msg.message_id, 'message_status', msg.status, 'queue', msg.queue,
        'wake_limit', fleet.wake_limit(msg.queue));
END $$;

-- Cancel

-- Carry out a requested cancel, unless a turn runs: that one stops by itself.
CREATE OR REPLACE FUNCTION fleet.settle_cancel(p_thread text) RETURNS text
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    t fleet.threads;
BEGIN
    IF NOT pg_try_advisory_xact_lock(fleet.thread_lock(p_thread)) THEN
        RETURN 'requested';
    END IF;
    -- Waits for a turn that has unlocked and is about to commit.
    SELECT * INTO t FROM fleet.threads WHERE thread_id = p_thread FOR UPDATE;
    IF NOT t.cancel_requested THEN
        RETURN CASE t.status WHEN 'cancelled' THEN 'cancelled' ELSE 'finished' END;
    END IF;
    IF t.status IN ('done', 'cancelled') AND NOT EXISTS (
        SELECT FROM fleet.messages
        WHERE thread_id = p_thread AND status IN ('pending', 'claimed', 'in_doubt', 'dead')
    ) THEN
        -- It came too late: the turn had ended.
        UPDATE fleet.threads SET cancel_requested = false WHERE thread_id = p_thread;
        RETURN CASE t.status WHEN 'cancelled' THEN 'cancelled' ELSE 'finished' END;
    END IF;
    PERFORM fleet.call_off(p_thread);
    RETURN 'cancelled';
END $$;

-- The flag first, then the look at the lock: a turn that ends in between has read
-- the flag, or has let go of the lock.
CREATE OR REPLACE FUNCTION fleet.cancel(p_thread text) RETURNS jsonb
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    t         fleet.threads;
    v_outcome text;
BEGIN
    -- After the acceptors: mail that is being accepted is called off too, and none that
    -- comes later has missed the flag. A producer's open transaction is not waited for for ever.
    PERFORM set_config('lock_timeout', '10s', true);
    PERFORM pg_advisory_xact_lock(hashtextextended(p_thread, 1));
    UPDATE fleet.threads SET cancel_requested = true WHERE thread_id = p_thread RETURNING * INTO t;
    IF NOT FOUND THEN
        RETURN jsonb_build_object('outcome', 'unknown_thread');
    END IF;
    v_outcome := fleet.settle_cancel(p_thread);
    RETURN jsonb_build_object('outcome', v_outcome, 'thread_id', p_thread,
        'status', (SELECT status FROM fleet.threads WHERE thread_id = p_thread),
        'in_doubt', fleet.effects_in_doubt(p_thread, t.generation));
END $$;

-- Quarantined mail

-- The thread's row, ours until the transaction ends, or why it can't be.
CREATE OR REPLACE FUNCTION fleet.take_for_operator(
    p_thread text, OUT t fleet.threads, OUT refused jsonb)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM fleet.threads WHERE thread_id = p_thread) THEN
        refused := jsonb_build_object('outcome', 'unknown_thread');
    ELSIF NOT pg_try_advisory_xact_lock(fleet.thread_lock(p_thread)) THEN
        refused := jsonb_build_object('outcome', 'running', 'status', 'running');
    ELSE
        SELECT * INTO t FROM fleet.threads WHERE thread_id = p_thread FOR UPDATE;
    END IF;
END $$;

-- The id of a new request in place of one that failed for good.
CREATE OR REPLACE FUNCTION fleet.renewed_id(p_request text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT 'fr_' || left(encode(sha256(convert_to('renewed ' || p_request, 'UTF8')), 'hex'), 32)
$$;

-- Failures on record: the next call goes on under another request id, which the row
-- of the failed one names (graphs.ledger follows it). A keyed one may have failed in
-- an earlier generation.
CREATE OR REPLACE FUNCTION fleet.renew_failed(p_thread text, p_generation integer) RETURNS jsonb
LANGUAGE sql VOLATILE AS $$
    WITH renewed AS (
        UPDATE fleet.effects SET error = coalesce(error, '{}')
            || jsonb_build_object('renewed_as', fleet.renewed_id(request_id))
        WHERE thread_id = p_thread AND (generation = p_generation OR effect_key IS NOT NULL)
          AND state = 'failed' AND NOT coalesce(error ? 'renewed_as', false)
        RETURNING name, request_id, effect_key, error
    ), keyed AS (
        UPDATE fleet.keyed_effects k SET error = r.error
        FROM renewed r
        WHERE k.effect_key = r.effect_key AND k.state = 'failed'
    )
    SELECT coalesce(jsonb_agg(jsonb_build_object('name', name, 'request_id', request_id,
        'renewed_as', error->>'renewed_as') ORDER BY name, request_id), '[]')
    FROM renewed
$$;

-- A dead message is worked on again, its counts forgotten; one that waits for its
-- next attempt is due now.
CREATE OR REPLACE FUNCTION fleet.retry(p_thread text, p_new_request boolean, p_notify boolean)
RETURNS jsonb
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    taken     record;
    t         fleet.threads;
    msg       fleet.messages;
    v_doubt   jsonb;
    v_renewed jsonb := '[]';
BEGIN
    SELECT * INTO taken FROM fleet.take_for_operator(p_thread);
    IF taken.refused IS NOT NULL THEN
        RETURN taken.refused;
    END IF;
    t := taken.t;
    SELECT * INTO msg FROM fleet.messages
    WHERE thread_id = p_thread AND status IN ('pending', 'claimed', 'in_doubt', 'dead')
    ORDER BY seq LIMIT 1;
    v_doubt := fleet.effects_in_doubt(p_thread, t.generation);
    IF msg.status = 'in_doubt' OR (p_new_request AND v_doubt <> '[]') THEN
        RETURN jsonb_build_object('outcome', 'in_doubt', 'status', t.status, 'in_doubt', v_doubt);
    END IF;
    IF msg.status IS DISTINCT FROM 'dead' AND (p_new_request OR msg.status IS DISTINCT FROM 'pending'
        OR NOT (t.status = 'incompatible' OR (msg.failures > 0 AND msg.available_at > fleet.now())))
    THEN
        RETURN jsonb_build_object('outcome', 'nothing', 'status', t.status);
    END IF;
    IF p_new_request THEN
        v_renewed := fleet.renew_failed(p_thread, t.generation);
        IF v_renewed = '[]' THEN
            RETURN jsonb_build_object('outcome', 'nothing_failed', 'status', t.status,
                'error', msg.error);
        END IF;
    END IF;
    UPDATE fleet.messages SET status = 'pending', crashes = 0, failures = 0, excuses = 0,
        first_failed_at = NULL, available_at = fleet.now(), done_at = NULL, error = NULL
    WHERE thread_id = p_thread AND seq = msg.seq RETURNING * INTO msg;
    UPDATE fleet.threads SET status = 'idle', last_error = NULL, updated_at = fleet.now()
    WHERE thread_id = p_thread;
    PERFORM fleet.tell_status(p_thread, 'retried', jsonb_build_object('message_id', msg.message_id));
    RETURN fleet.operated('retried', msg, p_notify) || jsonb_build_object('renewed', v_renewed);
END $$;

-- The quarantined message is given up, and what came after it goes on.
CREATE OR REPLACE FUNCTION fleet.drop(p_thread text, p_notify boolean) RETURNS jsonb
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    taken     record;
    t         fleet.threads;
    msg       fleet.messages;
    next_msg  fleet.messages;
BEGIN
    SELECT * INTO taken FROM fleet.take_for_operator(p_thread);
    IF taken.refused IS NOT NULL THEN
        RETURN taken.refused;
    END IF;
    t := taken.t;
    UPDATE fleet.messages SET status = 'dropped', done_at = fleet.now()
    WHERE thread_id = p_thread AND seq = (
        SELECT min(seq) FROM fleet.messages
        WHERE thread_id = p_thread AND status IN ('dead', 'in_doubt'))
    RETURNING * INTO msg;
    IF NOT FOUND THEN
        RETURN jsonb_build_object('outcome', 'nothing', 'status', t.status);
    END IF;
    SELECT * INTO next_msg FROM fleet.messages
    WHERE thread_id = p_thread AND status IN ('pending', 'claimed', 'in_doubt', 'dead')
    ORDER BY seq LIMIT 1;
    UPDATE fleet.threads SET updated_at = fleet.now(), last_error = next_msg.error, status = CASE
        WHEN next_msg.status = 'dead' THEN 'failed'
        WHEN next_msg.status = 'in_doubt' THEN 'in_doubt'
        WHEN next_msg.status IS NOT NULL THEN 'idle'
        ELSE fleet.at_rest(p_thread) END
    WHERE thread_id = p_thread RETURNING * INTO t;
    PERFORM fleet.tell_status(p_thread, 'dropped', jsonb_build_object('message_id', msg.message_id));
    RETURN fleet.operated('dropped', next_msg, p_notify) || jsonb_build_object(
        'thread_id', p_thread, 'seq', msg.seq, 'message_id', msg.message_id, 'status', t.status,
        'in_doubt', fleet.effects_in_doubt(p_thread, t.generation));
END $$;

-- Pause: a graph's open mail lies in a queue of its own that nobody takes from.

CREATE OR REPLACE FUNCTION fleet.set_paused(p_graph text, p_paused boolean) RETURNS jsonb
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE fleet.graphs SET paused = p_paused WHERE graph = p_graph;
    IF NOT FOUND THEN
        RETURN jsonb_build_object('outcome', 'unknown_graph',
            'known', (SELECT coalesce(jsonb_agg(graph ORDER BY graph), '[]') FROM fleet.graphs));
    END IF;
    RETURN jsonb_build_object('outcome', 'set');
END $$;

-- Put open mail where its graph's state wants it; how many were moved. Run after
-- each change, and by the sweep for what was accepted meanwhile by a transaction
-- that had read the state before. Rows that a turn holds are left to the next run.
CREATE OR REPLACE FUNCTION fleet.sort_paused() RETURNS integer
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    moved integer;
BEGIN
    IF NOT EXISTS (SELECT FROM fleet.graphs WHERE paused) AND NOT EXISTS (
        SELECT FROM (SELECT DISTINCT queue FROM fleet.graphs) AS g
        JOIN fleet.messages m ON m.queue = 'paused:' || g.queue AND m.status = 'pending'
    ) THEN
        RETURN 0;
    END IF;
    WITH misplaced AS (
        SELECT m.thread_id, m.seq FROM fleet.messages m
        JOIN fleet.threads t USING (thread_id) JOIN fleet.graphs g USING (graph)
        WHERE m.status IN ('pending', 'claimed', 'in_doubt', 'dead')
          AND (g.paused AND m.kind NOT IN ('resolve', 'amend')) <> starts_with(m.queue, 'paused:')
        FOR UPDATE OF m SKIP LOCKED
    )
    UPDATE fleet.messages m SET queue = CASE WHEN starts_with(m.queue, 'paused:')
        THEN substr(m.queue, length('paused:') + 1) ELSE 'paused:' || m.queue END
    FROM misplaced x WHERE m.thread_id = x.thread_id AND m.seq = x.seq;
    GET DIAGNOSTICS moved = ROW_COUNT;
    RETURN moved;
END $$;

-- Workers

CREATE OR REPLACE FUNCTION fleet.drain_worker(p_worker text, p_drain boolean) RETURNS jsonb
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE fleet.workers SET drain_requested = p_drain WHERE worker = p_worker;
    IF NOT FOUND THEN
        RETURN jsonb_build_object('outcome', 'unknown_worker',
            'known', (SELECT coalesce(jsonb_agg(worker ORDER BY worker), '[]') FROM fleet.workers));
    END IF;
    RETURN jsonb_build_object('outcome', 'set');
END $$;

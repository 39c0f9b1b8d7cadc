-- Claim: session advisory lock, the thread's row FOR UPDATE, head-of-line
-- message, new epoch, one crash counted until an orderly outcome takes it back.

-- The message whose turn it is, or why there is none.
CREATE OR REPLACE FUNCTION fleet.head_of_line(
    p_thread text, p_max_crashes integer, OUT result text, OUT msg fleet.messages)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_first   bigint;
    v_restart bigint;
    v_control bigint;
BEGIN
    SELECT min(seq), max(seq) FILTER (WHERE restarts AND status = 'pending'),
           min(seq) FILTER (WHERE kind IN ('resolve', 'amend') AND status IN ('pending', 'claimed'))
    INTO v_first, v_restart, v_control
    FROM fleet.messages
    WHERE thread_id = p_thread AND status IN ('pending', 'claimed', 'in_doubt', 'dead');
    IF v_first IS NULL THEN
        result := 'empty';
        RETURN;
    END IF;
    IF v_restart > v_first THEN
        UPDATE fleet.messages SET status = 'dropped', done_at = fleet.now(), error = 'dropped by a restart'
        WHERE thread_id = p_thread AND seq < v_restart
          AND status IN ('pending', 'claimed', 'in_doubt', 'dead');
        v_first := v_restart;
    END IF;
    SELECT * INTO msg FROM fleet.messages WHERE thread_id = p_thread AND seq = v_first;
    IF msg.status IN ('dead', 'in_doubt') THEN
        IF v_control IS NULL THEN
            result := 'blocked';
            RETURN;
        END IF;
        SELECT * INTO msg FROM fleet.messages WHERE thread_id = p_thread AND seq = v_control;
    END IF;
    IF msg.crashes >= p_max_crashes THEN
        result := 'dead';
    ELSIF msg.status = 'pending' AND msg.available_at > fleet.now() THEN
        result := 'later';
    ELSE
        result := 'claimed';
    END IF;
END $$;

-- Everything the thread still had in mind is called off.
CREATE OR REPLACE FUNCTION fleet.call_off(p_thread text) RETURNS void
LANGUAGE sql VOLATILE AS $$
    UPDATE fleet.messages SET status = 'cancelled', done_at = fleet.now(), error = 'cancelled'
    WHERE thread_id = p_thread AND status IN ('pending', 'claimed', 'in_doubt', 'dead');
    UPDATE fleet.questions SET status = 'superseded' WHERE thread_id = p_thread AND status = 'open';
    UPDATE fleet.threads SET status = 'cancelled', cancel_requested = false, owner = NULL,
        backend_pid = NULL, updated_at = fleet.now()
    WHERE thread_id = p_thread;
$$;

-- The caller holds the advisory lock and, from here on, the row.
CREATE OR REPLACE FUNCTION fleet.claim_locked(p_thread text, p_owner text, p_max_crashes integer)
RETURNS fleet.claimed
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    c    fleet.claimed;
    t    fleet.threads;
    h    record;
    msg  fleet.messages;
    v_cp text;
    v_now timestamptz := fleet.now();
BEGIN
    SELECT * INTO t FROM fleet.threads WHERE thread_id = p_thread FOR UPDATE;
    IF t.thread_id IS NULL THEN
        c.result := 'unknown';
    ELSIF t.cancel_requested THEN
        PERFORM fleet.call_off(p_thread);
        c.result := 'cancelled';
    ELSE
        SELECT head.result, head.msg INTO h FROM fleet.head_of_line(p_thread, p_max_crashes) AS head;
        c.result := h.result;
        msg := h.msg;
        IF c.result = 'dead' THEN
            UPDATE fleet.messages SET status = 'dead', done_at = fleet.now(), error = format(
                'quarantined: its worker process died %s times while it was being worked on', msg.crashes)
            WHERE thread_id = p_thread AND seq = msg.seq
            RETURNING error INTO msg.error;
            UPDATE fleet.threads SET status = 'failed', last_error = msg.error, owner = NULL,
                backend_pid = NULL, updated_at = fleet.now()
            WHERE thread_id = p_thread;
        END IF;
    END IF;
    IF c.result <> 'claimed' THEN
        PERFORM pg_advisory_unlock(fleet.thread_lock(p_thread));
        RETURN c;
    END IF;
    c.epoch := nextval('fleet.epochs');
    UPDATE fleet.threads SET
        status = 'running', epoch = c.epoch, owner = p_owner, backend_pid = pg_backend_pid(),
        generation = generation + (msg.restarts AND msg.claimed_epoch IS NULL)::integer,
        progress_at = v_now, updated_at = v_now
    WHERE thread_id = p_thread RETURNING * INTO t;
    UPDATE fleet.messages SET status = 'claimed', crashes = crashes + 1, claimed_epoch = c.epoch
    WHERE thread_id = p_thread AND seq = msg.seq RETURNING * INTO msg;
    c.thread_id := p_thread; c.tenant := t.tenant; c.graph := t.graph; c.key := t.key;
    c.generation := t.generation; c.fingerprint := t.fingerprint;
    c.checkpoint_clock := t.checkpoint_clock;
    c.seq := msg.seq; c.message_id := msg.message_id; c.kind := msg.kind; c.payload := msg.payload;
    c.crashes := msg.crashes; c.failures := msg.failures;
    c.failing_for := extract(epoch FROM v_now - msg.first_failed_at);
    v_cp := fleet.checkpoint_thread(p_thread, t.generation);
    SELECT cp.checkpoint, cp.checkpoint_id, cp.parent_checkpoint_id, cp.metadata
    INTO c.checkpoint, c.checkpoint_id, c.parent_checkpoint_id, c.metadata
    FROM checkpoints cp WHERE cp.thread_id = v_cp AND cp.checkpoint_ns = ''
    ORDER BY cp.checkpoint_id DESC LIMIT 1;
    IF c.checkpoint_id IS NOT NULL THEN
        SELECT array_agg(ARRAY[convert_to(b.channel, 'UTF8'), convert_to(b.type, 'UTF8'), b.blob])
        INTO c.channel_values
        FROM jsonb_each_text(c.checkpoint->'channel_versions') AS v(channel, version)
        JOIN checkpoint_blobs b ON b.thread_id = v_cp AND b.checkpoint_ns = ''
            AND b.channel = v.channel AND b.version = v.version;
        SELECT array_agg(ARRAY[convert_to(w.task_id, 'UTF8'), convert_to(w.channel, 'UTF8'),
            convert_to(coalesce(w.type, ''), 'UTF8'), w.blob, convert_to(w.task_path, 'UTF8'),
            convert_to(w.idx::text, 'UTF8')])
        INTO c.pending_writes
        FROM checkpoint_writes w
        WHERE w.thread_id = v_cp AND w.checkpoint_ns = '' AND w.checkpoint_id = c.checkpoint_id;
    END IF;
    RETURN c;
END $$;

-- Claim a thread by name. Waits only for a transaction that is about to end:
-- its holder has unlocked already.
CREATE OR REPLACE FUNCTION fleet.claim(p_thread text, p_owner text, p_max_crashes integer)
RETURNS fleet.claimed
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    c fleet.claimed;
BEGIN
    IF NOT pg_try_advisory_lock(fleet.thread_lock(p_thread)) THEN
        c.result := 'busy';
        RETURN c;
    END IF;
    RETURN fleet.claim_locked(p_thread, p_owner, p_max_crashes);
END $$;

-- Claim the queue's next due mail: priority, then tenants in turn, then age.
CREATE OR REPLACE FUNCTION fleet.claim_next(
    p_queue text, p_tenant text, p_owner text, p_max_crashes integer)
RETURNS fleet.claimed
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    c     fleet.claimed;
    cand  record;
    v_now timestamptz := fleet.now();
BEGIN
    FOR cand IN
        WITH RECURSIVE pairs AS (
            (SELECT m.priority, m.tenant FROM fleet.messages m
             WHERE m.queue = p_queue AND m.status = 'pending'
             ORDER BY m.priority DESC, m.tenant LIMIT 1)
            UNION ALL
            SELECT n.priority, n.tenant
            FROM pairs CROSS JOIN LATERAL (
                SELECT m.priority, m.tenant FROM fleet.messages m
                WHERE m.queue = p_queue AND m.status = 'pending' AND (m.priority < pairs.priority
                    OR (m.priority = pairs.priority AND m.tenant > pairs.tenant))
                ORDER BY m.priority DESC, m.tenant LIMIT 1) AS n
        )
        SELECT due.thread_id
        FROM pairs CROSS JOIN LATERAL (
            SELECT m.thread_id, m.available_at FROM fleet.messages m
            WHERE m.queue = p_queue AND m.status = 'pending' AND m.priority = pairs.priority
              AND m.tenant = pairs.tenant AND m.available_at <= v_now
              AND (m.kind IN ('resolve', 'amend') OR NOT EXISTS (
                  SELECT FROM fleet.messages e
                  WHERE e.thread_id = m.thread_id AND e.seq < m.seq
                    AND e.status IN ('pending', 'claimed', 'in_doubt', 'dead')))
            ORDER BY m.available_at LIMIT 8
        ) AS due
        ORDER BY pairs.priority DESC, (pairs.tenant > p_tenant) DESC, pairs.tenant, due.available_at
        LIMIT 16
    LOOP
        IF pg_try_advisory_lock(fleet.thread_lock(cand.thread_id)) THEN
            -- Skipped, not waited for: this may run while the row of the
            -- finished thread is still ours, and two slots could deadlock.
            PERFORM FROM fleet.threads WHERE thread_id = cand.thread_id FOR UPDATE SKIP LOCKED;
            IF FOUND THEN
                c := fleet.claim_locked(cand.thread_id, p_owner, p_max_crashes);
                EXIT WHEN c.result = 'claimed';
            ELSE
                PERFORM pg_advisory_unlock(fleet.thread_lock(cand.thread_id));
            END IF;
        END IF;
    END LOOP;
    IF c.result IS DISTINCT FROM 'claimed' THEN
        c := NULL;
        c.result := 'empty';
    END IF;
    RETURN c;
END $$;

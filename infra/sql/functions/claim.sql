-- Claim: session advisory lock, the thread's row FOR UPDATE, head-of-line
-- message, new epoch, one crash counted until an orderly outcome takes it back.

-- Whether a restart may drop what the thread is about: not while that has an effect in doubt,
-- unless somebody said that it is meant. It may have come to be so after the acceptance.
CREATE OR REPLACE FUNCTION fleet.may_restart(p_thread text, p_forced boolean) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT p_forced OR NOT EXISTS (
        SELECT FROM fleet.effects e JOIN fleet.threads t USING (thread_id)
        WHERE e.thread_id = p_thread AND e.generation = t.generation AND e.state = 'intent'
          AND e.effect_key IS NULL)
$$;

-- Pending messages whose turn it is, as far as one can tell without a claim; see head_of_line.
CREATE OR REPLACE VIEW fleet.heads AS
    SELECT m.thread_id, m.queue, m.tenant, m.priority, m.available_at FROM fleet.messages m
    WHERE m.status = 'pending' AND (
        (m.restarts AND fleet.may_restart(m.thread_id, m.forced))
        OR NOT EXISTS (
            SELECT FROM fleet.messages e
            WHERE e.thread_id = m.thread_id AND e.seq < m.seq
              AND e.status IN ('pending', 'claimed', 'in_doubt', 'dead'))
        OR (m.kind IN ('resolve', 'amend') AND (
            EXISTS (
                SELECT FROM fleet.messages e
                WHERE e.thread_id = m.thread_id AND e.seq < m.seq
                  AND e.status IN ('in_doubt', 'dead'))
            OR EXISTS (
                SELECT FROM fleet.threads t
                WHERE t.thread_id = m.thread_id AND t.status = 'incompatible'))));

-- The message whose turn it is when several are open: a restart drops what stands before
-- it, once it may; a person's word goes first where the thread can't go on without it (the first message
-- is dead or in doubt, or the graph has lost the node at which the thread stands).
CREATE OR REPLACE FUNCTION fleet.head_of_line(p_thread text, p_first fleet.messages)
RETURNS fleet.messages
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    msg       fleet.messages := p_first;
    v_restart bigint;
    v_control bigint;
BEGIN
    SELECT max(seq) FILTER (
               WHERE restarts AND status = 'pending' AND fleet.may_restart(p_thread, forced)),
           min(seq) FILTER (WHERE kind IN ('resolve', 'amend') AND status IN ('pending', 'claimed'))
    INTO v_restart, v_control
    FROM fleet.messages
    WHERE thread_id = p_thread AND status IN ('pending', 'claimed', 'in_doubt', 'dead');
    IF v_restart > msg.seq THEN
        UPDATE fleet.messages SET status = 'dropped', done_at = fleet.now(), error = 'dropped by a restart'
        WHERE thread_id = p_thread AND seq < v_restart
          AND status IN ('pending', 'claimed', 'in_doubt', 'dead');
        SELECT * INTO msg FROM fleet.messages WHERE thread_id = p_thread AND seq = v_restart;
    ELSIF v_control IS NOT NULL AND (msg.status IN ('dead', 'in_doubt') OR EXISTS (
        SELECT FROM fleet.threads WHERE thread_id = p_thread AND status = 'incompatible')) THEN
        SELECT * INTO msg FROM fleet.messages WHERE thread_id = p_thread AND seq = v_control;
    END IF;
    RETURN msg;
END $$;

-- Everything the thread still had in mind is called off. No turn runs.
CREATE OR REPLACE FUNCTION fleet.call_off(p_thread text) RETURNS void
LANGUAGE sql VOLATILE AS $$
    UPDATE fleet.messages SET status = 'cancelled', done_at = fleet.now(), error = 'cancelled'
    WHERE thread_id = p_thread AND status IN ('pending', 'claimed', 'in_doubt', 'dead');
    UPDATE fleet.questions SET status = 'superseded' WHERE thread_id = p_thread AND status = 'open';
    UPDATE fleet.threads SET status = 'cancelled', cancel_requested = false, owner = NULL,
        backend_pid = NULL, updated_at = fleet.now()
    WHERE thread_id = p_thread;
    SELECT fleet.tell_status(p_thread, 'cancelled');
$$;

-- The message has killed its worker process too often.
CREATE OR REPLACE FUNCTION fleet.quarantine(p_thread text, msg fleet.messages) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_error text := format(
        'quarantined: %s attempts at it were lost with their worker process or its connection; '
        'see the worker''s log, then `fleet retry` or `fleet drop` it', msg.crashes);
BEGIN
    UPDATE fleet.messages SET status = 'dead', done_at = fleet.now(), error = v_error
    WHERE thread_id = p_thread AND seq = msg.seq;
    UPDATE fleet.threads SET status = 'failed', last_error = v_error, owner = NULL,
        backend_pid = NULL, updated_at = fleet.now()
    WHERE thread_id = p_thread;
    PERFORM fleet.tell_status(p_thread, 'quarantined', jsonb_build_object(
        'message_id', msg.message_id, 'error', v_error));
END $$;

-- The caller holds the advisory lock and the row, which is t. Few statements, each
-- of which costs more to start than to run: this is in the path of every turn.
CREATE OR REPLACE FUNCTION fleet.claim_row(t fleet.threads, p_owner text, p_max_crashes integer)
RETURNS fleet.claimed
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    c     fleet.claimed;
    msg   fleet.messages;
    first record;
    v_cp  text;
    v_now timestamptz := fleet.now();
BEGIN
    IF t.cancel_requested THEN
        PERFORM fleet.call_off(t.thread_id);
        c.result := 'cancelled';
    ELSE
        SELECT m AS msg, EXISTS (
            SELECT FROM fleet.messages n
            WHERE n.thread_id = m.thread_id AND n.seq > m.seq
              AND n.status IN ('pending', 'claimed', 'in_doubt', 'dead')) AS more
        INTO first FROM fleet.messages m
        WHERE m.thread_id = t.thread_id AND m.status IN ('pending', 'claimed', 'in_doubt', 'dead')
        ORDER BY m.seq LIMIT 1;
        msg := first.msg;
        IF first.more THEN
            msg := fleet.head_of_line(t.thread_id, msg);
        END IF;
        -- What stands in the way of a turn at this message.
        c.result := CASE
            WHEN msg.seq IS NULL THEN 'empty'
            WHEN msg.status IN ('dead', 'in_doubt') THEN 'blocked'
            WHEN msg.crashes >= p_max_crashes THEN 'dead'
            WHEN msg.queue LIKE 'paused:%' THEN 'paused'
            WHEN msg.status = 'pending' AND msg.available_at > v_now THEN 'later'
        END;
        IF c.result = 'dead' THEN
            PERFORM fleet.quarantine(t.thread_id, msg);
        END IF;
    END IF;
    IF c.result IS NOT NULL THEN
        PERFORM pg_advisory_unlock(fleet.thread_lock(t.thread_id));
        RETURN c;
    END IF;
    t.epoch := nextval('fleet.epochs');
    IF msg.restarts AND msg.claimed_epoch IS NULL THEN
        t.generation := t.generation + 1;
        UPDATE fleet.questions SET status = 'superseded' WHERE thread_id = t.thread_id AND status = 'open';
    END IF;
    UPDATE fleet.threads SET
        status = 'running', epoch = t.epoch, owner = p_owner, backend_pid = pg_backend_pid(),
        generation = t.generation, progress_at = v_now, updated_at = v_now
    WHERE thread_id = t.thread_id;
    UPDATE fleet.messages SET status = 'claimed', crashes = crashes + 1, claimed_epoch = t.epoch
    WHERE thread_id = t.thread_id AND seq = msg.seq;
    c := ROW('claimed', t.thread_id, t.tenant, t.graph, t.key, t.generation, t.epoch, t.fingerprint,
        t.checkpoint_clock, msg.seq, msg.message_id, msg.kind, msg.payload, msg.crashes + 1,
        msg.failures, extract(epoch FROM v_now - msg.first_failed_at),
        NULL, NULL, NULL, NULL, NULL, NULL)::fleet.claimed;
    IF msg.claimed_epoch IS NOT NULL THEN
        PERFORM fleet.tell_earlier(msg);
    END IF;
    v_cp := fleet.checkpoint_thread(t.thread_id, t.generation);
    SELECT k.checkpoint, k.checkpoint_id, k.parent_checkpoint_id, k.metadata
    INTO c.checkpoint, c.checkpoint_id, c.parent_checkpoint_id, c.metadata
    FROM checkpoints k
    WHERE k.thread_id = v_cp AND k.checkpoint_ns = '' ORDER BY k.checkpoint_id DESC LIMIT 1;
    IF FOUND THEN
        SELECT
            (SELECT array_agg(ARRAY[convert_to(b.channel, 'UTF8'), convert_to(b.type, 'UTF8'), b.blob])
             FROM jsonb_each_text(c.checkpoint->'channel_versions') AS v(channel, version)
             JOIN checkpoint_blobs b ON b.thread_id = v_cp AND b.checkpoint_ns = ''
                AND b.channel = v.channel AND b.version = v.version),
            (SELECT array_agg(ARRAY[convert_to(w.task_id, 'UTF8'), convert_to(w.channel, 'UTF8'),
                convert_to(coalesce(w.type, ''), 'UTF8'), w.blob, convert_to(w.task_path, 'UTF8'),
                convert_to(w.idx::text, 'UTF8')])
             FROM checkpoint_writes w
             WHERE w.thread_id = v_cp AND w.checkpoint_ns = ''
               AND w.checkpoint_id = c.checkpoint_id)
        INTO c.channel_values, c.pending_writes;
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
    t fleet.threads;
BEGIN
    IF NOT pg_try_advisory_lock(fleet.thread_lock(p_thread)) THEN
        c.result := 'busy';
        RETURN c;
    END IF;
    SELECT * INTO t FROM fleet.threads WHERE thread_id = p_thread FOR UPDATE;
    IF NOT FOUND THEN
        PERFORM pg_advisory_unlock(fleet.thread_lock(p_thread));
        c.result := 'unknown';
        RETURN c;
    END IF;
    RETURN fleet.claim_row(t, p_owner, p_max_crashes);
END $$;

-- Claim the thread unless somebody else has it. Its row is skipped, not waited for: this
-- may run while the row of a finished thread is still ours, and two slots could deadlock.
CREATE OR REPLACE FUNCTION fleet.claim_free(p_thread text, p_owner text, p_max_crashes integer)
RETURNS fleet.claimed
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    c fleet.claimed;
    t fleet.threads;
BEGIN
    c.result := 'busy';
    IF pg_try_advisory_lock(fleet.thread_lock(p_thread)) THEN
        SELECT * INTO t FROM fleet.threads WHERE thread_id = p_thread FOR UPDATE SKIP LOCKED;
        IF FOUND THEN
            RETURN fleet.claim_row(t, p_owner, p_max_crashes);
        END IF;
        PERFORM pg_advisory_unlock(fleet.thread_lock(p_thread));
    END IF;
    RETURN c;
END $$;

-- Heads of line that are due, of one priority and tenant, the oldest first.
CREATE OR REPLACE FUNCTION fleet.due(
    p_queue text, p_priority smallint, p_tenant text, p_now timestamptz, p_most integer)
RETURNS TABLE (thread_id text, available_at timestamptz)
LANGUAGE sql STABLE AS $$
    SELECT h.thread_id, h.available_at FROM fleet.heads h
    WHERE h.queue = p_queue AND h.priority = p_priority AND h.tenant = p_tenant
      AND h.available_at <= p_now
    ORDER BY h.available_at LIMIT p_most
$$;

-- Claim the queue's next due mail: priority, then tenants in turn, then age.
CREATE OR REPLACE FUNCTION fleet.claim_next(
    p_queue text, p_tenant text, p_owner text, p_max_crashes integer)
RETURNS fleet.claimed
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    c       fleet.claimed;
    v_first record;
    v_last  record;
    cand    text;
    v_now   timestamptz := fleet.now();
BEGIN
    SELECT priority, tenant INTO v_first FROM fleet.messages
    WHERE queue = p_queue AND status = 'pending' ORDER BY priority DESC, tenant LIMIT 1;
    IF NOT FOUND THEN
        c.result := 'empty';
        RETURN c;
    END IF;
    SELECT priority, tenant INTO v_last FROM fleet.messages
    WHERE queue = p_queue AND status = 'pending' ORDER BY priority, tenant DESC LIMIT 1;
    IF v_first = v_last THEN
        -- One priority and tenant only, as mostly: nothing to be fair about.
        FOR cand IN
            SELECT due.thread_id
            FROM fleet.due(p_queue, v_first.priority, v_first.tenant, v_now, 3) AS due
        LOOP
            c := fleet.claim_free(cand, p_owner, p_max_crashes);
            IF c.result = 'claimed' THEN
                RETURN c;
            END IF;
        END LOOP;
    END IF;
    FOR cand IN
        WITH RECURSIVE pairs AS (
            SELECT v_first.priority AS priority, v_first.tenant AS tenant
            UNION ALL
            SELECT n.priority, n.tenant
            FROM pairs CROSS JOIN LATERAL (
                SELECT m.priority, m.tenant FROM fleet.messages m
                WHERE m.queue = p_queue AND m.status = 'pending' AND (m.priority < pairs.priority
                    OR (m.priority = pairs.priority AND m.tenant > pairs.tenant))
                ORDER BY m.priority DESC, m.tenant LIMIT 1) AS n
        )
        SELECT due.thread_id
        FROM pairs CROSS JOIN LATERAL
            fleet.due(p_queue, pairs.priority, pairs.tenant, v_now, 8) AS due
        ORDER BY pairs.priority DESC, (pairs.tenant > p_tenant) DESC, pairs.tenant, due.available_at
        LIMIT 16
    LOOP
        c := fleet.claim_free(cand, p_owner, p_max_crashes);
        IF c.result = 'claimed' THEN
            RETURN c;
        END IF;
    END LOOP;
    c := NULL;
    c.result := 'empty';
    RETURN c;
END $$;

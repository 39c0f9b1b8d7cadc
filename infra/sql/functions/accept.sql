-- Accept: the message is committed with the caller's transaction or not at all.
-- Outcomes other than 'accepted' write nothing.

-- Wake-ups that the queue may hold before another one is of no use.
CREATE OR REPLACE FUNCTION fleet.wake_limit(p_queue text) RETURNS integer
LANGUAGE sql STABLE AS $$
    SELECT greatest(coalesce(sum(wakeups), 0), 16)::integer
    FROM fleet.workers
    WHERE p_queue = ANY (queues) AND seen_at > (SELECT fleet.now()) - interval '60 s'
$$;

CREATE OR REPLACE FUNCTION fleet.receipt(p_outcome text, msg fleet.messages, p_status text) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object(
        'outcome', p_outcome, 'thread_id', msg.thread_id, 'seq', msg.seq,
        'message_id', msg.message_id, 'message_status', msg.status,
        'queue', msg.queue, 'wake_limit', fleet.wake_limit(msg.queue), 'status', p_status)
$$;

-- Consume the question by compare-and-set. Null when done, else the refusal.
CREATE OR REPLACE FUNCTION fleet.take_answer(p_thread text, p_status text, m jsonb) RETURNS jsonb
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    q    fleet.questions;
    open text[];
BEGIN
    UPDATE fleet.questions SET
        status = 'answered', answer = m->'payload'->'value', answer_message_id = m->>'message_id',
        answered_by = m->>'answered_by', answered_at = fleet.now()
    WHERE thread_id = p_thread AND question_id = m->>'question_id'
      AND status = 'open' AND (expires_at IS NULL OR expires_at > fleet.now());
    IF FOUND THEN
        RETURN NULL;
    END IF;
    SELECT * INTO q FROM fleet.questions
    WHERE thread_id = p_thread AND question_id = m->>'question_id';
    IF q.status = 'answered' THEN
        RETURN jsonb_build_object('outcome', 'already_answered',
            'answered_by', q.answered_by, 'answered_at', q.answered_at);
    END IF;
    IF q.status IN ('open', 'expired') THEN
        RETURN jsonb_build_object('outcome', 'expired', 'expired_at', q.expires_at);
    END IF;
    SELECT array_agg(question_id ORDER BY asked_at) INTO open
    FROM fleet.questions WHERE thread_id = p_thread AND status = 'open';
    RETURN jsonb_build_object('open', to_jsonb(coalesce(open, '{}')), 'outcome', CASE
        WHEN p_status IN ('done', 'cancelled', 'failed') THEN 'finished'
        WHEN open IS NOT NULL OR q.question_id IS NOT NULL THEN 'stale_question'
        ELSE 'no_question' END);
END $$;

-- What stands against this message; null when nothing does.
CREATE OR REPLACE FUNCTION fleet.refusal(p_thread text, t fleet.threads, m jsonb) RETURNS jsonb
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    latest fleet.messages;
    open   text[];
BEGIN
    IF m->>'kind' = 'start' THEN
        IF NOT EXISTS (SELECT FROM fleet.graphs WHERE graph = m->>'graph') THEN
            RETURN jsonb_build_object('outcome', 'unknown_graph',
                'known', (SELECT coalesce(jsonb_agg(graph ORDER BY graph), '[]') FROM fleet.graphs));
        END IF;
        IF t.thread_id IS NULL OR m->>'on_existing' = 'restart' THEN
            RETURN NULL;
        END IF;
        SELECT * INTO latest FROM fleet.messages
        WHERE thread_id = p_thread AND kind = 'start' ORDER BY seq DESC LIMIT 1;
        RETURN fleet.receipt(
            CASE WHEN m->>'on_existing' = 'reject' THEN 'rejected' ELSE 'existing' END,
            latest, t.status);
    END IF;
    IF t.thread_id IS NULL THEN
        RETURN jsonb_build_object('outcome', 'unknown_thread');
    END IF;
    IF m->>'kind' = 'answer' THEN
        RETURN fleet.take_answer(p_thread, t.status, m);
    END IF;
    IF m->>'kind' = 'input' THEN
        SELECT array_agg(question_id) INTO open
        FROM fleet.questions WHERE thread_id = p_thread AND status = 'open';
        IF open IS NOT NULL THEN
            RETURN jsonb_build_object('outcome', 'question_open', 'open', to_jsonb(open));
        END IF;
    END IF;
    IF m->>'kind' = 'resolve' AND (t.status <> 'in_doubt' OR NOT EXISTS (
        SELECT FROM fleet.effects
        WHERE thread_id = p_thread AND request_id = m->'payload'->>'request_id' AND state = 'intent'
    )) THEN
        RETURN jsonb_build_object('outcome', 'not_in_doubt');
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION fleet.accept(m jsonb) RETURNS jsonb
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_tenant text := coalesce(m->>'tenant', '');
    v_thread text := CASE WHEN v_tenant = '' THEN '' ELSE v_tenant || '/' END
                     || (m->>'graph') || ':' || (m->>'key');
    v_now    timestamptz := fleet.now();
    t        fleet.threads;
    msg      fleet.messages;
    refused  jsonb;
BEGIN
    -- Acceptors of one thread go one after the other, so that seq is the order
    -- of commits. A lock of its own: a turn never waits for a producer.
    IF NOT pg_try_advisory_xact_lock(hashtextextended(v_thread, 1)) THEN
        PERFORM pg_advisory_xact_lock(hashtextextended(v_thread, 1));
    END IF;
    SELECT * INTO t FROM fleet.threads WHERE thread_id = v_thread;
    SELECT * INTO msg FROM fleet.messages
    WHERE thread_id = v_thread AND message_id = m->>'message_id';
    IF FOUND THEN
        RETURN fleet.receipt(
            CASE WHEN msg.payload_hash = m->>'payload_hash' AND msg.kind = m->>'kind'
                 THEN 'duplicate' ELSE 'conflict' END, msg, t.status);
    END IF;
    refused := fleet.refusal(v_thread, t, m);
    IF refused IS NOT NULL THEN
        RETURN refused || jsonb_build_object('thread_id', v_thread, 'status', t.status);
    END IF;
    IF t.thread_id IS NULL THEN
        INSERT INTO fleet.threads (thread_id, tenant, graph, key, created_at, updated_at)
        VALUES (v_thread, v_tenant, m->>'graph', m->>'key', v_now, v_now)
        RETURNING * INTO t;
    ELSIF m->>'on_existing' = 'restart' THEN
        UPDATE fleet.questions SET status = 'superseded' WHERE thread_id = v_thread AND status = 'open';
    END IF;
    INSERT INTO fleet.messages (
        thread_id, seq, message_id, kind, payload, payload_hash, restarts, queue, tenant, priority,
        available_at, accepted_at)
    SELECT v_thread, 1 + coalesce((SELECT max(seq) FROM fleet.messages WHERE thread_id = v_thread), 0),
        m->>'message_id', m->>'kind', m->'payload', m->>'payload_hash',
        m->>'kind' = 'start' AND m->>'on_existing' = 'restart' AND t.created_at < v_now,
        coalesce((SELECT CASE WHEN paused THEN 'paused:' ELSE '' END || queue
                  FROM fleet.graphs WHERE graph = m->>'graph'), 'fleet'), v_tenant,
        coalesce((m->>'priority')::smallint, 0),
        v_now + coalesce((m->>'delay')::float8, 0) * interval '1 s', v_now
    RETURNING * INTO msg;
    IF (m->>'notify')::boolean THEN
        PERFORM pg_notify('fleet_mail', v_thread);
    END IF;
    RETURN fleet.receipt('accepted', msg, t.status);
END $$;

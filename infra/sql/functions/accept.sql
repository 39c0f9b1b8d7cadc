-- Accept: the message is committed with the caller's transaction or not at all.
-- Outcomes other than 'accepted' write nothing.

-- Wake-ups that the queue may hold before another one is of no use.
CREATE OR REPLACE FUNCTION fleet.wake_limit(p_queue text) RETURNS integer
LANGUAGE sql STABLE AS $$
    SELECT greatest(coalesce(sum(wakeups), 0), 16)::integer
    FROM fleet.workers
    WHERE p_queue = ANY (queues) AND NOT draining AND seen_at > (SELECT fleet.now()) - fleet.silent_after()
$$;

CREATE OR REPLACE FUNCTION fleet.receipt(p_outcome text, msg fleet.messages, p_status text) RETURNS jsonb
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN jsonb_build_object(
        'outcome', p_outcome, 'thread_id', msg.thread_id, 'seq', msg.seq,
        'message_id', msg.message_id, 'message_status', msg.status,
        'queue', msg.queue, 'wake_limit', fleet.wake_limit(msg.queue), 'status', p_status);
END $$;

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
      AND status = 'open'
      -- Up to this moment it is a person's to answer, from then on its expiry's.
      AND CASE WHEN (m->>'at_expiry')::boolean THEN expires_at <= fleet.now()
               ELSE expires_at IS NULL OR expires_at > fleet.now() END
      -- A restart that waits for its turn takes the question with it. (In the words of
      -- messages_open: by 'pending' alone Postgres may read all mail that is due.)
      AND NOT EXISTS (
          SELECT FROM fleet.messages
          WHERE thread_id = p_thread AND restarts
            AND status IN ('pending', 'claimed', 'in_doubt', 'dead')
            AND status NOT IN ('claimed', 'in_doubt', 'dead'));
    IF FOUND THEN
        RETURN NULL;
    END IF;
    SELECT * INTO q FROM fleet.questions
    WHERE thread_id = p_thread AND question_id = m->>'question_id';
    IF q.status = 'answered' THEN
        RETURN jsonb_build_object('outcome', 'already_answered',
            'answered_by', q.answered_by, 'answered_at', q.answered_at);
    END IF;
    IF q.status = 'expired' OR (q.status = 'open' AND q.expires_at <= fleet.now()) THEN
        RETURN jsonb_build_object('outcome', 'expired', 'expired_at', q.expires_at);
    END IF;
    SELECT array_agg(question_id ORDER BY asked_at) INTO open
    FROM fleet.questions WHERE thread_id = p_thread AND status = 'open';
    RETURN jsonb_build_object('open', to_jsonb(coalesce(open, '{}')), 'outcome', CASE
        WHEN p_status IN ('done', 'cancelled', 'failed') THEN 'finished'
        WHEN open IS NOT NULL OR q.question_id IS NOT NULL THEN 'stale_question'
        ELSE 'no_question' END);
END $$;

-- What a start anew would do once more although it may have happened: effects begun without
-- a result, and nodes whose work a person has done by hand. Keyed effects are made once in any
-- case. Null when there is none.
CREATE OR REPLACE FUNCTION fleet.repeated_by_restart(p_thread text, p_generation integer) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('in_doubt', coalesce(doubt, '[]'), 'amended', coalesce(amended, '[]'))
    FROM (
        SELECT jsonb_agg(jsonb_build_object('name', name, 'request_id', request_id)
            ORDER BY first_started_at, request_id) AS doubt
        FROM fleet.effects
        WHERE thread_id = p_thread AND generation = p_generation AND state = 'intent'
          AND effect_key IS NULL) AS e,
    (
        SELECT jsonb_agg(DISTINCT payload->>'as_node') AS amended
        FROM fleet.messages
        WHERE thread_id = p_thread AND split_part(kind, '@', 1) = 'amend' AND status = 'done'
          AND seq > coalesce((
              SELECT max(seq) FROM fleet.messages
              WHERE thread_id = p_thread AND split_part(kind, '@', 1) = 'start'
                AND claimed_epoch IS NOT NULL), 0)) AS a
    WHERE doubt IS NOT NULL OR amended IS NOT NULL
$$;

-- What stands against this message; null when nothing does.
CREATE OR REPLACE FUNCTION fleet.refusal(p_thread text, t fleet.threads, m jsonb) RETURNS jsonb
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    latest fleet.messages;
    open   text[];
BEGIN
    IF m->>'kind' = 'start' THEN
        IF t.thread_id IS NULL THEN
            RETURN NULL;
        END IF;
        IF m->>'on_existing' = 'restart' THEN
            IF (m->>'force')::boolean THEN
                RETURN NULL;
            END IF;
            RETURN fleet.repeated_by_restart(p_thread, t.generation) || '{"outcome": "in_doubt"}';
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
        IF t.cancel_requested THEN
            RETURN jsonb_build_object('outcome', 'finished', 'open', '[]'::jsonb);
        END IF;
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
    ) OR EXISTS (
        -- Somebody has said so already, and it is about to be taken down.
        SELECT FROM fleet.messages
        WHERE thread_id = p_thread AND kind = 'resolve' AND status IN ('pending', 'claimed')
          AND payload->>'request_id' = m->'payload'->>'request_id'
    )) THEN
        RETURN jsonb_build_object('outcome', 'not_in_doubt');
    END IF;
    RETURN NULL;
END $$;

-- Doors prepare nothing, and have no settings of ours: without this one Postgres would plan
-- much of it anew each time.
CREATE OR REPLACE FUNCTION fleet.accept(m jsonb) RETURNS jsonb
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_tenant text := coalesce(m->>'tenant', '');
    v_thread text := CASE WHEN v_tenant = '' THEN '' ELSE v_tenant || '/' END
                     || (m->>'graph') || ':' || (m->>'key');
    v_now    timestamptz := fleet.now();
    t        fleet.threads;
    g        fleet.graphs;
    msg      fleet.messages;
    refused  jsonb;
    v_new    boolean;
    v_seq    bigint := 1;
BEGIN
    IF m->>'kind' !~ '^(start|input|answer|amend|resolve|timer)(@[0-9]+)?$' THEN
        RAISE EXCEPTION '% is no kind of a message', m->>'kind' USING ERRCODE = 'check_violation';
    END IF;
    -- Acceptors of one thread go one after the other, so that seq is the order
    -- of commits. A lock of its own: a turn never waits for a producer.
    IF NOT pg_try_advisory_xact_lock(hashtextextended(v_thread, 1)) THEN
        PERFORM pg_advisory_xact_lock(hashtextextended(v_thread, 1));
    END IF;
    SELECT * INTO t FROM fleet.threads WHERE thread_id = v_thread;
    v_new := NOT FOUND;
    IF NOT v_new THEN
        SELECT * INTO msg FROM fleet.messages
        WHERE thread_id = v_thread AND message_id = m->>'message_id';
        IF FOUND THEN
            RETURN fleet.receipt(
                CASE WHEN msg.payload_hash = m->>'payload_hash' AND msg.kind = m->>'kind'
                     THEN 'duplicate' ELSE 'conflict' END, msg, t.status);
        END IF;
    END IF;
    SELECT * INTO g FROM fleet.graphs WHERE graph = m->>'graph';
    IF NOT FOUND AND m->>'kind' = 'start' THEN
        RETURN jsonb_build_object('outcome', 'unknown_graph', 'thread_id', v_thread,
            'status', t.status,
            'known', (SELECT coalesce(jsonb_agg(graph ORDER BY graph), '[]') FROM fleet.graphs));
    END IF;
    refused := fleet.refusal(v_thread, t, m);
    IF refused IS NOT NULL THEN
        RETURN refused || jsonb_build_object('thread_id', v_thread, 'status', t.status);
    END IF;
    IF v_new THEN
        INSERT INTO fleet.threads (thread_id, tenant, graph, key, created_at, updated_at)
        VALUES (v_thread, v_tenant, m->>'graph', m->>'key', v_now, v_now)
        RETURNING * INTO t;
    ELSE
        SELECT 1 + coalesce(max(seq), 0) INTO v_seq FROM fleet.messages WHERE thread_id = v_thread;
    END IF;
    INSERT INTO fleet.messages (
        thread_id, seq, message_id, kind, payload, payload_hash, restarts, forced, queue, tenant, priority,
        available_at, accepted_at)
    VALUES (v_thread, v_seq, m->>'message_id', m->>'kind', m->'payload', m->>'payload_hash',
        m->>'kind' = 'start' AND m->>'on_existing' = 'restart' AND NOT v_new,
        coalesce((m->>'force')::boolean, false),
        CASE WHEN g.paused AND m->>'kind' NOT IN ('resolve', 'amend') THEN 'paused:' ELSE '' END
            || coalesce(g.queue, 'fleet'), v_tenant,
        coalesce((m->>'priority')::smallint, 0),
        v_now + coalesce((m->>'delay')::float8, 0) * interval '1 s', v_now)
    RETURNING * INTO msg;
    IF (m->>'notify')::boolean THEN
        PERFORM pg_notify('fleet_mail', v_thread);
    END IF;
    RETURN fleet.receipt('accepted', msg, t.status);
END $$;

-- As accept, in a transaction of its own that does not wait for ever: another producer's
-- open transaction must not hold it.
CREATE OR REPLACE FUNCTION fleet.accept_soon(m jsonb, p_patience text) RETURNS jsonb
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM set_config('lock_timeout', p_patience, true);
    RETURN fleet.accept(m);
END $$;

-- What an answer meets: the named question in any state, the open ones, and the
-- question that an earlier message of the same id answered. A function, since clients
-- prepare no statements.
CREATE OR REPLACE FUNCTION fleet.asked(p_thread text, p_question text, p_message text) RETURNS jsonb
LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    found jsonb;
BEGIN
    SELECT jsonb_build_object(
        'status', t.status,
        'named', (
            SELECT jsonb_build_object('question_id', q.question_id, 'kind', q.kind,
                'payload', q.payload, 'response_schema', q.response_schema)
            FROM fleet.questions q
            WHERE q.thread_id = t.thread_id AND q.question_id = coalesce(
                p_question,
                (SELECT m.payload->>'question_id' FROM fleet.messages m
                 WHERE m.thread_id = t.thread_id AND m.message_id = p_message
                   AND m.kind = 'answer'),
                (SELECT min(o.question_id) FROM fleet.questions o
                 WHERE o.thread_id = t.thread_id AND o.status = 'open' HAVING count(*) = 1))),
        'open', (
            SELECT coalesce(jsonb_agg(o.question_id ORDER BY o.asked_at, o.question_id), '[]')
            FROM fleet.questions o WHERE o.thread_id = t.thread_id AND o.status = 'open'),
        'latest', (
            SELECT jsonb_build_object('status', l.status, 'answered_by', l.answered_by,
                'answered_at', l.answered_at, 'expired_at', l.expires_at)
            FROM fleet.questions l WHERE l.thread_id = t.thread_id
            ORDER BY l.asked_at DESC, l.question_id LIMIT 1))
    INTO found
    FROM fleet.threads t WHERE t.thread_id = p_thread;
    RETURN found;
END $$;

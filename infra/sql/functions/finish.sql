-- End of a turn: what is buffered, the message, the thread, its question — one
-- transaction (G3) — then the unlock and the next claim in the same round trip.
-- p_end: seq, message (its new status), thread (its new status), error,
--   delay (seconds until it is due again), failed (count this attempt), crashed (count it as a crash),
--   questions [{question_id, kind, payload, response_schema, expires_in, on_expiry}], fingerprint,
--   resumes (true: the in-doubt or dead message before it goes on)
-- p_next: null to stop here, else {owner, max_crashes, queue, tenant}

CREATE OR REPLACE FUNCTION fleet.end_message(p_thread text, p_end jsonb) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_failed  boolean := coalesce((p_end->>'failed')::boolean, false);
    -- Workers of older releases say so of each end, true or false.
    v_crashed boolean := coalesce((p_end->>'crashed')::boolean, false);
    v_now     timestamptz := fleet.now();
BEGIN
    IF p_end->>'message' NOT IN ('pending', 'in_doubt', 'done', 'dead', 'dropped', 'cancelled') THEN
        RAISE EXCEPTION '% is no status of a message that was worked on', p_end->>'message'
            USING ERRCODE = 'check_violation';
    END IF;
    UPDATE fleet.messages SET
        status = p_end->>'message',
        crashes = crashes - (NOT v_crashed)::integer,
        failures = failures + v_failed::integer,
        first_failed_at = CASE WHEN v_failed THEN coalesce(first_failed_at, v_now)
                               ELSE first_failed_at END,
        releases = releases + (p_end->>'message' = 'pending' AND NOT v_failed
            AND NOT v_crashed)::integer,
        available_at = CASE WHEN p_end->>'message' = 'pending'
            THEN v_now + coalesce((p_end->>'delay')::float8, 0) * interval '1 s'
            ELSE available_at END,
        done_at = CASE WHEN p_end->>'message' IN ('done', 'dead', 'cancelled') THEN v_now END,
        error = p_end->>'error'
    WHERE thread_id = p_thread AND seq = (p_end->>'seq')::bigint;
    IF p_end ? 'resumes' THEN
        UPDATE fleet.messages SET status = 'pending', available_at = v_now, error = NULL
        WHERE thread_id = p_thread AND status IN ('in_doubt', 'dead')
          AND seq < (p_end->>'seq')::bigint;
    END IF;
END $$;

-- The status of a thread that has no open mail and whose last message was given up: what
-- its last whole turn left.
CREATE OR REPLACE FUNCTION fleet.at_rest(p_thread text) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    last_msg fleet.messages;
BEGIN
    IF EXISTS (SELECT FROM fleet.questions WHERE thread_id = p_thread AND status = 'open') THEN
        RETURN 'waiting';
    END IF;
    SELECT * INTO last_msg FROM fleet.messages
    WHERE thread_id = p_thread AND kind IN ('start', 'input', 'answer') ORDER BY seq DESC LIMIT 1;
    RETURN CASE
        WHEN last_msg.status = 'done' THEN 'done'
        -- A chat goes on from where its last whole turn left it.
        WHEN last_msg.kind = 'input' AND EXISTS (
            SELECT FROM fleet.messages WHERE thread_id = p_thread AND status = 'done'
              AND kind IN ('start', 'input', 'answer')) THEN 'done'
        ELSE 'cancelled' END;
END $$;

CREATE OR REPLACE FUNCTION fleet.ask(
    p_thread text, p_epoch bigint, p_generation integer, p_questions jsonb) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_now timestamptz := fleet.now();
BEGIN
    IF EXISTS (SELECT FROM fleet.questions WHERE thread_id = p_thread AND status = 'open') THEN
        UPDATE fleet.questions q SET status = 'superseded'
        WHERE q.thread_id = p_thread AND q.status = 'open' AND NOT EXISTS (
            SELECT FROM jsonb_array_elements(p_questions) AS n
            WHERE n->>'question_id' = q.question_id);
    END IF;
    IF p_questions = '[]' THEN
        RETURN;
    END IF;
    INSERT INTO fleet.questions AS q (thread_id, question_id, generation, kind, payload,
        response_schema, asked_epoch, asked_at, expires_at, on_expiry)
    SELECT p_thread, n->>'question_id', p_generation, n->>'kind', n->'payload',
        nullif(n->'response_schema', 'null'), p_epoch, v_now,
        v_now + (n->>'expires_in')::float8 * interval '1 s', nullif(n->'on_expiry', 'null')
    FROM jsonb_array_elements(p_questions) AS n
    ON CONFLICT (thread_id, question_id) DO UPDATE SET
        -- asked again although answered: the answer was refused by the node
        status = 'open', payload = EXCLUDED.payload, response_schema = EXCLUDED.response_schema,
        asked_epoch = EXCLUDED.asked_epoch, asked_at = EXCLUDED.asked_at,
        expires_at = EXCLUDED.expires_at, on_expiry = EXCLUDED.on_expiry, answer = NULL, answer_message_id = NULL,
        answered_by = NULL, answered_at = NULL
    WHERE q.status IN ('superseded', 'expired')
       OR (q.status = 'answered' AND NOT EXISTS (
            SELECT FROM fleet.messages m
            WHERE m.thread_id = p_thread AND m.message_id = q.answer_message_id
              AND m.status IN ('pending', 'claimed', 'in_doubt', 'dead')));
END $$;

CREATE OR REPLACE FUNCTION fleet.finish(
    p_thread text, p_checkpoints text, p_epoch bigint, p_generation integer,
    p_rows jsonb, p_blob bytea, p_end jsonb, p_next jsonb) RETURNS fleet.claimed
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    c        fleet.claimed;
    v_cancel boolean;
    v_now    timestamptz := fleet.now();
BEGIN
    IF p_end->>'thread' NOT IN (
        'idle', 'waiting', 'in_doubt', 'failed', 'incompatible', 'done', 'cancelled') THEN
        RAISE EXCEPTION '% is no status of a thread after a turn', p_end->>'thread'
            USING ERRCODE = 'check_violation';
    END IF;
    -- The fence of a barrier and the thread's end in one update.
    UPDATE fleet.threads SET status = p_end->>'thread', last_error = p_end->>'error',
        fingerprint = coalesce(nullif(p_end->'fingerprint', 'null'), fingerprint),
        checkpoint_clock = greatest(checkpoint_clock, p_rows->>'clock'),
        owner = NULL, backend_pid = NULL, updated_at = v_now
    WHERE thread_id = p_thread AND epoch = p_epoch AND CASE status WHEN 'running' THEN true END
    RETURNING cancel_requested INTO v_cancel;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'epoch % no longer owns thread %', p_epoch, p_thread USING ERRCODE = 'FL001';
    END IF;
    PERFORM fleet.write_rows(p_thread, p_checkpoints, p_epoch, p_rows, p_blob);
    PERFORM fleet.end_message(p_thread, p_end);
    IF p_end ? 'questions' THEN
        PERFORM fleet.ask(p_thread, p_epoch, p_generation, p_end->'questions');
    END IF;
    IF v_cancel AND p_end->>'thread' = 'done' THEN
        -- The cancel came too late for this message, and is not for later ones.
        UPDATE fleet.threads SET cancel_requested = EXISTS (
            SELECT FROM fleet.messages WHERE thread_id = p_thread AND status = 'pending')
        WHERE thread_id = p_thread;
    END IF;
    IF p_end->>'thread' = 'idle' AND NOT EXISTS (
        SELECT FROM fleet.messages
        WHERE thread_id = p_thread AND status IN ('pending', 'claimed', 'in_doubt', 'dead')
    ) THEN
        -- What was to go on has been dropped meanwhile: nobody would ever look at it again.
        UPDATE fleet.threads SET status = fleet.at_rest(p_thread) WHERE thread_id = p_thread;
        PERFORM fleet.tell_status(p_thread, 'dropped');
    END IF;
    -- Before the commit: safe because each claim also takes the row FOR UPDATE.
    PERFORM pg_advisory_unlock_all();
    c.result := 'empty';
    IF p_next IS NULL THEN
        RETURN c;
    END IF;
    -- Asked for in the words of messages_open: by 'pending' alone Postgres may read all mail
    -- that is due.
    IF EXISTS (
        SELECT FROM fleet.messages
        WHERE thread_id = p_thread AND status IN ('pending', 'claimed', 'in_doubt', 'dead')) THEN
        c := fleet.claim(p_thread, p_next->>'owner', (p_next->>'max_crashes')::integer);
    END IF;
    IF c.result <> 'claimed' THEN
        c := fleet.claim_next(p_next->>'queue', p_next->>'tenant', p_next->>'owner',
            (p_next->>'max_crashes')::integer);
    END IF;
    RETURN c;
END $$;

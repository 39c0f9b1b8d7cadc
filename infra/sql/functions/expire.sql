-- Questions that nobody answered in time: what their graph has declared happens, once. An
-- answer and the expiry meet at the question's row, and one of them has it.

-- The answer that the graph gave for this case, accepted as any other. False: it was not.
CREATE OR REPLACE FUNCTION fleet.answer_by_default(t fleet.threads, q fleet.questions)
RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_payload jsonb := jsonb_build_object(
        'question_id', q.question_id, 'value', q.on_expiry->'value');
BEGIN
    RETURN fleet.accept(jsonb_build_object(
        'tenant', t.tenant, 'graph', t.graph, 'key', t.key, 'kind', 'answer',
        'message_id', format('expiry-%s-%s', q.question_id, q.asked_epoch),
        'payload', v_payload,
        'payload_hash', encode(sha256(convert_to(v_payload::text, 'UTF8')), 'hex'),
        'question_id', q.question_id, 'answered_by', 'expiry', 'at_expiry', true,
        'notify', true))->>'outcome' = 'accepted';
END $$;

-- A turn that runs tells of the thread by its end.
CREATE OR REPLACE FUNCTION fleet.tell_expiry(p_thread text, p_reason text, p_more jsonb)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM fleet.threads WHERE thread_id = p_thread AND status = 'running') THEN
        PERFORM fleet.tell_status(p_thread, p_reason, p_more);
    END IF;
END $$;

-- Somebody else is told, and the question stays open for as long again as was declared.
CREATE OR REPLACE FUNCTION fleet.ask_elsewhere(q fleet.questions) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_now   timestamptz := fleet.now();
    v_until timestamptz := v_now + (q.on_expiry->>'seconds')::float8 * interval '1 s';
BEGIN
    UPDATE fleet.questions SET
        expires_at = v_until,
        on_expiry = nullif(q.on_expiry->'then', 'null')
    WHERE thread_id = q.thread_id AND question_id = q.question_id;
    INSERT INTO fleet.notifications (notification_id, thread_id, question_id, asked_epoch,
        channel, round, available_at, created_at)
    SELECT 'msg_' || replace(gen_random_uuid()::text, '-', ''), q.thread_id, q.question_id,
        q.asked_epoch, q.on_expiry->>'channel', 1 + coalesce(max(n.round), 0), v_now, v_now
    FROM fleet.notifications n
    WHERE n.thread_id = q.thread_id AND n.question_id = q.question_id
      AND n.asked_epoch = q.asked_epoch AND n.channel = q.on_expiry->>'channel';
    PERFORM fleet.tell_expiry(q.thread_id, 'question_extended',
        jsonb_build_object('question_id', q.question_id, 'expires_at', v_until));
END $$;

-- One question whose time is over; the caller has its row and its thread's. What became of
-- it: answered | elsewhere | cancelled | expired.
CREATE OR REPLACE FUNCTION fleet.expire_question(t fleet.threads, q fleet.questions) RETURNS text
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_do text := coalesce(q.on_expiry->>'do', 'fail');
BEGIN
    IF v_do = 'notify' THEN
        PERFORM fleet.ask_elsewhere(q);
        RETURN 'elsewhere';
    END IF;
    IF v_do = 'answer' THEN
        IF fleet.answer_by_default(t, q) THEN
            RETURN 'answered';
        END IF;
    END IF;
    UPDATE fleet.questions SET status = 'expired'
    WHERE thread_id = q.thread_id AND question_id = q.question_id;
    IF v_do = 'cancel' THEN
        UPDATE fleet.threads SET cancel_requested = true, last_error = format(
            'nobody answered question %s in time: cancelled, as its graph declared', q.question_id)
        WHERE thread_id = q.thread_id;
        PERFORM fleet.settle_cancel(q.thread_id);
        RETURN 'cancelled';
    END IF;
    RETURN 'expired';
END $$;

-- Nobody answered these, and nothing else was declared for it: a thread that waits for no
-- other answer fails, with the reason.
CREATE OR REPLACE FUNCTION fleet.leave_unanswered(p_thread text, p_gone text[], p_why text)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE fleet.threads SET status = 'failed', updated_at = fleet.now(), last_error = format(
        'nobody answered question %s in time%s; `fleet restart` it, or send it new input',
        array_to_string(p_gone, ', '), p_why)
    WHERE thread_id = p_thread AND status = 'waiting'
      AND NOT EXISTS (
          SELECT FROM fleet.questions WHERE thread_id = p_thread AND status = 'open')
      -- It goes on with the answer to another one.
      AND NOT EXISTS (
          SELECT FROM fleet.messages
          WHERE thread_id = p_thread AND status IN ('pending', 'claimed', 'in_doubt', 'dead'));
    PERFORM fleet.tell_expiry(p_thread, 'question_expired',
        jsonb_build_object('questions', to_jsonb(p_gone)));
END $$;

-- Threads whose row a turn holds, or that a producer is sending to, are left for the next
-- look. Gives the number of questions.
CREATE OR REPLACE FUNCTION fleet.expire_questions() RETURNS integer
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_now     timestamptz := fleet.now();
    v_thread  text;
    v_gone    text[];
    v_why     text;
    v_became  text;
    v_expired integer := 0;
    t         fleet.threads;
    q         fleet.questions;
BEGIN
    FOR v_thread IN
        SELECT DISTINCT thread_id FROM fleet.questions
        WHERE status = 'open' AND expires_at <= v_now LIMIT 500
    LOOP
        -- In the order in which a cancel takes them; an answer takes the first.
        CONTINUE WHEN NOT pg_try_advisory_xact_lock(hashtextextended(v_thread, 1));
        SELECT * INTO t FROM fleet.threads WHERE thread_id = v_thread FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        v_gone := '{}';
        v_why := '';
        FOR q IN
            -- Not one that somebody else has hold of: its answer may have been in time.
            SELECT * FROM fleet.questions
            WHERE thread_id = v_thread AND status = 'open' AND expires_at <= v_now
            ORDER BY asked_at, question_id
            FOR UPDATE SKIP LOCKED
        LOOP
            v_expired := v_expired + 1;
            v_became := fleet.expire_question(t, q);
            -- The others went with it.
            EXIT WHEN v_became = 'cancelled';
            IF v_became = 'expired' THEN
                v_gone := v_gone || q.question_id;
                v_why := coalesce(' (' || (q.on_expiry->>'reason') || ')', v_why);
            END IF;
        END LOOP;
        IF v_gone <> '{}' THEN
            PERFORM fleet.leave_unanswered(v_thread, v_gone, v_why);
        END IF;
    END LOOP;
    RETURN v_expired;
END $$;

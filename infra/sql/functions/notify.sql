-- Who is told of questions that nobody looks at. A notification is worked on by the one
-- notifier that leads its channel; a row that was taken comes due again by itself, so that
-- one whose notifier died in between is sent again, under the same id.

-- The threads that somebody looks at through a gateway that is alive. This function and the
-- next one become part of the statement that asks them: of many rows at once it looks at none
-- one by one.
CREATE OR REPLACE FUNCTION fleet.watched_threads() RETURNS SETOF text
LANGUAGE sql STABLE AS $$
    SELECT thread_id FROM fleet.presence WHERE seen_at > fleet.now() - interval '30 s'
$$;

-- The questions that wait for somebody.
CREATE OR REPLACE FUNCTION fleet.asked_questions() RETURNS SETOF fleet.questions
LANGUAGE sql STABLE AS $$
    SELECT q.* FROM fleet.questions q JOIN fleet.threads t USING (thread_id)
    WHERE q.status = 'open' AND NOT t.cancel_requested
      AND (q.expires_at IS NULL OR q.expires_at > fleet.now())
$$;

CREATE OR REPLACE FUNCTION fleet.connected(p_thread text) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM fleet.watched_threads() AS w WHERE w = p_thread)
$$;

-- Whether the question is open still, as it was when it was asked.
CREATE OR REPLACE FUNCTION fleet.still_asked(n fleet.notifications) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
        SELECT FROM fleet.asked_questions() q
        WHERE q.thread_id = n.thread_id AND q.question_id = n.question_id
          AND q.asked_epoch = n.asked_epoch)
$$;

-- A receiver that is gone gets nothing more. Whether it is.
CREATE OR REPLACE FUNCTION fleet.channel_gone(p_channel text, p_target text) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM fleet.notifications
        WHERE channel = p_channel AND target = p_target AND status = 'gone') THEN
        RETURN false;
    END IF;
    UPDATE fleet.notifications SET status = 'gone', target = p_target
    WHERE channel = p_channel AND status = 'waiting';
    RETURN true;
END $$;

-- Look for questions that nobody looks at: each is to be sent in p_after seconds, unless
-- somebody comes before. Gives how many were found new.
CREATE OR REPLACE FUNCTION fleet.plan_notifications(p_channel text, p_target text, p_after float8)
RETURNS integer
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_now   timestamptz := fleet.now();
    v_found integer;
BEGIN
    UPDATE fleet.notifications n SET status = 'dropped'
    WHERE n.status = 'waiting' AND NOT EXISTS (
        SELECT FROM fleet.asked_questions() q
        WHERE q.thread_id = n.thread_id AND q.question_id = n.question_id
          AND q.asked_epoch = n.asked_epoch);
    DELETE FROM fleet.notifications n
    WHERE n.status = 'waiting' AND n.channel = p_channel AND n.round = 0 AND n.attempts = 0
      AND EXISTS (SELECT FROM fleet.watched_threads() AS w WHERE w = n.thread_id);
    IF fleet.channel_gone(p_channel, p_target) THEN
        RETURN 0;
    END IF;
    INSERT INTO fleet.notifications (notification_id, thread_id, question_id, asked_epoch,
        channel, available_at, created_at)
    SELECT 'msg_' || replace(gen_random_uuid()::text, '-', ''), q.thread_id, q.question_id,
        q.asked_epoch, p_channel, v_now + p_after * interval '1 s', v_now
    FROM fleet.asked_questions() q
    WHERE NOT EXISTS (SELECT FROM fleet.watched_threads() AS w WHERE w = q.thread_id)
      AND NOT EXISTS (
          SELECT FROM fleet.notifications n
          WHERE n.thread_id = q.thread_id AND n.question_id = q.question_id
            AND n.asked_epoch = q.asked_epoch AND n.channel = p_channel AND n.round = 0)
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS v_found = ROW_COUNT;
    RETURN v_found;
END $$;

-- The next one that is due, taken for p_lease seconds, with what its receiver is told; null
-- where there is none. p_hash: of a link's token, null where there is no link.
CREATE OR REPLACE FUNCTION fleet.take_notification(
    p_channel text, p_target text, p_hash bytea, p_lease float8) RETURNS jsonb
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_now timestamptz := fleet.now();
    n     fleet.notifications;
BEGIN
    IF fleet.channel_gone(p_channel, p_target) THEN
        RETURN NULL;
    END IF;
    LOOP
        SELECT * INTO n FROM fleet.notifications
        WHERE channel = p_channel AND status = 'waiting' AND available_at <= v_now
        ORDER BY available_at LIMIT 1 FOR UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
        IF NOT fleet.still_asked(n) THEN
            UPDATE fleet.notifications SET status = 'dropped'
            WHERE notification_id = n.notification_id;
        ELSIF n.round = 0 AND n.attempts = 0 AND fleet.connected(n.thread_id) THEN
            DELETE FROM fleet.notifications WHERE notification_id = n.notification_id;
        ELSE
            EXIT;
        END IF;
    END LOOP;
    UPDATE fleet.notifications SET attempts = attempts + 1, target = p_target,
        available_at = v_now + p_lease * interval '1 s'
    WHERE notification_id = n.notification_id;
    IF p_hash IS NOT NULL THEN
        INSERT INTO fleet.answer_links (token_hash, notification_id, made_at)
        VALUES (p_hash, n.notification_id, v_now);
    END IF;
    RETURN (
        SELECT jsonb_build_object(
            'notification_id', n.notification_id, 'attempt', n.attempts + 1, 'round', n.round,
            'sent_at', v_now, 'thread_id', q.thread_id, 'tenant', t.tenant, 'graph', t.graph,
            'key', t.key, 'question_id', q.question_id, 'kind', q.kind, 'payload', q.payload,
            'response_schema', q.response_schema, 'asked_at', q.asked_at,
            'expires_at', q.expires_at)
        FROM fleet.questions q JOIN fleet.threads t USING (thread_id)
        WHERE q.thread_id = n.thread_id AND q.question_id = n.question_id);
END $$;

-- What came of an attempt. p_end: status, delay (seconds until the next one), code, error
CREATE OR REPLACE FUNCTION fleet.notified(p_id text, p_attempt integer, p_end jsonb) RETURNS void
LANGUAGE sql VOLATILE AS $$
    UPDATE fleet.notifications SET
        status = p_end->>'status', code = (p_end->>'code')::integer, error = p_end->>'error',
        sent_at = CASE WHEN p_end->>'status' = 'sent' THEN fleet.now() END,
        available_at = coalesce(
            fleet.now() + (p_end->>'delay')::float8 * interval '1 s', available_at)
    -- Not where another notifier has taken it up again meanwhile.
    WHERE notification_id = p_id AND attempts = p_attempt AND status = 'waiting'
$$;

-- Begin again with a channel whose receiver was gone, or with what was given up. How many.
CREATE OR REPLACE FUNCTION fleet.notify_again(p_channel text) RETURNS integer
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_again integer;
BEGIN
    UPDATE fleet.notifications n SET status = 'dropped'
    WHERE n.channel = p_channel AND n.status IN ('gone', 'given_up') AND NOT fleet.still_asked(n);
    UPDATE fleet.notifications SET status = 'waiting', attempts = 0, available_at = fleet.now()
    WHERE channel = p_channel AND status IN ('gone', 'given_up');
    GET DIAGNOSTICS v_again = ROW_COUNT;
    RETURN v_again;
END $$;

-- A link's question, as the page behind it shows it; null where there is no such link. spent:
-- the answer that this very link has given; again: the question was asked anew since.
CREATE OR REPLACE FUNCTION fleet.link_seen(p_hash bytea) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object(
        'thread_id', q.thread_id, 'tenant', t.tenant, 'question_id', q.question_id,
        'kind', q.kind, 'payload', q.payload, 'response_schema', q.response_schema,
        'channel', n.channel, 'expires_at', q.expires_at, 'answered_at', q.answered_at,
        'answered_by', q.answered_by, 'spent', EXISTS (
            SELECT FROM fleet.messages m
            WHERE m.thread_id = q.thread_id AND m.message_id = 'link-' || encode(p_hash, 'hex')),
        'state', CASE
            WHEN q.asked_epoch <> n.asked_epoch THEN 'superseded'
            WHEN q.status = 'open' AND q.expires_at <= fleet.now() THEN 'expired'
            WHEN q.status = 'open' AND t.cancel_requested THEN 'superseded'
            ELSE q.status END)
    FROM fleet.answer_links l
    JOIN fleet.notifications n USING (notification_id)
    JOIN fleet.questions q USING (thread_id, question_id)
    JOIN fleet.threads t USING (thread_id)
    WHERE l.token_hash = p_hash
$$;

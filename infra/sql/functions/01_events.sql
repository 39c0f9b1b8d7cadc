-- Events (docs/events.md). Those of a turn come with its barriers and its end; what is here
-- tells of changes that no turn makes.

-- The thread's new status, and why, as an event of an epoch of its own. The caller holds the
-- thread's row and no turn runs: one that still does would be fenced off.
CREATE OR REPLACE FUNCTION fleet.tell_status(
    p_thread text, p_reason text, p_more jsonb DEFAULT '{}') RETURNS void
LANGUAGE sql VOLATILE AS $$
    WITH told AS (
        UPDATE fleet.threads SET epoch = nextval('fleet.epochs')
        WHERE thread_id = p_thread RETURNING epoch, status)
    INSERT INTO fleet.events (thread_id, epoch, n, type, payload, at)
    SELECT p_thread, epoch, 0, 'status',
        jsonb_build_object('status', status, 'reason', p_reason) || p_more, fleet.now()
    FROM told
$$;

-- A worker's stream in the broker has met a newer epoch, p_top, than its own. False: the
-- thread has been claimed since. True: the database has gone back (a standby that lagged took
-- over, a backup): later epochs are above the stream's now, which can be begun anew.
CREATE OR REPLACE FUNCTION fleet.outlive_stream(p_thread text, p_top bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF coalesce((SELECT epoch FROM fleet.threads WHERE thread_id = p_thread), p_top) >= p_top THEN
        RETURN false;
    END IF;
    IF nextval('fleet.epochs') <= p_top THEN
        -- With room for those that are taken meanwhile.
        PERFORM setval('fleet.epochs', p_top + 1000);
    END IF;
    RETURN true;
END $$;

-- Of a message that has been claimed before: which attempt this is (the counts go back to
-- none when somebody retries it), and whether `received` is told already. For who asks in
-- the same statement, see fleet.earlier: workers of older releases read fleet.claimed as it is.
CREATE OR REPLACE FUNCTION fleet.tell_earlier(msg fleet.messages) RETURNS void
LANGUAGE sql VOLATILE AS $$
    SELECT set_config('fleet.earlier', jsonb_build_object(
        'attempt', greatest(2, 1 + msg.crashes + msg.failures + msg.releases + msg.excuses),
        'received', EXISTS (
            SELECT FROM fleet.events
            WHERE thread_id = msg.thread_id AND type = 'received'
              AND payload->>'message_id' = msg.message_id))::text, true)
$$;

-- What this statement's claim has told of earlier ones; null: there were none.
CREATE OR REPLACE FUNCTION fleet.earlier() RETURNS jsonb
LANGUAGE sql VOLATILE AS $$ SELECT nullif(current_setting('fleet.earlier', true), '')::jsonb $$;

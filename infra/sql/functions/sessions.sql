-- Sessions of chat pages and who is there. What a session's state is follows from its
-- thread; the column is kept true by the sweep, and what reads one looks at the thread itself.

CREATE OR REPLACE FUNCTION fleet.session_state(p_thread_status text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE p_thread_status
        WHEN 'waiting' THEN 'interrupted' WHEN 'in_doubt' THEN 'interrupted'
        WHEN 'done' THEN 'completed' WHEN 'cancelled' THEN 'cancelled'
        WHEN 'failed' THEN 'failed' ELSE 'active' END
$$;

-- When somebody who counts was there last.
CREATE OR REPLACE FUNCTION fleet.last_seen(s fleet.sessions) RETURNS timestamptz
LANGUAGE sql STABLE AS $$
    SELECT greatest(s.last_seen_at, (
        SELECT max(seen_at) FROM fleet.presence p WHERE p.thread_id = s.thread_id))
$$;

-- As a door sees one. absent: for how many seconds nobody has been there.
CREATE OR REPLACE FUNCTION fleet.session_seen(s fleet.sessions) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object(
        'session_id', s.session_id, 'tenant', s.tenant, 'user_id', s.user_id, 'graph', s.graph,
        'thread_id', s.thread_id, 'created_at', s.created_at, 'closed_at', s.closed_at,
        'state', CASE WHEN s.closed_at IS NULL THEN fleet.session_state(t.status) ELSE s.state END,
        'thread_status', t.status, 'busy', EXISTS (
            SELECT FROM fleet.messages m WHERE m.thread_id = s.thread_id
              AND m.status IN ('pending', 'claimed')),
        'last_seen_at', l.seen_at,
        'absent', greatest(extract(epoch FROM fleet.now() - l.seen_at), 0)::float8,
        'sensitive', coalesce((SELECT sensitive FROM fleet.graphs g WHERE g.graph = s.graph), false))
    FROM (SELECT fleet.last_seen(s) AS seen_at) AS l
    LEFT JOIN fleet.threads t ON t.thread_id = s.thread_id
$$;

-- A new one, before anything was said in it; null where no such graph is registered.
CREATE OR REPLACE FUNCTION fleet.open_session(
    p_session text, p_tenant text, p_user text, p_graph text, p_thread text) RETURNS jsonb
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    s     fleet.sessions;
    v_now timestamptz := fleet.now();
BEGIN
    IF NOT EXISTS (SELECT FROM fleet.graphs WHERE graph = p_graph) THEN
        RETURN NULL;
    END IF;
    INSERT INTO fleet.sessions (session_id, tenant, user_id, graph, thread_id, state, created_at,
        last_seen_at)
    VALUES (p_session, p_tenant, p_user, p_graph, p_thread, 'active', v_now, v_now)
    ON CONFLICT (session_id) DO UPDATE SET last_seen_at = v_now
    RETURNING * INTO s;
    RETURN fleet.session_seen(s);
END $$;

-- Somebody has come back to a session that was closed for want of anybody, or is about to be.
CREATE OR REPLACE FUNCTION fleet.reopen_session(p_session text) RETURNS void
LANGUAGE sql VOLATILE AS $$
    UPDATE fleet.sessions s SET closed_at = NULL, last_seen_at = fleet.now(),
        state = fleet.session_state((
            SELECT status FROM fleet.threads t WHERE t.thread_id = s.thread_id))
    WHERE session_id = p_session
$$;

-- Of threads that are watched by others than their users, or by nobody known, those where that
-- counts as somebody's being there: all but those of a user's sensitive session.
CREATE OR REPLACE FUNCTION fleet.open_to_guests(p_threads text[]) RETURNS text[]
LANGUAGE sql STABLE AS $$
    SELECT coalesce(array_agg(w.thread_id), '{}') FROM unnest(p_threads) AS w (thread_id)
    WHERE NOT EXISTS (
        SELECT FROM fleet.sessions s JOIN fleet.graphs g USING (graph)
        WHERE s.thread_id = w.thread_id AND s.user_id IS NOT NULL AND g.sensitive)
$$;

-- What a gateway says: who is not watched through it any more (p_gone), who is (p_here). In
-- the order of names, so that two of them never wait for each other.
CREATE OR REPLACE FUNCTION fleet.beat(p_gateway text, p_here text[], p_gone text[]) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF p_gone <> '{}' THEN
        DELETE FROM fleet.presence WHERE gateway = p_gateway AND thread_id = ANY (p_gone);
        PERFORM FROM fleet.sessions WHERE thread_id = ANY (p_gone) ORDER BY thread_id FOR UPDATE;
        UPDATE fleet.sessions SET last_seen_at = fleet.now() WHERE thread_id = ANY (p_gone);
    END IF;
    INSERT INTO fleet.presence AS p (thread_id, gateway, seen_at)
    SELECT thread_id, p_gateway, fleet.now() FROM unnest(p_here) AS thread_id ORDER BY thread_id
    ON CONFLICT (thread_id, gateway) DO UPDATE SET seen_at = EXCLUDED.seen_at;
END $$;

-- The sweep's part: gateways that died without a word, states, and sessions to which nobody
-- has come back for p_timeout seconds and in which nothing is under way. Gives how many
-- were closed.
CREATE OR REPLACE FUNCTION fleet.tend_sessions(p_timeout float8) RETURNS integer
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_now    timestamptz := fleet.now();
    v_closed integer;
BEGIN
    WITH stale AS (
        DELETE FROM fleet.presence p USING (
            SELECT thread_id, gateway FROM fleet.presence WHERE seen_at < v_now - interval '60 s'
            FOR UPDATE SKIP LOCKED) AS old
        WHERE p.thread_id = old.thread_id AND p.gateway = old.gateway
        RETURNING p.thread_id, p.seen_at),
    -- Whoever has the row now says himself that somebody was there.
    alone AS (
        SELECT session_id FROM fleet.sessions WHERE thread_id IN (SELECT thread_id FROM stale)
        FOR UPDATE SKIP LOCKED)
    UPDATE fleet.sessions s SET last_seen_at = greatest(s.last_seen_at, (
        SELECT max(seen_at) FROM stale WHERE stale.thread_id = s.thread_id))
    FROM alone WHERE s.session_id = alone.session_id;

    WITH changed AS (
        SELECT s.session_id, fleet.session_state(t.status) AS state
        FROM fleet.sessions s LEFT JOIN fleet.threads t USING (thread_id)
        WHERE s.closed_at IS NULL AND s.state <> fleet.session_state(t.status)
        FOR UPDATE OF s SKIP LOCKED)
    UPDATE fleet.sessions s SET state = c.state FROM changed c WHERE s.session_id = c.session_id;

    WITH over AS (
        SELECT s.session_id FROM fleet.sessions s LEFT JOIN fleet.threads t USING (thread_id)
        WHERE s.closed_at IS NULL AND s.last_seen_at < v_now - p_timeout * interval '1 s'
          AND t.status IS DISTINCT FROM 'running'
          AND NOT EXISTS (SELECT FROM fleet.presence p WHERE p.thread_id = s.thread_id)
          AND NOT EXISTS (
              SELECT FROM fleet.messages m
              WHERE m.thread_id = s.thread_id AND m.status IN ('pending', 'claimed'))
        ORDER BY s.last_seen_at LIMIT 500
        FOR UPDATE OF s SKIP LOCKED)
    UPDATE fleet.sessions s SET closed_at = v_now,
        state = CASE WHEN s.state IN ('active', 'interrupted') THEN 'timed_out' ELSE s.state END
    FROM over o WHERE s.session_id = o.session_id;
    GET DIAGNOSTICS v_closed = ROW_COUNT;
    RETURN v_closed;
END $$;

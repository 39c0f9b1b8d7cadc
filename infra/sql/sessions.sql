-- name: open_session
SELECT fleet.open_session(%(session_id)s, %(tenant)s, %(user_id)s, %(graph)s, %(thread_id)s) AS session;

-- name: find_session
SELECT fleet.session_seen(s) AS session FROM fleet.sessions s WHERE session_id = %(session_id)s;

-- name: reopen_session
SELECT fleet.reopen_session(%(session_id)s);

-- name: list_sessions
-- Of one user, or of all where none is named; newest first.
SELECT fleet.session_seen(s) AS session FROM fleet.sessions s
WHERE tenant = %(tenant)s AND (%(user_id)s::text IS NULL OR user_id = %(user_id)s)
ORDER BY created_at DESC, session_id LIMIT %(limit)s;

-- name: session_owner
-- absent: for how many seconds nobody has been there; null unless its graph is sensitive.
SELECT s.user_id, l.seen_at AS last_seen_at,
    extract(epoch FROM fleet.now() - l.seen_at)::float8 AS absent
FROM fleet.sessions s LEFT JOIN fleet.graphs g ON g.graph = s.graph
CROSS JOIN LATERAL (SELECT CASE WHEN g.sensitive THEN fleet.last_seen(s) END AS seen_at) AS l
WHERE s.thread_id = %(thread_id)s AND s.tenant = %(tenant)s;

-- name: session_head
-- The newest event of those that are kept, and the open questions that were asked by the one
-- that a page has seen last.
SELECT (SELECT epoch || '-' || n FROM fleet.events WHERE thread_id = %(thread_id)s
        ORDER BY epoch DESC, n DESC LIMIT 1) AS head,
    (SELECT coalesce(array_agg(q.question_id), '{}') FROM fleet.questions q
     WHERE q.thread_id = %(thread_id)s AND q.status = 'open' AND EXISTS (
         SELECT FROM fleet.events e
         WHERE e.thread_id = q.thread_id AND e.epoch = q.asked_epoch AND e.type = 'question'
           AND e.payload->>'question_id' = q.question_id
           AND (e.epoch, e.n) <= (%(epoch)s, %(n)s))) AS shown;

-- name: question_asked
SELECT question_id, kind, payload, response_schema, expires_at::text FROM fleet.questions
WHERE thread_id = %(thread_id)s AND question_id = %(question_id)s;

-- name: session_message
-- What was said under a message_id, and what the thread asks: before something is said.
SELECT json_build_object(
    'known', t.thread_id IS NOT NULL, 'status', t.status,
    'said', (SELECT json_build_object('kind', m.kind, 'payload', m.payload) FROM fleet.messages m
        WHERE m.thread_id = n.thread_id AND m.message_id = %(message_id)s),
    'questions', (
        SELECT coalesce(json_agg(json_build_object('question_id', question_id, 'kind', kind,
            'text', kind = 'clarify' OR (payload->'text') = 'true'::jsonb) ORDER BY asked_at), '[]')
        FROM fleet.questions q WHERE q.thread_id = n.thread_id AND q.status = 'open')) AS standing
FROM (SELECT %(thread_id)s::text AS thread_id) AS n LEFT JOIN fleet.threads t USING (thread_id);

-- name: moment
SELECT fleet.now() AS now;

-- name: beat
SELECT fleet.beat(%(gateway)s, %(here)s::text[] || fleet.open_to_guests(%(guests)s),
    %(gone)s::text[] || fleet.open_to_guests(%(guests_gone)s));

-- name: tend_sessions
SELECT fleet.tend_sessions(%(timeout)s) AS closed;

-- name: forget_sessions
-- Closed for a day without a word ever said: they have no thread with which they would go.
DELETE FROM fleet.sessions WHERE session_id IN (
    SELECT session_id FROM fleet.sessions s
    WHERE state = 'timed_out' AND closed_at < fleet.now() - interval '1 day'
      AND NOT EXISTS (SELECT FROM fleet.threads t WHERE t.thread_id = s.thread_id)
    LIMIT 1000);

-- name: sessions_by_state
SELECT state, count(*) FROM fleet.sessions GROUP BY state;

-- What is read of threads that somebody watches. Each gives JSON as text.

-- name: events_after
SELECT json_build_array(epoch || '-' || n, type, at, payload)::text FROM fleet.events
WHERE thread_id = %(thread_id)s AND (epoch, n) > (%(epoch)s, %(n)s)
ORDER BY epoch, n

-- Of many threads at once, those that have more than was seen, and the end of it. The LIMIT
-- makes it one look into the index for each.
-- name: events_ahead
SELECT json_build_array(w.thread_id, e.epoch, e.n)::text
FROM unnest(%(threads)s::text[], %(epochs)s::bigint[], %(ns)s::integer[]) AS w (thread_id, epoch, n)
CROSS JOIN LATERAL (
    SELECT epoch, n FROM fleet.events
    WHERE thread_id = w.thread_id AND (epoch, n) > (w.epoch, w.n)
    ORDER BY epoch DESC, n DESC LIMIT 1) AS e

-- name: events_known
SELECT json_build_array(epoch, n)::text
FROM fleet.events JOIN unnest(%(epochs)s::bigint[], %(ns)s::integer[]) AS w (epoch, n)
    USING (epoch, n)
WHERE thread_id = %(thread_id)s

-- name: newest_event
SELECT json_build_array(epoch, n)::text FROM fleet.events
WHERE thread_id = %(thread_id)s ORDER BY epoch DESC, n DESC LIMIT 1

-- name: one_moment
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY

-- A thread as ThreadStatus has it, with the mail that is not done and without its effects;
-- the newest event, how old it is, and the messages of the
-- present epoch: their numbers, and the names that deltas of them went by.
-- name: watched_thread
SELECT json_build_object(
    'thread', json_build_object(
        'thread_id', t.thread_id, 'tenant', t.tenant, 'graph', t.graph, 'key', t.key,
        'generation', t.generation, 'status', t.status, 'epoch', t.epoch, 'owner', t.owner,
        'cancel_requested', t.cancel_requested, 'last_error', t.last_error,
        'created_at', t.created_at, 'updated_at', t.updated_at, 'effects', '[]'::json,
        'questions', (
            SELECT coalesce(json_agg(json_build_object(
                'question_id', q.question_id, 'kind', q.kind, 'payload', q.payload,
                'response_schema', q.response_schema, 'asked_at', q.asked_at,
                'expires_at', q.expires_at) ORDER BY q.asked_at, q.question_id), '[]')
            FROM fleet.questions q WHERE q.thread_id = t.thread_id AND q.status = 'open'),
        'messages', (
            SELECT coalesce(json_agg(json_build_object(
                'seq', m.seq, 'message_id', m.message_id, 'kind', m.kind, 'status', m.status,
                'crashes', m.crashes, 'failures', m.failures, 'error', m.error,
                'generation', t.generation, 'accepted_at', m.accepted_at,
                'available_at', m.available_at, 'done_at', m.done_at) ORDER BY m.seq), '[]')
            FROM fleet.messages m WHERE m.thread_id = t.thread_id
              AND m.status IN ('pending', 'claimed', 'in_doubt', 'dead'))),
    'head', json_build_array(e.epoch, e.n),
    'head_age', coalesce(extract(epoch FROM fleet.now() - e.at), 1e9),
    'told', (
        SELECT coalesce(json_agg(json_build_array(
            n, payload->'message_id', payload->'streamed_as', payload->'removed')), '[]')
        FROM fleet.events
        WHERE thread_id = t.thread_id AND epoch = t.epoch AND type = 'message'))::text
FROM fleet.threads t
LEFT JOIN LATERAL (
    SELECT epoch, n, at FROM fleet.events
    WHERE thread_id = t.thread_id ORDER BY epoch DESC, n DESC LIMIT 1) AS e ON true
WHERE t.thread_id = %(thread_id)s

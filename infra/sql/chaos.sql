-- name: chaos_threads
-- Where each thread of a chaos run stands; wait: seconds until its mail is due.
SELECT t.thread_id, t.status, t.epoch, t.last_error,
    coalesce(m.claimed, false) AS claimed, m.wait, coalesce(m.failures, 0) AS failures
FROM fleet.threads t
LEFT JOIN LATERAL (
    SELECT bool_or(status = 'claimed') AS claimed, max(failures) AS failures,
        extract(epoch FROM min(available_at) FILTER (WHERE status = 'pending')
            - (SELECT fleet.now()))::float8 AS wait
    FROM fleet.messages WHERE thread_id = t.thread_id AND status IN ('pending', 'claimed')
) AS m ON true;

-- name: chaos_move_clock
SELECT fleet.move_clock(make_interval(secs => %(seconds)s));

-- name: chaos_running
-- Turns under way, and which process of which worker has each.
SELECT thread_id, epoch, owner FROM fleet.threads WHERE status = 'running' AND owner IS NOT NULL;

-- name: chaos_threads_now
SELECT thread_id, epoch, status FROM fleet.threads WHERE thread_id = ANY(%(threads)s);

-- name: chaos_open
-- Where these threads stand, with the question that each may have open.
SELECT t.thread_id, t.status, q.question_id
FROM fleet.threads t
LEFT JOIN fleet.questions q ON q.thread_id = t.thread_id AND q.status = 'open'
WHERE t.thread_id = ANY(%(threads)s);

-- name: chaos_terminate
-- Every session of this database but our own.
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid();

-- name: chaos_about
-- All that is stored of a thread but its payloads.
SELECT jsonb_build_object(
    'thread', (SELECT to_jsonb(t) FROM fleet.threads t WHERE t.thread_id = given.thread_id),
    'messages', (SELECT jsonb_agg(to_jsonb(m) - 'payload' ORDER BY m.seq)
        FROM fleet.messages m WHERE m.thread_id = given.thread_id),
    'effects', (SELECT jsonb_agg(to_jsonb(e) - 'result' ORDER BY e.started_at)
        FROM fleet.effects e WHERE e.thread_id = given.thread_id),
    'questions', (SELECT jsonb_agg(to_jsonb(q) - 'payload' - 'answer')
        FROM fleet.questions q WHERE q.thread_id = given.thread_id),
    'checkpoints', (SELECT jsonb_agg(jsonb_build_array(
            c.checkpoint_ns, c.checkpoint_id, c.parent_checkpoint_id, c.metadata)
            ORDER BY c.checkpoint_ns, c.checkpoint_id)
        FROM checkpoints c WHERE split_part(c.thread_id, '#', 1) = given.thread_id))
FROM (SELECT %(thread_id)s::text AS thread_id) AS given;

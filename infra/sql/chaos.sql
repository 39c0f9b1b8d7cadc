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

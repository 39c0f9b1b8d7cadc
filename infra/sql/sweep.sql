-- name: orphans
-- Claimed messages whose thread lock nobody holds: their worker is gone. owner: how the
-- names of their claims' owners begin.
SELECT m.thread_id, m.queue, m.claimed_epoch
FROM fleet.threads t JOIN fleet.messages m USING (thread_id)
WHERE t.status = 'running' AND m.status = 'claimed' AND NOT starts_with(m.queue, 'paused:')
  AND starts_with(t.owner, %(owner)s)
  AND NOT EXISTS (
    SELECT FROM pg_locks l
    WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND ((l.classid::bigint << 32) | l.objid::bigint) = fleet.thread_lock(m.thread_id))
LIMIT 500;

-- name: overdue
-- Heads of line that have been due for a while.
SELECT thread_id, queue
FROM fleet.heads
WHERE available_at < (SELECT fleet.now()) - %(after)s * interval '1 s'
  AND NOT starts_with(queue, 'paused:')
ORDER BY available_at
LIMIT 500;

-- name: due_now
-- Due for the first time since the last tick: a retry whose delay has run out.
SELECT m.thread_id, m.queue
FROM fleet.messages m
WHERE m.status = 'pending' AND m.available_at > m.accepted_at
  AND NOT starts_with(m.queue, 'paused:')
  AND m.available_at BETWEEN (SELECT fleet.now()) - interval '2 s' AND (SELECT fleet.now())
LIMIT 500;

-- name: wake_limits
SELECT queue, fleet.wake_limit(queue) FROM unnest(%(queues)s::text[]) AS queue;

-- name: stuck
-- Turns without progress; ending their backend ends lock and writes at once.
SELECT t.thread_id, t.backend_pid, pg_terminate_backend(t.backend_pid)
FROM fleet.threads t
WHERE t.status = 'running' AND t.progress_at < (SELECT fleet.now()) - %(after)s * interval '1 s'
  AND EXISTS (
    SELECT FROM pg_locks l
    WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted AND l.pid = t.backend_pid
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND ((l.classid::bigint << 32) | l.objid::bigint) = fleet.thread_lock(t.thread_id));

-- name: lead
SELECT pg_try_advisory_lock(hashtextextended('fleet.sweeper', 3));

-- name: leader
-- This database's leader: its backend, and how long ago it last said anything; 0 where the
-- server does not tell us (track_activities is off, the session is another role's).
SELECT l.pid, coalesce(extract(epoch FROM clock_timestamp() - a.state_change), 0)::float8
FROM pg_locks l JOIN pg_stat_activity a USING (pid)
WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND ((l.classid::bigint << 32) | l.objid::bigint) = hashtextextended('fleet.sweeper', 3);

-- name: terminate
SELECT pg_terminate_backend(%(pid)s);

-- name: heartbeat
INSERT INTO fleet.workers (worker, queues, slots, wakeups, pool, started_at, seen_at, draining, schema)
VALUES (%(worker)s, %(queues)s, %(slots)s, %(wakeups)s, %(pool)s, fleet.now(), fleet.now(), %(draining)s,
    %(schema)s)
ON CONFLICT (worker) DO UPDATE SET queues = EXCLUDED.queues, slots = EXCLUDED.slots,
    wakeups = EXCLUDED.wakeups, pool = EXCLUDED.pool, seen_at = EXCLUDED.seen_at,
    draining = EXCLUDED.draining, schema = EXCLUDED.schema;

-- name: goodbye
-- Where one leaves, the others may have what it lacked: it has put off what it could not serve.
WITH put_off AS (
    SELECT m.thread_id, m.seq
    FROM fleet.threads t JOIN fleet.messages m USING (thread_id)
    WHERE t.status = 'incompatible' AND m.status = 'pending' AND m.available_at > fleet.now()
      AND m.claimed_epoch IS NOT NULL
    FOR UPDATE OF m SKIP LOCKED
), looked_at AS (
    UPDATE fleet.messages m SET available_at = fleet.now() FROM put_off p
    WHERE m.thread_id = p.thread_id AND m.seq = p.seq
)
DELETE FROM fleet.workers
WHERE worker = %(worker)s OR seen_at < fleet.now() - interval '1 day';

-- name: reject_wakeup
INSERT INTO fleet.rejected_wakeups (at, reason, body) VALUES (fleet.now(), %(reason)s, left(%(body)s, 4000));

-- name: next_due
SELECT m.thread_id FROM fleet.heads m
WHERE m.queue = %(queue)s AND m.available_at <= (SELECT fleet.now())
ORDER BY m.priority DESC, m.tenant, m.available_at LIMIT 1;

-- name: queue_of
SELECT queue FROM fleet.messages
WHERE thread_id = %(thread_id)s AND status = 'pending' AND NOT starts_with(queue, 'paused:')
ORDER BY seq LIMIT 1;

-- name: drain_requested
SELECT drain_requested FROM fleet.workers WHERE worker = %(worker)s;

-- name: begin_afresh
-- What was asked of an earlier worker of this name.
UPDATE fleet.workers SET drain_requested = false, started_at = fleet.now()
WHERE worker = %(worker)s;

-- name: look_again
-- A new worker may have the nodes that others lacked.
UPDATE fleet.messages m SET available_at = fleet.now()
FROM fleet.threads t
WHERE t.status = 'incompatible' AND m.thread_id = t.thread_id AND m.status = 'pending'
  AND m.available_at > fleet.now() AND m.claimed_epoch IS NOT NULL;

-- name: newest_worker
SELECT extract(epoch FROM fleet.now() - max(started_at))::float8 FROM fleet.workers
WHERE seen_at > fleet.now() - fleet.silent_after();

-- name: to_be_cancelled
-- Threads whose cancel no turn has carried out: it may have come between two of them.
SELECT thread_id FROM fleet.threads WHERE cancel_requested LIMIT 500;

-- name: settle_cancel
-- Each in a transaction of its own: it may meet a row that somebody's open one holds.
SELECT fleet.settle_cancel(%(thread_id)s);

-- name: sort_paused_mail
SELECT fleet.sort_paused();

-- name: expire_questions
SELECT fleet.expire_questions();

-- name: outlive_stream
SELECT fleet.outlive_stream(%(thread_id)s, %(top)s);

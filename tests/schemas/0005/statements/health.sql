-- name: mailbox_depth
SELECT queue, count(*), greatest(
    extract(epoch FROM (SELECT fleet.now()) - min(available_at)), 0)::float8
FROM fleet.messages WHERE status = 'pending' GROUP BY queue;

-- name: threads_open
SELECT status, count(*) FROM fleet.threads
WHERE status IN ('idle', 'running', 'waiting', 'in_doubt', 'failed', 'incompatible')
GROUP BY status;

-- name: short_patience
SET statement_timeout = '2s';

-- name: workers_seen
-- One worker, or all: first those that take turns, then those seen last.
SELECT worker, extract(epoch FROM (SELECT fleet.now()) - seen_at)::float8, draining
FROM fleet.workers
WHERE worker = coalesce(%(worker)s::text, worker)
ORDER BY draining, seen_at DESC;

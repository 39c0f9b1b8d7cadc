-- name: bench_questions
-- As `status` shows them, of all threads.
SELECT thread_id, question_id, kind, payload, response_schema, asked_at, expires_at
FROM fleet.questions WHERE status = 'open' ORDER BY asked_at LIMIT 100;

-- name: bench_unfinished
SELECT count(*) FROM fleet.messages WHERE status IN ('pending', 'claimed', 'in_doubt', 'dead');

-- name: bench_not_done
SELECT count(*) FROM fleet.threads WHERE status <> 'done';

-- name: bench_transactions
-- Transactions that wrote something have numbers; the growth counts commits.
SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint;

-- name: bench_ready_workers
SELECT count(*) FROM fleet.workers WHERE worker = %(worker)s AND NOT draining;

-- name: bench_thread
SELECT epoch, status, owner FROM fleet.threads WHERE thread_id = %(thread_id)s;

-- name: bench_crashes
SELECT coalesce(sum(crashes), 0) FROM fleet.messages WHERE thread_id = %(thread_id)s;

-- name: sweep_leader
-- The session that leads the sweep is named after its worker.
SELECT a.application_name
FROM pg_locks l JOIN pg_stat_activity a USING (pid)
WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND ((l.classid::bigint << 32) | l.objid::bigint) = hashtextextended('fleet.sweeper', 3);

-- name: bench_draining
SELECT draining FROM fleet.workers WHERE worker = %(worker)s;

-- name: bench_busy_owner
-- Of a turn that is under way, any of them.
SELECT owner FROM fleet.threads
WHERE status = 'running' AND owner IS NOT NULL ORDER BY random() LIMIT 1;

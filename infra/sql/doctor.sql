-- What `fleet doctor` asks of Postgres; see producers.doctor.

-- name: server_facts
SELECT current_setting('server_version'), current_setting('fsync')::boolean,
    current_setting('synchronous_commit'), pg_is_in_recovery();

-- name: server_clock
SELECT extract(epoch FROM clock_timestamp())::float8;

-- How far the fleet's clock has been moved from the server's, as tests do.
-- name: moved_clock
SELECT extract(epoch FROM fleet.now() - clock_timestamp())::float8;

-- The fleet's tables and LangGraph's, indexes and out-of-line values included.
-- name: table_sizes
SELECT CASE n.nspname WHEN 'fleet' THEN 'fleet.' ELSE '' END || c.relname,
    pg_total_relation_size(c.oid), greatest(c.reltuples, 0)::bigint,
    coalesce(s.n_live_tup, 0), coalesce(s.n_dead_tup, 0)
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_stat_all_tables s ON s.relid = c.oid
WHERE c.relkind IN ('r', 'p') AND (n.nspname = 'fleet' OR c.oid IN (
    to_regclass('checkpoints'), to_regclass('checkpoint_blobs'), to_regclass('checkpoint_writes'),
    to_regclass('store')))
ORDER BY 2 DESC, 1;

-- name: checkpoint_schemas
SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname = 'checkpoints' AND c.relkind = 'r' ORDER BY 1;

-- Sessions, and how many the server takes of others than superusers.
-- name: sessions
SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
    current_setting('max_connections')::integer
        - current_setting('superuser_reserved_connections')::integer;

-- Threads that wait for somebody to do something about them.
-- name: stuck_threads
SELECT status, count(*), (array_agg(thread_id ORDER BY updated_at, thread_id))[1:%(show)s]
FROM fleet.threads WHERE status IN ('failed', 'in_doubt', 'incompatible')
GROUP BY status;

-- name: rejected_lately
SELECT count(*) FROM fleet.rejected_wakeups WHERE at > fleet.now() - interval '1 day';

-- Due mail by queue, and for how many seconds the oldest has been. Mail of a paused graph
-- waits on purpose.
-- name: due_mail
SELECT m.queue, count(*), extract(epoch FROM fleet.now() - min(m.available_at))::float8
FROM fleet.messages m
WHERE m.status = 'pending' AND m.available_at <= (SELECT fleet.now())
  AND NOT starts_with(m.queue, 'paused:')
  AND (m.kind IN ('resolve', 'amend') OR NOT EXISTS (
      SELECT FROM fleet.messages e
      WHERE e.thread_id = m.thread_id AND e.seq < m.seq
        AND e.status IN ('claimed', 'in_doubt', 'dead')))
GROUP BY m.queue ORDER BY m.queue;

-- name: untold_questions
-- Questions that are open and that their channel was not told of for good.
SELECT n.channel, count(*) FILTER (WHERE n.status = 'gone') AS gone,
    count(*) FILTER (WHERE n.status = 'given_up') AS given_up
FROM fleet.notifications n
WHERE n.status IN ('gone', 'given_up') AND fleet.still_asked(n)
GROUP BY n.channel ORDER BY n.channel;

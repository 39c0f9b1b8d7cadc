-- What the doors ask of Postgres. Each gives JSON as text, so that a caller's own
-- row factories and JSON loaders make no difference.

-- The caller's transaction, with the caller's own timeouts.
-- name: accept_within
SELECT fleet.accept(%(message)s::jsonb)::text

-- name: accept
SELECT fleet.accept_soon(%(message)s::jsonb, '10s')::text

-- name: accept_many
WITH patience AS MATERIALIZED (SELECT set_config('lock_timeout', '10s', true))
SELECT fleet.accept(m)::text
FROM patience, jsonb_array_elements(%(messages)s::jsonb) WITH ORDINALITY AS t(m, n)
ORDER BY n

-- Which of these starts would be refused, before any of several transactions commits.
-- name: refused_starts
SELECT (coalesce(r.repeated, '{}') || jsonb_build_object(
    'n', n, 'thread_id', thread_id, 'status', t.status, 'outcome', CASE
        WHEN b.message_id IS NOT NULL THEN 'conflict'
        WHEN r.repeated IS NOT NULL THEN 'in_doubt'
        ELSE 'rejected' END))::text
FROM jsonb_to_recordset(%(messages)s::jsonb)
    AS m(n integer, thread_id text, message_id text, payload_hash text, on_existing text,
        force boolean)
JOIN fleet.threads AS t USING (thread_id)
LEFT JOIN fleet.messages AS b USING (thread_id, message_id)
LEFT JOIN LATERAL (
    SELECT CASE WHEN b.message_id IS NULL AND m.on_existing = 'restart' AND NOT m.force
        THEN fleet.repeated_by_restart(thread_id, t.generation) END AS repeated) AS r ON true
WHERE (b.message_id IS NOT NULL AND (b.payload_hash <> m.payload_hash OR b.kind <> 'start'))
   OR (b.message_id IS NULL AND m.on_existing = 'reject')
   OR r.repeated IS NOT NULL
ORDER BY n LIMIT 1

-- name: input_schema
SELECT coalesce(input_schema, 'true')::text FROM fleet.graphs WHERE graph = %(graph)s

-- name: asked
SELECT asked::text FROM fleet.asked(%(thread_id)s, %(question_id)s, %(message_id)s) AS asked
WHERE asked IS NOT NULL

-- Whether work is under way or due that nothing holds up: mail behind a dead or
-- in-doubt message waits for a person, unless it is a person's word itself.
-- name: settled
SELECT json_build_object('status', t.status, 'held', EXISTS (
    SELECT FROM fleet.messages m
    WHERE m.thread_id = t.thread_id AND m.status = 'pending' AND starts_with(m.queue, 'paused:')),
    'busy', EXISTS (
    SELECT FROM fleet.messages m
    WHERE m.thread_id = t.thread_id AND m.status IN ('pending', 'claimed')
      AND (m.restarts OR m.kind IN ('resolve', 'amend') OR (
          t.status <> 'incompatible' AND NOT EXISTS (
              SELECT FROM fleet.messages e
              WHERE e.thread_id = m.thread_id AND e.seq < m.seq
                AND e.status IN ('dead', 'in_doubt'))))))::text
FROM fleet.threads t WHERE t.thread_id = %(thread_id)s

-- crashes: without the attempt under way, which is counted until it ends in order. A message
-- is of the generation in which it is, or was, worked on; a restart that waits begins one.
-- name: status
SELECT json_build_object(
    'thread_id', t.thread_id, 'tenant', t.tenant, 'graph', t.graph, 'key', t.key,
    'generation', t.generation, 'status', t.status, 'epoch', t.epoch, 'owner', t.owner,
    'cancel_requested', t.cancel_requested, 'last_error', t.last_error,
    'created_at', t.created_at, 'updated_at', t.updated_at,
    'questions', (
        SELECT coalesce(json_agg(json_build_object(
            'question_id', q.question_id, 'kind', q.kind, 'payload', q.payload,
            'response_schema', q.response_schema, 'asked_at', q.asked_at,
            'expires_at', q.expires_at) ORDER BY q.asked_at, q.question_id), '[]')
        FROM fleet.questions q WHERE q.thread_id = t.thread_id AND q.status = 'open'),
    'messages', (
        SELECT coalesce(json_agg(json_build_object(
            'seq', m.seq, 'message_id', m.message_id, 'kind', m.kind, 'status', m.status,
            'crashes', m.crashes - CASE WHEN m.status = 'claimed' AND EXISTS (
                SELECT FROM pg_locks l
                WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
                  AND l.pid = t.backend_pid
                  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
                  AND ((l.classid::bigint << 32) | l.objid::bigint) = fleet.thread_lock(t.thread_id)
                ) THEN 1 ELSE 0 END,
            'failures', m.failures, 'error', m.error, 'generation', m.generation,
            'accepted_at', m.accepted_at, 'available_at', m.available_at,
            'done_at', m.done_at) ORDER BY m.seq), '[]')
        FROM (
            SELECT *, t.generation
                - coalesce(count(*) FILTER (WHERE restarts AND claimed_epoch IS NOT NULL) OVER (
                    ORDER BY seq DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)
                + coalesce(bool_or(restarts AND claimed_epoch IS NULL AND status = 'pending') OVER (
                    ORDER BY seq), false)::integer AS generation
            FROM fleet.messages WHERE thread_id = t.thread_id) AS m),
    'effects', (
        SELECT coalesce(json_agg(json_build_object(
            'request_id', e.request_id, 'name', e.name, 'state', e.state, 'policy', e.policy,
            'attempts', e.attempts, 'generation', e.generation, 'seq', e.seq,
            'effect_key', e.effect_key, 'error', e.error, 'result_type', e.result_type,
            'result_base64', translate(encode(e.result, 'base64'), E'\n', ''),
            'started_at', e.started_at, 'finished_at', e.finished_at)
            ORDER BY e.first_started_at, e.request_id), '[]')
        FROM fleet.effects e WHERE e.thread_id = t.thread_id))::text
FROM fleet.threads t WHERE t.thread_id = %(thread_id)s

-- Of all generations.
-- name: questions
SELECT json_build_object('question_id', question_id, 'kind', kind, 'status', status,
    'payload', payload, 'response_schema', response_schema, 'asked_at', asked_at,
    'expires_at', expires_at, 'answer', answer, 'answered_by', answered_by,
    'answered_at', answered_at)::text
FROM fleet.questions
WHERE thread_id = %(thread_id)s AND (%(status)s::text IS NULL OR status = %(status)s)
ORDER BY asked_at, question_id

-- name: threads
SELECT json_build_object(
    'thread_id', t.thread_id, 'tenant', t.tenant, 'graph', t.graph, 'key', t.key,
    'generation', t.generation, 'status', t.status, 'last_error', t.last_error,
    'created_at', t.created_at, 'updated_at', t.updated_at)::text
FROM fleet.threads t
WHERE (%(status)s::text IS NULL OR t.status = %(status)s)
  AND (%(graph)s::text IS NULL OR t.graph = %(graph)s)
  AND (%(tenant)s::text IS NULL OR t.tenant = %(tenant)s)
ORDER BY t.updated_at DESC, t.thread_id
LIMIT %(limit)s

-- What an operator does. Each waits a moment for the row that a turn's end holds.
-- name: cancel
SELECT fleet.cancel(%(thread_id)s)::text

-- name: retry
SELECT fleet.retry(%(thread_id)s, %(new_request)s, %(notify)s)::text

-- name: drop
SELECT fleet.drop(%(thread_id)s, %(notify)s)::text

-- The input with which the thread was started last (null when it is not kept any
-- more), the effects that a start anew would repeat, and what it would do once more
-- although it may have happened (null when there is none).
-- name: latest_start
SELECT json_build_object(
    'input', (
        SELECT m.payload FROM fleet.messages m
        WHERE m.thread_id = t.thread_id AND m.kind = 'start' ORDER BY m.seq DESC LIMIT 1),
    'effects', (
        SELECT coalesce(json_agg(json_build_object('name', e.name, 'request_id', e.request_id,
            'state', e.state) ORDER BY e.first_started_at), '[]')
        FROM fleet.effects e WHERE e.thread_id = t.thread_id AND e.generation = t.generation
          AND e.state <> 'failed' AND e.effect_key IS NULL),
    'repeated', fleet.repeated_by_restart(t.thread_id, t.generation))::text
FROM fleet.threads t WHERE t.thread_id = %(thread_id)s

-- name: graph_names
SELECT to_json(graph)::text FROM fleet.graphs ORDER BY graph

-- name: set_paused
SELECT fleet.set_paused(%(graph)s, %(paused)s)::text

-- name: sort_paused
SELECT to_json(fleet.sort_paused())::text

-- Mail of a graph that is not done, and the heads of line that a wake-up is for.
-- name: graph_mail
SELECT json_build_object('waiting', count(*) FILTER (WHERE m.status = 'pending'),
    'running', count(*) FILTER (WHERE m.status = 'claimed'))::text
FROM fleet.messages m JOIN fleet.threads t USING (thread_id)
WHERE t.graph = %(graph)s AND m.status IN ('pending', 'claimed')

-- name: due_of_graph
SELECT json_build_object('thread_id', m.thread_id, 'queue', m.queue,
    'message_status', m.status, 'wake_limit', fleet.wake_limit(m.queue))::text
FROM fleet.messages m JOIN fleet.threads t USING (thread_id)
WHERE t.graph = %(graph)s AND m.status = 'pending' AND m.available_at <= (SELECT fleet.now())
ORDER BY m.priority DESC, m.available_at LIMIT 32

-- name: workers
SELECT json_build_object(
    'worker', w.worker, 'queues', w.queues, 'slots', w.slots, 'pool', w.pool,
    'started_at', w.started_at, 'seen_at', w.seen_at, 'draining', w.draining,
    'drain_requested', w.drain_requested,
    'silent_for', extract(epoch FROM (SELECT fleet.now()) - w.seen_at),
    'silent', w.seen_at < (SELECT fleet.now()) - fleet.silent_after(),
    'runs', (
        SELECT coalesce(json_agg(json_build_object('thread_id', t.thread_id,
            'since', t.updated_at, 'progress_at', t.progress_at) ORDER BY t.updated_at), '[]')
        FROM fleet.threads t
        WHERE t.status = 'running' AND starts_with(t.owner, w.worker || ':')))::text
FROM fleet.workers w ORDER BY w.worker

-- name: drain_worker
SELECT fleet.drain_worker(%(worker)s, %(drain)s)::text

-- name: fork
SELECT fleet.fork(%(message)s::jsonb, %(source)s, %(checkpoints)s, %(checkpoint_id)s, %(run_id)s)::text

-- Effects without a business key that were begun after a checkpoint.
-- name: effects_after
SELECT json_build_object('name', e.name, 'request_id', e.request_id, 'state', e.state)::text
FROM fleet.effects e JOIN fleet.threads t USING (thread_id)
WHERE e.thread_id = %(thread_id)s AND e.generation = t.generation AND e.effect_key IS NULL
  AND (e.checkpoint IS NULL OR e.checkpoint >= %(checkpoint_id)s)
ORDER BY e.first_started_at, e.request_id

-- Threads that are not over, and where they stand.
-- name: standing_threads
SELECT json_build_object('thread_id', t.thread_id, 'graph', t.graph, 'status', t.status,
    'root', fleet.channels_of(c.thread_id, '', c.checkpoint),
    'below', fleet.channels_below(c.thread_id, c.checkpoint_id))::text
FROM fleet.threads t
CROSS JOIN LATERAL (
    SELECT thread_id, checkpoint_id, checkpoint FROM checkpoints
    WHERE thread_id = fleet.checkpoint_thread(t.thread_id, t.generation) AND checkpoint_ns = ''
    ORDER BY checkpoint_id DESC LIMIT 1) AS c
WHERE t.status NOT IN ('done', 'cancelled')
ORDER BY t.updated_at DESC, t.thread_id
LIMIT %(limit)s

-- Questions that were sent out, those that changed last first. A row that was not sent is
-- dropped once its question needs no answer any more.
-- name: notifications
SELECT json_build_object(
    'notification_id', n.notification_id, 'thread_id', n.thread_id, 'question_id', n.question_id,
    'channel', n.channel, 'round', n.round, 'status', s.status, 'attempts', n.attempts,
    'created_at', n.created_at, 'sent_at', n.sent_at,
    'next_at', CASE WHEN s.status = 'waiting' THEN n.available_at END,
    'code', n.code, 'error', n.error)::text
FROM fleet.notifications n JOIN fleet.threads t USING (thread_id)
CROSS JOIN LATERAL (
    SELECT CASE WHEN n.status = 'waiting' AND NOT fleet.still_asked(n) THEN 'dropped'
        ELSE n.status END AS status) AS s
WHERE (%(status)s::text IS NULL OR s.status = %(status)s)
  AND (%(channel)s::text IS NULL OR n.channel = %(channel)s)
  AND (%(tenant)s::text IS NULL OR t.tenant = %(tenant)s)
ORDER BY coalesce(n.sent_at, n.created_at) DESC, n.notification_id
LIMIT %(limit)s

-- name: notify_again
SELECT to_json(fleet.notify_again(%(channel)s))::text

-- Work by queue. Mail of a paused graph is held, under the queue in which it will go on; due
-- are the threads that a worker could take up at once.
-- name: queues
WITH mail AS (
    SELECT CASE WHEN held THEN substr(queue, length('paused:') + 1) ELSE queue END AS queue,
        count(*) FILTER (WHERE status = 'claimed') AS running,
        count(*) FILTER (WHERE status = 'pending' AND NOT held) AS waiting,
        count(*) FILTER (WHERE status = 'pending' AND held) AS held
    FROM (
        SELECT queue, status, starts_with(queue, 'paused:') AS held
        FROM fleet.messages WHERE status IN ('pending', 'claimed')) AS m
    GROUP BY 1),
due AS (
    SELECT queue, count(*) AS due,
        extract(epoch FROM (SELECT fleet.now()) - min(available_at)) AS oldest
    FROM fleet.heads WHERE available_at <= (SELECT fleet.now()) GROUP BY queue),
serving AS (
    SELECT queue, count(*) AS workers, sum(slots) AS slots
    FROM fleet.workers, unnest(queues) AS queue
    WHERE seen_at >= (SELECT fleet.now()) - fleet.silent_after()
      AND NOT draining AND NOT drain_requested
    GROUP BY queue),
served AS (
    SELECT queue, json_agg(graph ORDER BY graph) AS graphs,
        json_agg(graph ORDER BY graph) FILTER (WHERE paused) AS paused
    FROM fleet.graphs GROUP BY queue)
SELECT json_build_object(
    'queue', queue, 'workers', coalesce(workers, 0), 'slots', coalesce(slots, 0),
    'running', coalesce(running, 0), 'due', coalesce(due, 0), 'oldest_due_for', oldest,
    'waiting', coalesce(waiting, 0), 'held', coalesce(held, 0),
    'graphs', coalesce(graphs, '[]'), 'paused', coalesce(paused, '[]'))::text
FROM (
    SELECT queue FROM mail UNION SELECT queue FROM serving UNION SELECT queue FROM served) AS q
LEFT JOIN mail USING (queue) LEFT JOIN due USING (queue)
LEFT JOIN serving USING (queue) LEFT JOIN served USING (queue)
ORDER BY queue

-- What producers/chaos/checker.py reads. A run is small: whole tables.

-- name: check_messages
SELECT thread_id, seq, message_id, status, error FROM fleet.messages ORDER BY thread_id, seq;

-- name: check_threads
SELECT thread_id, fleet.checkpoint_thread(thread_id, generation), status, last_error
FROM fleet.threads ORDER BY thread_id;

-- name: check_effects
SELECT thread_id, request_id, state FROM fleet.effects;

-- name: check_forks
-- Checkpoints that several follow, and namespaces that begin more than once.
SELECT thread_id, checkpoint_ns, 'checkpoint ' || parent_checkpoint_id || ' has '
    || count(*) || ' that follow it'
FROM checkpoints WHERE parent_checkpoint_id IS NOT NULL
GROUP BY thread_id, checkpoint_ns, parent_checkpoint_id HAVING count(*) > 1
UNION ALL
-- Retention may have taken a parent away: then the one after it begins the chain.
SELECT c.thread_id, c.checkpoint_ns, count(*) || ' checkpoints follow none'
FROM checkpoints c
WHERE NOT EXISTS (
    SELECT FROM checkpoints p
    WHERE p.thread_id = c.thread_id AND p.checkpoint_ns = c.checkpoint_ns
      AND p.checkpoint_id = c.parent_checkpoint_id)
GROUP BY c.thread_id, c.checkpoint_ns HAVING count(*) > 1
ORDER BY 1, 2, 3;

-- name: check_runs
-- The runs of each thread's root checkpoints, in the order in which they were written.
SELECT thread_id, array_agg(metadata->>'run_id' ORDER BY checkpoint_id)
FROM checkpoints WHERE checkpoint_ns = '' GROUP BY thread_id ORDER BY thread_id;

-- name: check_order
-- Messages that ended, or were claimed for the last time, before an earlier one. A person's
-- word (amend, resolve) goes before the message that waits for it.
SELECT thread_id, seq, before_seq FROM (
    SELECT thread_id, seq, claimed_epoch, done_at, lag(seq) OVER thread AS before_seq,
        lag(claimed_epoch) OVER thread AS before_epoch, lag(done_at) OVER thread AS before_done
    FROM fleet.messages
    WHERE status = 'done' AND kind NOT IN ('amend', 'resolve')
    WINDOW thread AS (PARTITION BY thread_id ORDER BY seq)) AS done
WHERE claimed_epoch <= before_epoch OR done_at < before_done
ORDER BY 1, 2;

-- name: check_stale
-- Rows of an epoch that the thread had left when they were written. What a thread copied
-- of a business effect that another thread made has that one's times.
WITH own AS (
    SELECT e.* FROM fleet.effects e
    LEFT JOIN fleet.keyed_effects k USING (effect_key)
    WHERE k.thread_id IS NULL OR k.thread_id = e.thread_id)
SELECT thread_id, format('effect %s of epoch %s began after effect %s of epoch %s',
    old.request_id, old.epoch, new.request_id, new.epoch)
FROM own old JOIN own new USING (thread_id)
WHERE old.epoch < new.epoch AND old.started_at > new.started_at
UNION ALL
SELECT e.thread_id, format('effect %s was written after the end of its message %s',
    e.request_id, m.seq)
FROM own e JOIN fleet.messages m USING (thread_id, seq)
WHERE m.status = 'done' AND greatest(e.started_at, e.finished_at) > m.done_at
UNION ALL
SELECT thread_id, format('%s of epoch %s, and the thread is at %s', w.what, w.epoch, t.epoch)
FROM fleet.threads t JOIN (
    SELECT thread_id, 'effect ' || request_id AS what, epoch FROM fleet.effects
    UNION ALL SELECT thread_id, 'message ' || seq, claimed_epoch FROM fleet.messages
    UNION ALL SELECT thread_id, 'question ' || question_id, asked_epoch FROM fleet.questions
) AS w USING (thread_id)
WHERE w.epoch > t.epoch
ORDER BY 1, 2;

-- name: check_halves
-- What one transaction writes together and does not belong together.
SELECT thread_id, 'it waits, and no question is open' FROM fleet.threads t
WHERE status = 'waiting' AND NOT EXISTS (
    SELECT FROM fleet.questions q WHERE q.thread_id = t.thread_id AND q.status = 'open')
UNION ALL
SELECT DISTINCT thread_id, 'it is ' || t.status || ', and a question is open'
FROM fleet.threads t JOIN fleet.questions q USING (thread_id)
WHERE q.status = 'open' AND t.status IN ('done', 'cancelled')
UNION ALL
SELECT thread_id, format('it is %s, and message %s is %s', t.status, m.seq, m.status)
FROM fleet.threads t JOIN fleet.messages m USING (thread_id)
WHERE (t.status IN ('done', 'cancelled') AND m.status IN ('claimed', 'in_doubt', 'dead'))
   OR (m.status = 'in_doubt' AND t.status <> 'in_doubt')
   OR (m.status = 'claimed' AND t.status <> 'running')
UNION ALL
SELECT thread_id, 'it is running, and no message is claimed' FROM fleet.threads t
WHERE status = 'running' AND NOT EXISTS (
    SELECT FROM fleet.messages m WHERE m.thread_id = t.thread_id AND m.status = 'claimed')
ORDER BY 1, 2;

-- name: check_locks
-- Advisory locks of this database but for the sweep's lead: whose, and on what.
SELECT coalesce(t.thread_id, k.thread_id, ''), format('%s holds the lock of %s',
    coalesce(nullif(a.application_name, ''), 'a session'),
    coalesce('thread ' || t.thread_id, 'effect ' || k.effect_key, 'key ' || l.key))
FROM (SELECT pid, (classid::bigint << 32) | objid::bigint AS key FROM pg_locks
      WHERE locktype = 'advisory' AND granted AND database =
          (SELECT oid FROM pg_database WHERE datname = current_database())) AS l
JOIN pg_stat_activity a USING (pid)
LEFT JOIN fleet.threads t ON fleet.thread_lock(t.thread_id) = l.key
LEFT JOIN fleet.keyed_effects k ON fleet.effect_lock(k.effect_key) = l.key
WHERE l.key <> hashtextextended('fleet.sweeper', 3)
ORDER BY 1, 2;

-- name: check_open_transactions
SELECT coalesce(nullif(application_name, ''), 'session ' || pid), state
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
  AND state LIKE 'idle in transaction%'
ORDER BY 1;

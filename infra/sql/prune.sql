-- name: prune_lock
SELECT pg_try_advisory_lock(hashtextextended('fleet.prune', 3));

-- name: prune_unlock
SELECT pg_advisory_unlock(hashtextextended('fleet.prune', 3));

-- name: prune_place
-- Where to go on, or where the kept ones of a wider sweep begin: p_floor days ago.
SELECT greatest(
        coalesce((SELECT updated_at FROM fleet.retention WHERE what = %(what)s AND status = %(status)s
                  AND NOT %(afresh)s::boolean), '-infinity'),
        CASE WHEN %(floor)s::float8 > 0 THEN fleet.now() - %(floor)s * interval '1 day'
             ELSE '-infinity' END)::text,
    coalesce((SELECT thread_id FROM fleet.retention WHERE what = %(what)s AND status = %(status)s
              AND NOT %(afresh)s::boolean), '');

-- name: prune_reached
INSERT INTO fleet.retention (what, status, updated_at, thread_id)
VALUES (%(what)s, %(status)s, %(at)s::timestamptz, %(thread)s)
ON CONFLICT (what, status) DO UPDATE SET updated_at = EXCLUDED.updated_at, thread_id = EXCLUDED.thread_id;

-- name: prune_threads
SELECT seen, removed, delta, at::text, thread
FROM fleet.prune_threads(%(what)s, %(status)s, %(days)s, %(at)s::timestamptz,
    %(thread)s, %(limit)s);

-- name: prune_keyed_effects
SELECT seen, removed, key FROM fleet.prune_keyed_effects(%(days)s, %(key)s, %(limit)s);

-- name: prune_rejected_wakeups
DELETE FROM fleet.rejected_wakeups WHERE id IN (
    SELECT id FROM fleet.rejected_wakeups
    WHERE at < fleet.now() - %(days)s * interval '1 day' ORDER BY id LIMIT %(limit)s);

-- name: prune_patience
SET lock_timeout = '5s';

-- name: sweep_store
-- Of LangGraph's store; what is in use at the moment is left to the next time.
DELETE FROM store WHERE (prefix, key) IN (
    SELECT prefix, key FROM store WHERE expires_at < now()
    ORDER BY expires_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED);

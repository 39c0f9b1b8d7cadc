-- What a session asks of its server when it is opened; see infra.postgres.

-- name: backend_pid
SELECT pg_backend_pid();

-- name: session_setting
SELECT current_setting(%(name)s);

-- name: set_for_session
SELECT set_config(%(name)s, %(value)s, false);

-- name: cancel_requested
SELECT cancel_requested FROM fleet.threads WHERE thread_id = %s;

-- A turn of the message lost its session, not its process: see workers.excuses.
-- name: excuse
-- A later claim counts one of its own, which it takes back itself.
UPDATE fleet.messages SET crashes = crashes - 1, excuses = excuses + 1
WHERE thread_id = %(thread_id)s AND seq = %(seq)s AND status IN ('pending', 'claimed', 'in_doubt')
  AND crashes > (status = 'claimed' AND claimed_epoch <> %(epoch)s)::integer
  AND excuses < %(most)s;

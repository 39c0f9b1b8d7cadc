-- What a session asks of its server when it is opened; see infra.postgres.

-- name: backend_pid
SELECT pg_backend_pid();

-- name: session_setting
SELECT current_setting(%(name)s);

-- name: set_for_session
SELECT set_config(%(name)s, %(value)s, false);

-- name: cancel_requested
SELECT cancel_requested FROM fleet.threads WHERE thread_id = %s;

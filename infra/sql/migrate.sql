-- Tried, not waited for: CREATE INDEX CONCURRENTLY, of LangGraph's setup, waits for every
-- statement under way, and so would wait for one that waits for us.
-- name: migrate_lock
SELECT pg_try_advisory_lock(hashtextextended('fleet.migrate', 3));

-- name: migrate_holder
SELECT a.pid, a.application_name, host(a.client_addr),
    extract(epoch FROM clock_timestamp() - a.backend_start)::float
FROM pg_locks l JOIN pg_stat_activity a USING (pid)
WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND ((l.classid::bigint << 32) | l.objid::bigint) = hashtextextended('fleet.migrate', 3);

-- name: vector_state
SELECT EXISTS (SELECT FROM pg_available_extensions WHERE name = 'vector'),
    EXISTS (SELECT FROM pg_extension WHERE extname = 'vector'),
    (SELECT a.atttypmod FROM pg_attribute a
     WHERE a.attrelid = to_regclass('store_vectors') AND a.attname = 'embedding');

-- name: create_vector_extension
CREATE EXTENSION IF NOT EXISTS vector;

-- name: migrate_schema
CREATE SCHEMA IF NOT EXISTS fleet;

-- name: migrate_book
CREATE TABLE IF NOT EXISTS fleet.migrations (
    name text PRIMARY KEY, hash text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now());

-- name: migrated_at_all
SELECT to_regclass('fleet.migrations') IS NOT NULL;

-- name: migrations_applied
SELECT name, hash FROM fleet.migrations;

-- name: record_migration
INSERT INTO fleet.migrations (name, hash) VALUES (%(name)s, %(hash)s)
ON CONFLICT (name) DO UPDATE SET hash = EXCLUDED.hash, applied_at = now();

-- name: live_workers
SELECT worker, schema, extract(epoch FROM fleet.silent_after())::float FROM fleet.workers
WHERE seen_at > fleet.now() - fleet.silent_after();

-- name: register_graph
INSERT INTO fleet.graphs AS g (graph, queue, input_schema, sensitive, registered_at)
VALUES (%(graph)s, %(queue)s, %(input_schema)s, %(sensitive)s, fleet.now())
ON CONFLICT (graph) DO UPDATE SET queue = EXCLUDED.queue, input_schema = EXCLUDED.input_schema,
    sensitive = EXCLUDED.sensitive
WHERE (g.queue, g.input_schema, g.sensitive)
    IS DISTINCT FROM (EXCLUDED.queue, EXCLUDED.input_schema, EXCLUDED.sensitive);

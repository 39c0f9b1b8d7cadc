-- Tried, not waited for: CREATE INDEX CONCURRENTLY, of LangGraph's setup, waits for every
-- statement under way, and so would wait for one that waits for us.
-- name: migrate_lock
SELECT pg_try_advisory_lock(hashtextextended('fleet.migrate', 3));

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
SELECT worker, schema FROM fleet.workers
WHERE seen_at > fleet.now() - %(within)s * interval '1 s';

-- name: register_graph
INSERT INTO fleet.graphs AS g (graph, queue, input_schema, registered_at)
VALUES (%(graph)s, %(queue)s, %(input_schema)s, fleet.now())
ON CONFLICT (graph) DO UPDATE SET queue = EXCLUDED.queue, input_schema = EXCLUDED.input_schema
WHERE (g.queue, g.input_schema) IS DISTINCT FROM (EXCLUDED.queue, EXCLUDED.input_schema);

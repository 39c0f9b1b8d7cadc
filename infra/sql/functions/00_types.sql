-- What a claim hands to the worker. Dropped with the functions that return it,
-- which the files after this one make again.
DROP TYPE IF EXISTS fleet.claimed CASCADE;
CREATE TYPE fleet.claimed AS (
    result           text,      -- claimed | busy | empty | later | blocked | dead | cancelled | unknown
    thread_id        text,
    tenant           text,
    graph            text,
    key              text,
    generation       integer,
    epoch            bigint,
    fingerprint      jsonb,
    checkpoint_clock text,
    seq              bigint,
    message_id       text,
    kind             text,
    payload          jsonb,
    crashes          integer,   -- orderly outcomes take the present attempt's one back
    failures         integer,
    failing_for      float8,    -- seconds since the first transient failure, or null
    -- the root graph's latest checkpoint, in the columns that PostgresSaver reads
    checkpoint       jsonb,
    checkpoint_id    text,
    parent_checkpoint_id text,
    metadata         jsonb,
    channel_values   bytea[],
    pending_writes   bytea[]
);

-- The database's clock, which tests can move.
CREATE OR REPLACE FUNCTION fleet.now() RETURNS timestamptz
LANGUAGE sql STABLE AS $$
    SELECT statement_timestamp()
         + coalesce((SELECT clock_offset FROM fleet.clock), interval '0')
$$;

-- The advisory lock of a thread's one writer.
CREATE OR REPLACE FUNCTION fleet.thread_lock(p_thread text) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT hashtextextended(p_thread, 0) $$;

-- The advisory lock of a business effect while a call is under way.
CREATE OR REPLACE FUNCTION fleet.effect_lock(p_key text) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT hashtextextended(p_key, 2) $$;

-- LangGraph's thread_id: a new generation is a new, clean one.
CREATE OR REPLACE FUNCTION fleet.checkpoint_thread(p_thread text, p_generation integer) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN p_generation > 1 THEN p_thread || '#' || p_generation ELSE p_thread END
$$;

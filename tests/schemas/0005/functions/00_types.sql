-- What a claim hands to the worker. Dropped with the functions that return it,
-- which the files after this one make again.
DROP TYPE IF EXISTS fleet.claimed CASCADE;
CREATE TYPE fleet.claimed AS (
    result           text,      -- claimed | busy | empty | later | blocked | paused | dead | cancelled | unknown
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

-- The database's clock. Without a table behind it, so that it costs nothing: it is read
-- some thirty times a turn.
CREATE OR REPLACE FUNCTION fleet.now() RETURNS timestamptz
LANGUAGE sql STABLE AS $$ SELECT statement_timestamp() $$;

-- Moves the clock, in tests only: by this much from the real time, until it is moved again.
CREATE OR REPLACE FUNCTION fleet.move_clock(p_by interval) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    EXECUTE format('CREATE OR REPLACE FUNCTION fleet.now() RETURNS timestamptz '
        'LANGUAGE sql STABLE AS $body$ SELECT statement_timestamp() + interval %L $body$', p_by);
END $$;

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

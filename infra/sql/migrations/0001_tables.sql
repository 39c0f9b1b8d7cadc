-- The fleet's own tables. LangGraph's live in the schema of the connection's
-- search_path and are made by its own setup().

CREATE SEQUENCE fleet.epochs;

-- What the registry holds, so that every door can refuse an unknown graph or a
-- wrong input without importing the graph.
CREATE TABLE fleet.graphs (
    graph         text PRIMARY KEY,
    queue         text NOT NULL DEFAULT 'fleet',
    input_schema  jsonb,
    paused        boolean NOT NULL DEFAULT false,
    registered_at timestamptz NOT NULL
);

CREATE TABLE fleet.workers (
    worker     text PRIMARY KEY,
    queues     text[] NOT NULL,
    slots      integer NOT NULL,
    wakeups    integer NOT NULL,
    pool       text NOT NULL,
    started_at timestamptz NOT NULL,
    seen_at    timestamptz NOT NULL,
    draining   boolean NOT NULL DEFAULT false
);

CREATE TABLE fleet.threads (
    thread_id        text PRIMARY KEY,
    tenant           text NOT NULL DEFAULT '',
    graph            text NOT NULL,
    key              text NOT NULL,
    generation       integer NOT NULL DEFAULT 1,
    status           text NOT NULL DEFAULT 'idle' CHECK (status IN (
        'idle', 'running', 'waiting', 'in_doubt', 'failed', 'incompatible', 'done', 'cancelled')),
    epoch            bigint NOT NULL DEFAULT 0,
    owner            text,
    backend_pid      integer,
    progress_at      timestamptz,
    cancel_requested boolean NOT NULL DEFAULT false,
    fingerprint      jsonb,
    -- largest checkpoint id ever written: the next claim's clock starts past it
    checkpoint_clock text COLLATE "C",
    last_error       text,
    created_at       timestamptz NOT NULL,
    updated_at       timestamptz NOT NULL
) WITH (fillfactor = 70);
-- No index on what a barrier updates: that update stays within its page.
CREATE INDEX threads_by_status ON fleet.threads (status, updated_at);

-- The mailbox. No foreign key to threads: its share lock, held by a producer's
-- open transaction, would block the claim's FOR UPDATE.
CREATE TABLE fleet.messages (
    thread_id     text NOT NULL,
    seq           bigint NOT NULL,
    message_id    text NOT NULL,
    kind          text NOT NULL CHECK (kind IN ('start', 'input', 'answer', 'amend', 'resolve', 'timer')),
    payload       jsonb NOT NULL,
    payload_hash  text NOT NULL,
    restarts      boolean NOT NULL DEFAULT false,
    status        text NOT NULL DEFAULT 'pending' CHECK (status IN (
        'pending', 'claimed', 'in_doubt', 'done', 'dead', 'dropped', 'cancelled')),
    queue         text NOT NULL,
    tenant        text NOT NULL,
    priority      smallint NOT NULL DEFAULT 0,
    crashes       integer NOT NULL DEFAULT 0,
    failures      integer NOT NULL DEFAULT 0,
    releases      integer NOT NULL DEFAULT 0,
    available_at  timestamptz NOT NULL,
    accepted_at   timestamptz NOT NULL,
    claimed_epoch bigint,
    first_failed_at timestamptz,
    done_at       timestamptz,
    error         text,
    PRIMARY KEY (thread_id, seq),
    UNIQUE (thread_id, message_id)
) WITH (fillfactor = 70);
CREATE INDEX messages_due ON fleet.messages (queue, priority DESC, tenant, available_at)
    WHERE status = 'pending';
CREATE INDEX messages_open ON fleet.messages (thread_id, seq)
    WHERE status IN ('pending', 'claimed', 'in_doubt', 'dead');

-- Wake-ups that could not be understood, set aside with the reason.
CREATE TABLE fleet.rejected_wakeups (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at      timestamptz NOT NULL,
    reason  text NOT NULL,
    body    text NOT NULL
);

-- The ledger. attempts counts calls; started_at is the latest attempt's start.
CREATE TABLE fleet.effects (
    thread_id        text NOT NULL,
    request_id       text NOT NULL,
    generation       integer NOT NULL,
    seq              bigint NOT NULL,
    name             text NOT NULL,
    policy           text NOT NULL CHECK (policy IN ('resend', 'lookup', 'park')),
    state            text NOT NULL CHECK (state IN ('intent', 'done', 'failed', 'unstorable')),
    effect_key       text,
    args_hash        text NOT NULL,
    result_type      text,
    result           bytea,
    error            jsonb,
    attempts         integer NOT NULL,
    epoch            bigint NOT NULL,
    first_started_at timestamptz NOT NULL,
    started_at       timestamptz NOT NULL,
    finished_at      timestamptz,
    PRIMARY KEY (thread_id, request_id)
) WITH (fillfactor = 70);

CREATE TABLE fleet.keyed_effects (
    effect_key       text PRIMARY KEY,
    request_id       text NOT NULL,
    thread_id        text NOT NULL,
    name             text NOT NULL,
    state            text NOT NULL CHECK (state IN ('intent', 'done', 'failed', 'unstorable')),
    args_hash        text NOT NULL,
    result_type      text,
    result           bytea,
    error            jsonb,
    attempts         integer NOT NULL,
    first_started_at timestamptz NOT NULL,
    started_at       timestamptz NOT NULL,
    finished_at      timestamptz
) WITH (fillfactor = 70);

CREATE TABLE fleet.questions (
    thread_id   text NOT NULL,
    question_id text NOT NULL,
    generation  integer NOT NULL,
    kind        text NOT NULL,
    payload     jsonb NOT NULL,
    response_schema jsonb,
    status      text NOT NULL DEFAULT 'open' CHECK (status IN (
        'open', 'answered', 'expired', 'superseded')),
    asked_epoch bigint NOT NULL,
    asked_at    timestamptz NOT NULL,
    expires_at  timestamptz,
    answer      jsonb,
    answer_message_id text,
    answered_by text,
    answered_at timestamptz,
    PRIMARY KEY (thread_id, question_id)
);
CREATE INDEX questions_open ON fleet.questions (thread_id) WHERE status = 'open';

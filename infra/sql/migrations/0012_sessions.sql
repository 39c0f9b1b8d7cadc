-- Sessions of chat pages: whose a thread is, and who looks at it. Safe while older workers run.

-- A graph whose sessions ask for a fresh token after a longer absence.
ALTER TABLE fleet.graphs ADD COLUMN sensitive boolean NOT NULL DEFAULT false;

CREATE TABLE fleet.sessions (
    session_id   text PRIMARY KEY,
    tenant       text NOT NULL,
    -- null: a service's own, which its role opens
    user_id      text,
    graph        text NOT NULL,
    thread_id    text NOT NULL UNIQUE,
    state        text NOT NULL,
    created_at   timestamptz NOT NULL,
    last_seen_at timestamptz NOT NULL,
    closed_at    timestamptz
) WITH (fillfactor = 80);
CREATE INDEX sessions_open ON fleet.sessions (last_seen_at) WHERE closed_at IS NULL;
CREATE INDEX sessions_by_state ON fleet.sessions (state, closed_at);
CREATE INDEX sessions_by_user ON fleet.sessions (tenant, user_id, created_at);

-- A gateway says every ten seconds which threads somebody watches through it.
CREATE TABLE fleet.presence (
    thread_id text NOT NULL,
    gateway   text NOT NULL,
    seen_at   timestamptz NOT NULL,
    PRIMARY KEY (thread_id, gateway)
) WITH (fillfactor = 70);

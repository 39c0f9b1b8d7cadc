-- How far retention has come, so that it does not look at the same threads each time:
-- finished threads are taken in the order in which they were last changed. Safe while
-- older workers run.
CREATE TABLE fleet.retention (
    what       text NOT NULL,
    status     text NOT NULL,
    updated_at timestamptz NOT NULL,
    thread_id  text NOT NULL,
    PRIMARY KEY (what, status)
);

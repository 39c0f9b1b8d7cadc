-- What clients see of a thread, numbered epoch-n. Deltas of a text that is being written are
-- never here; the others are once the task that gave them has its writes committed, so rows
-- of one epoch may come out of order where tasks run side by side. Safe while older workers
-- run: they write none.
CREATE TABLE fleet.events (
    thread_id text NOT NULL,
    epoch     bigint NOT NULL,
    n         integer NOT NULL,
    type      text NOT NULL,
    payload   jsonb NOT NULL,
    at        timestamptz NOT NULL,
    PRIMARY KEY (thread_id, epoch, n)
);

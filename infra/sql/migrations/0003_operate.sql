-- What operators ask for: a worker to take no more turns, threads to be called off.

-- draining is what the worker says of itself, drain_requested what was asked of it.
ALTER TABLE fleet.workers ADD COLUMN drain_requested boolean NOT NULL DEFAULT false;

CREATE INDEX threads_cancelling ON fleet.threads (thread_id) WHERE cancel_requested;

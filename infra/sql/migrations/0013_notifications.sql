-- What becomes of a question that nobody answers in time, and who is told of one that nobody
-- looks at. Safe while older workers run: they leave the new column empty.

-- {"do": "answer", "value"} | {"do": "cancel"} | {"do": "fail", "reason"}
-- | {"do": "notify", "channel", "seconds", "then"}
ALTER TABLE fleet.questions ADD COLUMN on_expiry jsonb;

-- One row for each question and channel, made when nobody looks at the question; round: 0,
-- then one more each time that the question's own deadline sends it out. notification_id is
-- what receivers know a repetition by (webhook-id). asked_epoch: a question that is asked
-- again is another one.
CREATE TABLE fleet.notifications (
    notification_id text PRIMARY KEY,
    thread_id    text NOT NULL,
    question_id  text NOT NULL,
    asked_epoch  bigint NOT NULL,
    channel      text NOT NULL,
    round        integer NOT NULL DEFAULT 0,
    -- a hash of the channel's address: a receiver that is gone is not asked again
    target       text,
    status       text NOT NULL DEFAULT 'waiting',  -- waiting | sent | gone | given_up | dropped
    attempts     integer NOT NULL DEFAULT 0,
    available_at timestamptz NOT NULL,
    created_at   timestamptz NOT NULL,
    sent_at      timestamptz,
    code         integer,
    error        text,
    UNIQUE (thread_id, question_id, asked_epoch, channel, round),
    FOREIGN KEY (thread_id, question_id) REFERENCES fleet.questions ON DELETE CASCADE
);
CREATE INDEX notifications_waiting ON fleet.notifications (channel, available_at)
    WHERE status = 'waiting';
CREATE INDEX notifications_gone ON fleet.notifications (channel, target) WHERE status = 'gone';

-- Links that answer one question, once; of the token only its hash is kept.
CREATE TABLE fleet.answer_links (
    token_hash      bytea PRIMARY KEY,
    notification_id text NOT NULL REFERENCES fleet.notifications ON DELETE CASCADE,
    made_at         timestamptz NOT NULL
);
CREATE INDEX answer_links_of ON fleet.answer_links (notification_id);

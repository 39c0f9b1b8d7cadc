-- How often a crash of a message was taken back, since only its session was lost: there is an
-- end to that. Safe while older workers run.
ALTER TABLE fleet.messages ADD COLUMN excuses integer NOT NULL DEFAULT 0;

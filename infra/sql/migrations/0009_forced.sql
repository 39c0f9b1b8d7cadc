-- Whether a restart was meant although it may do an effect twice. Others wait for what is in
-- doubt. Safe while older workers run.
ALTER TABLE fleet.messages ADD COLUMN forced boolean NOT NULL DEFAULT false;

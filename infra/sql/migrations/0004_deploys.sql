-- Old and new workers side by side, and amendments. Safe while older workers run: the
-- columns have defaults, and what was allowed stays allowed.

-- The newest migration that the worker's code knows; '' for workers older than this one.
ALTER TABLE fleet.workers ADD COLUMN schema text NOT NULL DEFAULT '';

-- The thread's newest checkpoint when the effect began: tells whether the step that made
-- it has been taken since.
ALTER TABLE fleet.effects ADD COLUMN checkpoint text COLLATE "C";

-- A kind may carry the version of its form, as in 'answer@2' (producers.messages.WIRE).
ALTER TABLE fleet.messages DROP CONSTRAINT messages_kind_check;
ALTER TABLE fleet.messages ADD CONSTRAINT messages_kind_check
    CHECK (kind ~ '^(start|input|answer|amend|resolve|timer)(@[0-9]+)?$') NOT VALID;

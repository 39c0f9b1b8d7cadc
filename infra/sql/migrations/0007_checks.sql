-- The closed sets of words are checked where words come in: fleet.accept, fleet.barrier and
-- fleet.finish. As constraints they cost a sixth of a turn's SQL:
-- Postgres parses each anew for every statement that writes the table. Safe while older
-- workers run.
ALTER TABLE fleet.threads DROP CONSTRAINT threads_status_check;
ALTER TABLE fleet.messages DROP CONSTRAINT messages_kind_check,
    DROP CONSTRAINT messages_status_check;
ALTER TABLE fleet.effects DROP CONSTRAINT effects_policy_check,
    DROP CONSTRAINT effects_state_check;
ALTER TABLE fleet.keyed_effects DROP CONSTRAINT keyed_effects_state_check;
ALTER TABLE fleet.questions DROP CONSTRAINT questions_status_check;

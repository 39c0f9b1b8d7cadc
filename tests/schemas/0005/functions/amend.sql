-- What an amendment needs to know of the ledger.

-- The barrier that records an intent has raised the clock to the newest checkpoint of
-- the step that makes it.
CREATE OR REPLACE FUNCTION fleet.place_effect() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    NEW.checkpoint := (SELECT checkpoint_clock FROM fleet.threads WHERE thread_id = NEW.thread_id);
    RETURN NEW;
END $$;

CREATE OR REPLACE TRIGGER place_effect BEFORE INSERT ON fleet.effects
FOR EACH ROW EXECUTE FUNCTION fleet.place_effect();

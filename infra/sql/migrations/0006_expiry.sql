-- What the sweep looks for. Safe while older workers run.
CREATE INDEX questions_expiring ON fleet.questions (expires_at)
    WHERE status = 'open' AND expires_at IS NOT NULL;

-- Questions that nobody answered in time. Threads whose row a turn holds are left for the
-- next look. Gives the number of questions.
CREATE OR REPLACE FUNCTION fleet.expire_questions() RETURNS integer
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_now     timestamptz := fleet.now();
    v_thread  text;
    v_gone    text[];
    v_expired integer := 0;
BEGIN
    FOR v_thread IN
        SELECT DISTINCT thread_id FROM fleet.questions
        WHERE status = 'open' AND expires_at <= v_now LIMIT 500
    LOOP
        PERFORM FROM fleet.threads WHERE thread_id = v_thread FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        WITH late AS (
            -- Not one that an answer has hold of: it may have been in time.
            SELECT question_id FROM fleet.questions
            WHERE thread_id = v_thread AND status = 'open' AND expires_at <= v_now
            FOR UPDATE SKIP LOCKED),
        gone AS (
            UPDATE fleet.questions SET status = 'expired'
            WHERE thread_id = v_thread AND question_id IN (SELECT question_id FROM late)
            RETURNING question_id)
        SELECT array_agg(question_id) INTO v_gone FROM gone;
        v_expired := v_expired + coalesce(cardinality(v_gone), 0);
        UPDATE fleet.threads SET status = 'failed', updated_at = v_now, last_error = format(
            'nobody answered question %s in time; `fleet restart` it, or send it new input',
            array_to_string(v_gone, ', '))
        WHERE thread_id = v_thread AND status = 'waiting' AND v_gone IS NOT NULL
          AND NOT EXISTS (
              SELECT FROM fleet.questions WHERE thread_id = v_thread AND status = 'open');
    END LOOP;
    RETURN v_expired;
END $$;

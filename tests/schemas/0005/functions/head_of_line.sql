-- Takes the place of the function of this name in claim.sql: in a thread whose graph has
-- lost the node at which it stands, a person's word goes first too.
CREATE OR REPLACE FUNCTION fleet.head_of_line(p_thread text, p_first fleet.messages)
RETURNS fleet.messages
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    msg       fleet.messages := p_first;
    v_restart bigint;
    v_control bigint;
BEGIN
    SELECT max(seq) FILTER (WHERE restarts AND status = 'pending'),
           min(seq) FILTER (WHERE kind IN ('resolve', 'amend') AND status IN ('pending', 'claimed'))
    INTO v_restart, v_control
    FROM fleet.messages
    WHERE thread_id = p_thread AND status IN ('pending', 'claimed', 'in_doubt', 'dead');
    IF v_restart > msg.seq THEN
        UPDATE fleet.messages SET status = 'dropped', done_at = fleet.now(), error = 'dropped by a restart'
        WHERE thread_id = p_thread AND seq < v_restart
          AND status IN ('pending', 'claimed', 'in_doubt', 'dead');
        SELECT * INTO msg FROM fleet.messages WHERE thread_id = p_thread AND seq = v_restart;
    ELSIF v_control IS NOT NULL AND (msg.status IN ('dead', 'in_doubt') OR EXISTS (
        SELECT FROM fleet.threads WHERE thread_id = p_thread AND status = 'incompatible')) THEN
        SELECT * INTO msg FROM fleet.messages WHERE thread_id = p_thread AND seq = v_control;
    END IF;
    RETURN msg;
END $$;

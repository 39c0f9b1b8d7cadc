-- Fork: a thread that begins at a checkpoint of another one, in one transaction. With it
-- come the checkpoints before it (what they hold may be needed to read it) and those of
-- subgraphs that keep a history of their own. Not the results of its own step: what
-- follows the checkpoint happens anew.
CREATE OR REPLACE FUNCTION fleet.fork(
    m jsonb, p_source text, p_from text, p_checkpoint text, p_run text) RETURNS jsonb
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    found  jsonb;
    v_to   text;
    v_past text[] := ARRAY(
        WITH RECURSIVE past AS (
            SELECT checkpoint_id, parent_checkpoint_id FROM checkpoints
            WHERE thread_id = p_from AND checkpoint_ns = '' AND checkpoint_id = p_checkpoint
            UNION ALL
            SELECT c.checkpoint_id, c.parent_checkpoint_id
            FROM past JOIN checkpoints c ON c.thread_id = p_from AND c.checkpoint_ns = ''
                AND c.checkpoint_id = past.parent_checkpoint_id)
        SELECT checkpoint_id FROM past);
BEGIN
    IF cardinality(v_past) = 0 THEN
        RETURN jsonb_build_object('outcome', 'unknown_checkpoint');
    END IF;
    found := fleet.accept(m);
    IF found->>'outcome' <> 'accepted' THEN
        RETURN found;
    END IF;
    v_to := found->>'thread_id';
    INSERT INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type,
        checkpoint, metadata)
    SELECT v_to, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint,
        -- The run of the new thread's first message, which goes on from here.
        CASE WHEN checkpoint_id = p_checkpoint AND checkpoint_ns = ''
             THEN metadata || jsonb_build_object('run_id', p_run) ELSE metadata END
    FROM checkpoints
    WHERE thread_id = p_from AND CASE checkpoint_ns WHEN '' THEN checkpoint_id = ANY (v_past)
        ELSE checkpoint_id COLLATE "C" < p_checkpoint AND strpos(checkpoint_ns, ':') = 0 END;
    INSERT INTO checkpoint_blobs (thread_id, checkpoint_ns, channel, version, type, blob)
    SELECT v_to, b.checkpoint_ns, b.channel, b.version, b.type, b.blob
    FROM (SELECT DISTINCT c.checkpoint_ns, v.channel, v.version
          FROM checkpoints c, jsonb_each_text(c.checkpoint->'channel_versions') AS v(channel, version)
          WHERE c.thread_id = v_to) AS used
    JOIN checkpoint_blobs b USING (checkpoint_ns, channel, version)
    WHERE b.thread_id = p_from;
    INSERT INTO checkpoint_writes (thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx,
        channel, type, blob)
    SELECT v_to, w.checkpoint_ns, w.checkpoint_id, w.task_id, w.task_path, w.idx, w.channel, w.type,
        w.blob
    FROM checkpoints c JOIN checkpoint_writes w USING (checkpoint_ns, checkpoint_id)
    WHERE c.thread_id = v_to AND w.thread_id = p_from
      AND NOT (checkpoint_ns = '' AND checkpoint_id = p_checkpoint);
    UPDATE fleet.threads SET checkpoint_clock = p_checkpoint,
        fingerprint = (SELECT fingerprint FROM fleet.threads WHERE thread_id = p_source)
    WHERE thread_id = v_to;
    RETURN found;
END $$;

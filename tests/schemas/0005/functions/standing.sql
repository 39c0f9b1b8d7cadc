-- Where a thread stands, without its graph: what graphs.pending reads nodes off.

-- The channels of a checkpoint that have a value, and those values, serialized, that tell
-- of joins and of tasks that were sent.
CREATE OR REPLACE FUNCTION fleet.channels_of(p_thread text, p_ns text, p_checkpoint jsonb)
RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object(
        'channels', (
            SELECT coalesce(jsonb_agg(channel), '[]')
            FROM jsonb_object_keys(p_checkpoint->'channel_values') AS channel),
        'values', (
            SELECT coalesce(jsonb_agg(jsonb_build_array(b.channel, b.type,
                translate(encode(b.blob, 'base64'), E'\n', ''))), '[]')
            FROM jsonb_each_text(p_checkpoint->'channel_versions') AS v(channel, version)
            JOIN checkpoint_blobs b ON b.thread_id = p_thread AND b.checkpoint_ns = p_ns
                AND b.channel = v.channel AND b.version = v.version
            WHERE v.channel = '__pregel_tasks' OR starts_with(v.channel, 'join:')))
$$;

-- The same of the subgraphs that have taken a step since the root's checkpoint, by namespace.
CREATE OR REPLACE FUNCTION fleet.channels_below(p_thread text, p_after text) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT coalesce(jsonb_object_agg(checkpoint_ns,
        fleet.channels_of(p_thread, checkpoint_ns, checkpoint)), '{}')
    FROM (
        SELECT DISTINCT ON (checkpoint_ns) checkpoint_ns, checkpoint FROM checkpoints
        WHERE thread_id = p_thread AND checkpoint_ns <> ''
          AND checkpoint_id COLLATE "C" > p_after COLLATE "C"
        ORDER BY checkpoint_ns, checkpoint_id DESC) AS newest
$$;

-- name: amend_standing
-- What an amendment meets: the message that it interrupts, and the effects begun since the
-- thread's newest checkpoint (the pending step's own).
SELECT
    i.seq, i.message_id, i.status,
    EXISTS (SELECT FROM fleet.questions
            WHERE thread_id = %(thread_id)s AND status = 'open') AS asked,
    coalesce((SELECT status = 'cancelled' FROM fleet.messages
              WHERE thread_id = %(thread_id)s AND seq < %(seq)s
                AND status IN ('done', 'dropped', 'cancelled')
              ORDER BY seq DESC LIMIT 1), false) AS cancelled,
    coalesce((SELECT jsonb_agg(jsonb_build_array(e.name, e.state, e.request_id)
                               ORDER BY e.first_started_at, e.request_id)
              FROM fleet.effects e
              WHERE e.thread_id = %(thread_id)s AND e.generation = %(generation)s
                AND CASE WHEN e.checkpoint IS NULL THEN e.seq = i.seq
                         ELSE e.checkpoint >= %(checkpoint_id)s END), '[]') AS effects
FROM (SELECT) AS one
LEFT JOIN LATERAL (
    SELECT seq, message_id, status FROM fleet.messages
    WHERE thread_id = %(thread_id)s AND seq < %(seq)s
      AND status IN ('pending', 'dead', 'in_doubt')
    ORDER BY seq LIMIT 1) AS i ON true

-- name: amend_lets_go
-- The interrupted message need not wait any longer for its node to come back.
UPDATE fleet.messages SET available_at = fleet.now()
WHERE thread_id = %(thread_id)s AND seq = %(seq)s AND status = 'pending'

-- name: channels_below
SELECT fleet.channels_below(%(thread_id)s, %(after)s)

-- What a turn knows of the messages that were told before it.

-- By earlier claims of the same message of the mailbox, in order.
-- name: told_before
SELECT payload FROM fleet.events
WHERE thread_id = %(thread_id)s AND type = 'message' AND epoch >= (
    SELECT max(epoch) FROM fleet.events
    WHERE thread_id = %(thread_id)s AND type = 'received'
      AND payload->>'message_id' = %(message_id)s)
ORDER BY epoch, n

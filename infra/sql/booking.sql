-- name: booking_said
-- When the message of a turn was accepted, and what it is; whether what went before it was
-- called off: the message itself, or what its turn asked. (A question that the message was sent
-- too early to answer is open until the turn ends.)
SELECT m.accepted_at AS at, m.message_id, split_part(m.kind, '@', 1) AS kind,
    coalesce(q.status = 'superseded', false) OR coalesce(b.status = 'cancelled', false)
        AS called_off
FROM fleet.messages m
LEFT JOIN LATERAL (
    SELECT status, claimed_epoch FROM fleet.messages
    WHERE thread_id = m.thread_id AND seq < m.seq AND status IN ('done', 'cancelled')
    ORDER BY seq DESC LIMIT 1) b ON true
LEFT JOIN LATERAL (
    SELECT status FROM fleet.questions
    WHERE thread_id = m.thread_id AND asked_epoch >= b.claimed_epoch
    ORDER BY asked_epoch DESC LIMIT 1) q ON true
WHERE m.thread_id = %(thread_id)s AND m.seq = %(seq)s;

-- name: booking_free_rooms
-- Rooms that hold so many, have all of the equipment and are free all the time; the
-- smallest first.
SELECT room_id, name_en, name_zh, capacity, equipment FROM booking.rooms r
WHERE NOT closed AND capacity >= %(people)s AND equipment @> %(equipment)s::text[]
  AND NOT EXISTS (
      SELECT FROM booking.bookings b
      WHERE b.room_no = r.room_no
        AND b.during && tstzrange(%(start)s::timestamptz, %(end)s::timestamptz))
ORDER BY capacity, cardinality(equipment), room_id
LIMIT %(most)s;

-- name: booking_largest
SELECT coalesce(max(capacity), 0) FROM booking.rooms
WHERE NOT closed AND equipment @> %(equipment)s::text[];

-- name: booking_book
-- One booking for each request id; none where the room is taken, gone or too small.
INSERT INTO booking.bookings (request_id, room_no, during, people, thread_id, booked_at)
SELECT %(request_id)s, room_no, tstzrange(%(start)s::timestamptz, %(end)s::timestamptz),
    %(people)s, %(thread_id)s, fleet.now()
FROM booking.rooms
WHERE room_id = %(room_id)s AND NOT closed AND capacity >= %(people)s
ON CONFLICT DO NOTHING
RETURNING booking_no;

-- name: booking_of_request
SELECT booking_no FROM booking.bookings WHERE request_id = %(request_id)s;

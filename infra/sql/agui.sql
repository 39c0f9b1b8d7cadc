-- name: question_standing
-- A question as it is, in whatever state, and what it was answered with.
SELECT status, kind, payload, response_schema, answer, answer_message_id
FROM fleet.questions WHERE thread_id = %(thread_id)s AND question_id = %(question_id)s;

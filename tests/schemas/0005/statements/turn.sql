-- In workers/claim.py.

-- name: claim
SELECT * FROM fleet.claim(%s, %s, %s)

-- name: claim_next
SELECT * FROM fleet.claim_next(%s, %s, %s, %s)

-- name: barrier
SELECT * FROM fleet.barrier(%s, %s, %s, %s, %s, %b, %b, %b)

-- name: finish
SELECT * FROM fleet.finish(%s, %s, %s, %s, %b, %b, %b, %b)

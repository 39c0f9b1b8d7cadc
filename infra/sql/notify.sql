-- name: lead_channel
-- One notifier for each channel.
SELECT pg_try_advisory_lock(hashtextextended('fleet.notifier:' || %(channel)s, 3));

-- name: plan_notifications
SELECT fleet.plan_notifications(%(channel)s, %(target)s, %(after)s);

-- name: take_notification
SELECT fleet.take_notification(%(channel)s, %(target)s, %(hash)s, %(lease)s);

-- name: notified
SELECT fleet.notified(%(id)s, %(attempt)s, %(end)s);

-- name: link_seen
SELECT fleet.link_seen(%(hash)s) AS link;

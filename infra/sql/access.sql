-- Keys of the gateway. The hash leaves Postgres for the gateway alone.

-- name: create_api_key
INSERT INTO fleet.api_keys (key_id, hash, tenant, roles, user_id, name, created_at, expires_at)
VALUES (%(key_id)s, %(hash)s, %(tenant)s, %(roles)s, %(user_id)s, %(name)s, fleet.now(),
    fleet.now() + %(days)s::float8 * interval '1 day')
RETURNING key_id, tenant, roles, user_id, name, created_at, expires_at;

-- name: api_key
SELECT hash, tenant, roles, user_id, name, expires_at FROM fleet.api_keys
WHERE key_id = %(key_id)s AND revoked_at IS NULL
  AND (expires_at IS NULL OR expires_at > fleet.now());

-- name: api_keys
SELECT key_id, tenant, roles, user_id, name, created_at, expires_at, revoked_at,
    CASE WHEN revoked_at IS NOT NULL THEN 'revoked'
         WHEN expires_at <= fleet.now() THEN 'expired' ELSE 'valid' END AS state
FROM fleet.api_keys
WHERE %(all)s OR (revoked_at IS NULL AND (expires_at IS NULL OR expires_at > fleet.now()))
ORDER BY created_at, key_id;

-- name: revoke_api_key
UPDATE fleet.api_keys SET revoked_at = coalesce(revoked_at, fleet.now())
WHERE key_id = %(key_id)s
RETURNING key_id, tenant, roles, user_id, name, created_at, expires_at, revoked_at;

-- name: any_api_key
SELECT EXISTS (
    SELECT FROM fleet.api_keys
    WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > fleet.now())) AS found;

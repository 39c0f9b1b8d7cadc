-- Keys of services that come in by the gateway: only a key's hash is kept. Safe while older
-- workers run.
CREATE TABLE fleet.api_keys (
    key_id     text PRIMARY KEY,
    hash       bytea NOT NULL,
    tenant     text NOT NULL DEFAULT '',
    roles      text[] NOT NULL,
    user_id    text,
    name       text NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    revoked_at timestamptz
);

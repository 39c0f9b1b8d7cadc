#!/bin/sh
# Redis as the fleet needs it: a password from a file, everything on disk within a second,
# and no key ever evicted. `ping` asks the one that runs, for the health check.
#
# The password goes through standard input: arguments are shown by `ps` and `docker inspect`.
set -eu
password=$(cat /run/secrets/redis_password)
[ -n "$password" ] || { echo "error: the secret redis_password is empty." >&2; exit 1; }

if [ "${1-}" = ping ]; then
    [ "$(REDISCLI_AUTH=$password redis-cli ping)" = PONG ]
    exit
fi
exec redis-server - <<CONFIG
bind * -::*
port 6379
dir /data
requirepass $password
appendonly yes
appendfsync everysec
maxmemory-policy noeviction
CONFIG

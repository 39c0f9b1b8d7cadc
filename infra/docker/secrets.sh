#!/bin/sh
# Makes the secrets that docker-compose.yml names, each a file; those that are there are kept.
#
#     infra/docker/secrets.sh [FOLDER]      # default: secrets/ beside docker-compose.yml
#
# The folder is its owner's only. The files in it can be read by any user, since that of the
# containers is none of this machine, and Docker hands files in with the mode that they have.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
folder=${1:-$root/secrets}

random() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }

secret() { # NAME TEXT
    if [ -e "$folder/$1" ]; then
        echo "kept $folder/$1" >&2
        return
    fi
    (umask 022 && printf '%s' "$2" >"$folder/$1.new" && mv "$folder/$1.new" "$folder/$1")
    echo "made $folder/$1" >&2
}

mkdir -p "$folder"
chmod 700 "$folder"
secret postgres_password "$(random)"
secret postgres_url "postgresql://fleet:$(cat "$folder/postgres_password")@postgres:5432/fleet"
secret redis_password "$(random)"
secret redis_url "redis://:$(cat "$folder/redis_password")@redis:6379/0"
secret flower_login "fleet:$(random)"
secret jwt_secret "$(random)"

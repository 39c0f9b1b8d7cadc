#!/usr/bin/env bash
# Brings the stack up on this machine's Docker engine, under a project name of its own, and
# tries it: refunds, a worker container killed in the middle, Redis emptied, the whole stack
# stopped and started in the middle; then the shop's books must show each refund once.
#
#     infra/docker/smoke.sh [--keep] [--no-build]
#
# --keep leaves the stack up at the end; ORDERS (60) is how many refunds, FLOWER_PORT (15555)
# and GATEWAY_PORT (18800) where Flower and the gateway are published. COMPOSE may name another command than "docker compose".
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

keep=0 build=1
for option in "$@"; do
    case $option in
        --keep) keep=1 ;;
        --no-build) build=0 ;;
        *) sed -n '2,/^set /s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
done
orders=${ORDERS:-60}
folder=$(mktemp -d)
export SECRETS_DIR=$folder/secrets FLEET_SHOP_URL=http://shop:8000 FLOWER_PORT=${FLOWER_PORT:-15555}
export GATEWAY_PORT=${GATEWAY_PORT:-18800}
export WORKER_SLOTS=${WORKER_SLOTS:-4} COMPOSE_PROFILES=shop
read -ra compose <<<"${COMPOSE:-docker compose}"

say() { printf '%3d s  %s\n' "$SECONDS" "$*"; }
fail() { say "FAILED: $*" >&2; exit 1; }
stack() { "${compose[@]}" --project-name threadfleet-smoke "$@"; }
quietly() { "$@" >"$folder/last.log" 2>&1 || { cat "$folder/last.log" >&2; fail "$*"; }; }
# A container of the worker's kind, with its addresses, that runs one step of smoke.py.
step() { stack run --rm --no-deps -T worker python - "$@" <infra/docker/smoke.py 2>>"$folder/steps.log" ||
    { tail -5 "$folder/steps.log" >&2; fail "step $*"; }; }

finish() {
    code=$?
    if [ $code -ne 0 ]; then
        say "the last lines of the logs:" >&2
        stack logs --no-color --tail 15 >&2 || true
    fi
    if [ $keep = 1 ]; then
        say "kept: ${compose[*]} -p threadfleet-smoke; secrets in $folder/secrets"
    else
        stack down --volumes --remove-orphans --timeout 20 >/dev/null 2>&1 || true
        rm -rf "$folder"
    fi
    exit $code
}
trap finish EXIT

hardened() { # CONTAINER...
    local id facts
    for id in "$@"; do
        facts=$(docker inspect --format '{{.Config.User}} {{.HostConfig.ReadonlyRootfs}} {{.HostConfig.CapDrop}} {{.HostConfig.Privileged}} {{.Name}}' "$id")
        case $facts in
            "root "* | "0"* | " "*) fail "runs as root: $facts" ;;
            *" true [ALL] false "*) ;;
            *) fail "is not hardened: $facts" ;;
        esac
    done
}

healthy() { # by the health checks of docker-compose.yml
    local since=$SECONDS states
    while states=$(docker inspect --format '{{.Name}} {{if .State.Health}}{{.State.Health.Status}}{{end}}' "$@") &&
        grep -q -e ' starting$' -e ' unhealthy$' <<<"$states"; do
        [ $((SECONDS - since)) -lt 120 ] || fail "not healthy: $states"
        sleep 1
    done
}

infra/docker/secrets.sh "$SECRETS_DIR" 2>/dev/null
if [ $build = 1 ]; then
    say "building the image"
    quietly stack build
fi
say "starting the stack with two workers"
quietly stack up --detach --scale worker=2
mapfile -t containers < <(stack ps --all --quiet)
hardened "${containers[@]}"
say "${#containers[@]} containers: none as root, file systems read-only, no capabilities"
healthy "${containers[@]}"
say "all are healthy"
step flower
key=$(stack exec -T gateway fleet keys create smoke --role producer 2>/dev/null) || fail "no key"
step gateway "$key"

say "submitting $orders refunds, every other above the limit; the shop is slow"
step submit "$orders"
step busy 5
victim=$(stack ps --quiet worker | head -n 1)
say "killing the worker container ${victim:0:12}"
quietly docker kill "$victim"
step busy 10
say "emptying Redis"
# shellcheck disable=SC2016  # for the shell in the container
quietly stack exec -T redis sh -c 'REDISCLI_AUTH=$(cat /run/secrets/redis_password) redis-cli FLUSHALL'
step busy 15
say "stopping the stack in the middle of it"
quietly stack stop
say "starting it again"
quietly stack up --detach --scale worker=2
say "answering the questions, and waiting for every thread to end"
step finish "$orders"
step books "$orders"
say "passed"

#!/usr/bin/env bash
# deploy/quickstart.sh explains a slow pod and one that fails. --stop removes pods of a handler that was added by hand, which is run by a
# shim of containerd.
#
# usage: tests/quickstart.sh [PROGRAM]   with this criscope, and criscope-shim beside it (default: that of the quickstart)
#
# Runs as root, with the packages of deploy/quickstart.sh --upstream.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
CRISCOPE=$(realpath "${1:-${CARGO_TARGET_DIR:-target}/release/criscope}")

die() { printf 'tests/quickstart.sh: %s\n' "$*" >&2; exit 1; }

# The shims of containerd that run for our pods.
shims() { pgrep -f "containerd-shim-runc-v2 .*-id $POD" || true; }

OUT=$(CRISCOPE_BINARY=$CRISCOPE deploy/quickstart.sh --keep) || die "the quickstart failed: $OUT"
# The first line of the story of a pod.
first_line() { sed -n "/explain criscope\/$1\$/{n;n;p}" <<< "$OUT"; }
[[ $(first_line slow-image) == *pull* ]] || die "the quickstart does not explain the slow image: $OUT"
[[ $(first_line no-program) == */usr/bin/servd* ]] || die "the quickstart does not explain the missing program: $OUT"
DIR=$(sed -n 's/^ *stop: .* --stop //p' <<< "$OUT")
STATE=/run/${DIR##*/} POD=none
trap 'deploy/quickstart.sh --stop "$DIR" > /dev/null; kill -KILL $(shims) 2> /dev/null' EXIT
# shellcheck disable=SC1091
. "$STATE/record"

# The handler takes a restart, after which the pid of criscope is not the recorded one.
printf '\n[runtime.handlers.shim]\nruntime_type = "io.containerd.runc.v2"\n' >> "$DIR/criscope.toml"
mapfile -d '' -t COMMAND < "/proc/$CRISCOPE_PID/cmdline"
kill -TERM "$CRISCOPE_PID"
while [ -e "/proc/$CRISCOPE_PID" ]; do sleep 0.05; done
setsid "${COMMAND[@]}" >> "$DIR/criscope.log" 2>&1 < /dev/null &
SECOND=$!
for _ in $(seq 200); do
    ! "$CRISCOPE" smoke --endpoint "unix://$STATE/criscope.sock" --handler shim --keep --log-dir "$DIR" > "$DIR/smoke.log" 2>&1 ||
        break
    [ -e "/proc/$SECOND" ] || die "criscope ended: $(tail -n 5 "$DIR/criscope.log")"
    sleep 0.1
done
POD=$(basename "$(dirname "$(grep -l cgroupsPath "$DIR"/root/sandboxes/*/config.json "$STATE"/root/sandboxes/*/config.json 2> /dev/null)")")
[ -n "$(shims)" ] || die "no shim of containerd runs: $(cat "$DIR/smoke.log")"
CONTAINER=$(basename "$(echo {"$DIR","$STATE"}/root/containers/* | tr ' ' '\n' | grep -v '\*' | head -n 1)")
SOCKET=$(cat {"$DIR","$STATE"}/root/sandboxes/"$POD"/address 2> /dev/null || true)
kill -KILL "$SECOND"
wait "$SECOND" 2> /dev/null || true

deploy/quickstart.sh --stop "$DIR" > /dev/null || die "--stop failed"
[ -z "$(shims)" ] || die "a shim of containerd runs on: $(shims)"
[ ! -e "${SOCKET#unix://}" ] || die "$SOCKET is left"
for left in "$DIR" "$STATE"; do [ ! -e "$left" ] || die "$left is left"; done
LEFT=$(find /sys/fs/cgroup -name "$POD" -o -name "$CONTAINER")
[ -z "$LEFT" ] || die "cgroups are left: $LEFT"
trap - EXIT

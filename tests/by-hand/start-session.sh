#!/usr/bin/env bash
# Records the session in docs/START.md: criscope in front of a containerd of its own, a pod whose image comes late, one whose program is
# missing, and what the commands print of them.
#
# usage: tests/by-hand/start-session.sh [PROGRAM]   with this criscope (default: that of the quickstart)
#   UPDATE_DOCS=1   writes the session into docs/START.md instead of standard output
#
# Runs as root, with the packages of deploy/quickstart.sh --upstream.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
CRISCOPE_BINARY=$(realpath "${1:-${CARGO_TARGET_DIR:-target}/release/criscope}")
export CRISCOPE_BINARY NO_COLOR=1 COLUMNS=100 LC_ALL=C.UTF-8

OUT=$(deploy/quickstart.sh --upstream --keep)
DIR=$(sed -n 's/^ *stop: .* --stop //p' <<< "$OUT")
trap 'deploy/quickstart.sh --stop "$DIR" > /dev/null' EXIT
# shellcheck disable=SC1090
. "/run/${DIR##*/}/record"
CRISCOPE_ADMIN=$(sed -n 's|.*live page on http://\(.*\)/$|\1|p' <<< "$OUT")
CONTAINER_RUNTIME_ENDPOINT=unix:///run/${DIR##*/}/criscope.sock
export CRISCOPE_ADMIN CONTAINER_RUNTIME_ENDPOINT

pod() { "$CRISCOPE_BINARY" smoke --keep --log-dir "$DIR" --cgroup-parent "$CGROUP" --name "$@" > /dev/null 2>&1; }
say() { printf '$ criscope %s\n' "$*"; "$CRISCOPE_BINARY" "$@" 2>&1 || true; echo; }

session() {
    say --help
    say status
    say pods
    say explain web
    say explain typo
    say explain tpyo
}

pod web --slow-pull 2s
! pod typo --command /usr/bin/servd || exit 1
# A moment later it is plain that nobody tries again yet.
sleep 2
if [ -z "${UPDATE_DOCS:-}" ]; then session; exit; fi
session > "$DIR/session.txt"
# The block of text after the marker is replaced. The last line of the session is empty.
awk -v session="$DIR/session.txt" '
    /^<!-- session/ { marked = 1 }
    marked && /^```text$/ { print; while ((getline line < session) > 0) text = text line "\n"; sub(/\n+$/, "", text); print text; skip = 1; marked = 0; next }
    skip && /^```$/ { skip = 0 }
    !skip { print }
' docs/START.md > "$DIR/START.md"
cat "$DIR/START.md" > docs/START.md

#!/usr/bin/env bash
# Lists processes, mounts, interfaces, cgroups, rules and files that tests may leave behind, and compares with an earlier list.
#
# usage: tests/leaks.sh snapshot            prints one line per thing
#        tests/leaks.sh compare SNAPSHOT    fails and prints the additions; waits a few seconds for them to disappear
# environment:
#   CRISCOPE_TEST_RUN      a word: processes that have it in their environment were started by this run
#   CRISCOPE_LEAKS_IGNORE  an extended regular expression: matching lines are ignored (on a shared machine)
# Needs root to see everything.
set -euo pipefail
export LC_ALL=C

PATIENCE=15 # seconds

# This script must not find itself: it re-executes without the variable in its environment.
if [ -n "${CRISCOPE_TEST_RUN:-}" ]; then
    exec env -u CRISCOPE_TEST_RUN LEAKS_OF="$CRISCOPE_TEST_RUN" "$BASH" "$0" "$@"
fi

# Children of daemons are reparented, but they inherit the environment.
processes() {
    [ -n "${LEAKS_OF:-}" ] || return 0
    local file pid
    for file in /proc/[0-9]*/environ; do
        pid=${file#/proc/} pid=${pid%/environ}
        # ancestors of this script
        case " $SELF " in *" $pid "*) continue ;; esac
        grep -qsz "^CRISCOPE_TEST_RUN=$LEAKS_OF\$" "$file" || continue
        printf 'process\t%s %s\n' "$pid" "$(tr '\0' ' ' 2>/dev/null < "/proc/$pid/cmdline" | cut -c 1-160)"
    done
}

ancestors() {
    local pid=$$
    while [ "${pid:-0}" -gt 1 ]; do
        printf '%s ' "$pid"
        pid=$(awk '/^PPid:/ { print $2 }' "/proc/$pid/status" 2>/dev/null) || break
    done
}

mounts() { awk '{ printf "mount\t%s (%s)\n", $2, $3 }' /proc/self/mounts; }
interfaces() { ip -o link | awk -F': ' '{ sub(/@.*/, "", $2); printf "interface\t%s\n", $2 }'; }
# systemd's cgroups for services and logins change independently of the tests.
cgroups() {
    find /sys/fs/cgroup -mindepth 1 -type d \
        -not -path '*/system.slice*' -not -path '*/user.slice*' -not -path '*/init.scope*' -printf 'cgroup\t%p\n' 2>/dev/null || true
}

# Rules and user-defined chains, without counters; empty built-in chains do not count.
rules() {
    local command
    for command in iptables ip6tables; do
        command -v "$command-save" > /dev/null || continue
        "$command-save" 2>/dev/null | awk -v name="$command" '
            /^\*/ { table = substr($1, 2) }
            /^-A/ || (/^:/ && $2 == "-") { sub(/ \[[0-9:]*\]$/, ""); printf "%s\t%s %s\n", name, table, $0 }'
    done
}

files() {
    local dir
    for dir in /tmp /var/tmp /run /run/netns /run/containerd /run/containerd/s /etc/cni /opt /usr/sbin/policy-rc.d \
        /var/lib /var/lib/cni /var/lib/cni/*; do
        [ -e "$dir" ] || continue
        find "$dir" -maxdepth 1 -not -name 'systemd-private-*' -printf 'file\t%p\n'
    done
}

settings() { printf 'setting\tnet.ipv4.ip_forward = %s\n' "$(cat /proc/sys/net/ipv4/ip_forward)"; }

snapshot() {
    { processes; mounts; interfaces; cgroups; rules; files; settings; } |
        if [ -n "${CRISCOPE_LEAKS_IGNORE:-}" ]; then grep -vE -- "$CRISCOPE_LEAKS_IGNORE" || true; else cat; fi | sort -u
}

compare() {
    local before=$1 left end=$((SECONDS + PATIENCE))
    while left=$(comm -13 "$before" <(snapshot)) && [ -n "$left" ]; do
        if [ "$SECONDS" -ge "$end" ]; then
            printf 'left behind %s s after the last step:\n%s\n' "$PATIENCE" "$left" >&2
            return 1
        fi
        sleep 0.5
    done
    echo "nothing was left behind"
}

SELF=$(ancestors)
case ${1:-} in
    snapshot) snapshot ;;
    compare) compare "${2:?a snapshot}" ;;
    *) sed -n '/^# usage:/,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" >&2; exit 64 ;;
esac

#!/usr/bin/env bash
# Runs critest, the conformance suite of the CRI, against criscope, and compares the verdict of each case with the expected one.
# Run it by hand, as root: tests/run.sh does not, because critest is not in Debian and pulls its images from the internet.
#
# The programs critest and crictl are files of https://github.com/kubernetes-sigs/cri-tools/releases; docs/CONFORMANCE.md names the
# version. Besides these: cargo build --bin criscope --bin criscope-shim, and the packages of `tests/run.sh packages`.
#
# usage: tests/by-hand/critest.sh builtin|proxy [ARGUMENT OF CRITEST...]
#   builtin  criscope as the runtime; the expected verdicts are in tests/by-hand/critest-builtin.txt
#   proxy    criscope in front of a containerd of its own; expected are the verdicts of this containerd without criscope
# With -ginkgo.focus only the cases that run are compared.
# environment:
#   CRITEST, CRICTL  the two programs (default: in PATH)
#   CRISCOPE         the program, with criscope-shim beside it (default: target/debug/criscope)
#   MIRROR           a registry with the images, such as 127.0.0.1:5000, for a machine without internet
#   RESULTS          a directory for reports and logs (default: a new one below /tmp)
#   UPDATE           1 writes the list of expected verdicts
set -euo pipefail

REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
EXPECTED=$REPO/tests/by-hand/critest-builtin.txt
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

die() { printf 'critest.sh: %s\n' "$1" >&2; exit 1; }
program() { type -P "$1" || die "there is no program $1"; }

# --- runtimes ----------------------------------------------------------------------------------------------------------

cni_plugins() {
    local dir
    for dir in /usr/lib/cni /opt/cni/bin /usr/libexec/cni; do [ ! -x "$dir/portmap" ] || { echo "$dir"; return; }; done
    die "there are no CNI plugins"
}

write_configuration() {
    local plugins
    plugins=$(cni_plugins)
    mkdir -p "$DIR/cni" "$DIR/certs.d"
    cat > "$DIR/cni/10-critest.conflist" <<CNI
{"cniVersion": "1.0.0", "name": "$BRIDGE", "plugins": [
  {"type": "bridge", "bridge": "$BRIDGE", "isGateway": true, "ipMasq": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.246.38.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}], "dataDir": "$STATE/ipam"}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
CNI
    if [ -n "${MIRROR:-}" ]; then
        mkdir -p "$DIR/certs.d/_default"
        printf '[host."http://%s"]\n  capabilities = ["pull", "resolve"]\n' "$MIRROR" > "$DIR/certs.d/_default/hosts.toml"
    fi
    cat > "$DIR/criscope.toml" <<CRISCOPE
[runtime]
root = "$DIR/root"
state = "$STATE/runtime"
restrict_oom_score_adj = true
[runtime.cni]
conf_dir = "$DIR/cni"
bin_dirs = ["$plugins"]
cache_dir = "$STATE/cni"
[runtime.images]
certs_dirs = ["$DIR/certs.d"]
[runtime.nri]
enable = true
socket_path = "unix://$STATE/nri.sock"
plugin_path = "$DIR/nri"
plugin_config_path = "$DIR/nri"
# The plugin of critest takes longer than the default.
plugin_request_timeout = "30s"
CRISCOPE
    cat > "$DIR/containerd.toml" <<CONTAINERD
version = 2
root = "$DIR/containerd"
state = "$STATE/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
  address = "$STATE/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "registry.k8s.io/pause:3.10"
  netns_mounts_under_state_dir = true
  restrict_oom_score_adj = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "$DIR/certs.d"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$plugins"
    conf_dir = "$DIR/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
CONTAINERD
}

crictl() { "$CRICTL" --runtime-endpoint "unix://$1" --image-endpoint "unix://$1" --timeout 30s "${@:2}"; }
is_ready() { crictl "$1" info 2> /dev/null | jq -e '[.status.conditions[].status] | all' > /dev/null; }

# start NAME SOCKET COMMAND...
start() {
    local name=$1 socket=$2 pid i
    shift 2
    setsid "$@" > "$RESULTS/$name.log" 2>&1 < /dev/null &
    pid=$!
    for ((i = 0; i < 600; i++)); do
        ! is_ready "$socket" || return 0
        kill -0 "$pid" 2> /dev/null || break
        sleep 0.1
    done
    die "$name is not ready: $(tail -n 20 "$RESULTS/$name.log")"
}

# --- the suite ---------------------------------------------------------------------------------------------------------

# Verdicts, sorted by name. Benchmarks, which this never runs, are left out.
verdicts() {
    jq -r '.[].SpecReports[] | select(.LeafNodeType == "It")
        | "\(.State) \((.ContainerHierarchyTexts // []) + [.LeafNodeText] | join(" "))"' "$1" | grep -vi benchmark | LC_ALL=C sort -k2
}

# suite NAME SOCKET [ARGUMENT OF CRITEST...]: leaves the verdicts in $RESULTS/NAME.txt
suite() {
    local name=$1 socket=$2
    shift 2
    "$CRITEST" "-runtime-endpoint=unix://$socket" "-image-endpoint=unix://$socket" -ginkgo.no-color -ginkgo.seed=1 \
        "-ginkgo.json-report=$RESULTS/$name.json" "$@" > "$RESULTS/$name.out" 2>&1 || true
    [ -s "$RESULTS/$name.json" ] || die "critest ended without a report: $(tail -n 20 "$RESULTS/$name.out")"
    verdicts "$RESULTS/$name.json" > "$RESULTS/$name.txt"
    # critest leaves a pod with the node's network
    crictl "$socket" rmp --all --force > /dev/null 2>&1 || true
    printf '%s: %s\n' "$name" "$(cut -d' ' -f1 "$RESULTS/$name.txt" | sort | uniq -c | xargs)"
}

# compare EXPECTED FOUND [ARGUMENT OF CRITEST...]: an argument may select cases, so those that were skipped are not compared then
compare() {
    local expected=$1 found=$2
    if [ "$#" -gt 2 ]; then
        awk '{ verdict = $1; $1 = "" } NR == FNR { found[$0] = verdict; next } found[$0] != "skipped" { print verdict $0 }' \
            "$2" "$1" > "$DIR/expected"
        grep -v '^skipped ' "$2" > "$DIR/found" || true
        expected=$DIR/expected found=$DIR/found
    fi
    diff -U0 --label expected --label found "$expected" "$found" || return 1
    printf 'as expected\n'
}

run_builtin() {
    start criscope "$STATE/criscope.sock" "$CRISCOPE" serve --config "$DIR/criscope.toml" --listen "unix://$STATE/criscope.sock" \
        --admin 127.0.0.1:0
    suite builtin "$STATE/criscope.sock" -nri-socket "$STATE/nri.sock" "$@"
    if [ "${UPDATE:-}" = 1 ]; then cp "$RESULTS/builtin.txt" "$EXPECTED"; fi
    compare "$EXPECTED" "$RESULTS/builtin.txt" "$@"
}

run_proxy() {
    start containerd "$STATE/containerd.sock" containerd --config "$DIR/containerd.toml"
    suite direct "$STATE/containerd.sock" "$@"
    start criscope "$STATE/criscope.sock" "$CRISCOPE" serve --upstream "unix://$STATE/containerd.sock" \
        --listen "unix://$STATE/criscope.sock" --admin 127.0.0.1:0
    suite proxied "$STATE/criscope.sock" "$@"
    compare "$RESULTS/direct.txt" "$RESULTS/proxied.txt" "$@"
}

# --- all of it ---------------------------------------------------------------------------------------------------------

# iptables rules of pods that no call removed, as after Ctrl-C: plugins name their network in a comment.
remove_rules() {
    local table rules
    for table in nat filter; do
        rules=$(iptables-save -t "$table" | grep -F "name: \\\"$BRIDGE\\\"") || continue
        {
            printf '*%s\n%s\n' "$table" "${rules//-A /-D }"
            grep -oE 'CNI-(DN-)?[0-9a-f]{8,}' <<< "$rules" | sort -u | sed 's/.*/-F &\n-X &/'
            printf 'COMMIT\n'
        } | iptables-restore --noflush
    done
}

clean_up() {
    remove_rules
    rm -f "/var/lib/cni/results/$BRIDGE"-*
    ip link del "$BRIDGE" 2> /dev/null || true
    [ "$FORWARDING" != 0 ] || echo 0 > /proc/sys/net/ipv4/ip_forward
    rm -rf --one-file-system "$DIR" "$STATE"
    printf 'reports and logs: %s\n' "$RESULTS"
}

main() {
    MODE=${1:-}
    case $MODE in
        builtin | proxy) shift ;;
        *) sed -n '/^# usage:/,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit 64 ;;
    esac
    if [ -n "${CRITEST_DIR:-}" ]; then
        DIR=$CRITEST_DIR STATE=/run/${CRITEST_DIR##*/} BRIDGE=ct${CRITEST_DIR##*.}
        # Volumes whose mounts propagate need shared mounts.
        mount --make-rshared /
        write_configuration
        "run_$MODE" "$@"
        return
    fi
    [ "$EUID" = 0 ] || die "this needs root"
    CRITEST=$(program "${CRITEST:-critest}") CRICTL=$(program "${CRICTL:-crictl}")
    CRISCOPE=$(program "${CRISCOPE:-$REPO/target/debug/criscope}")
    RESULTS=${RESULTS:-$(mktemp -d /tmp/critest-results.XXXXXX)}
    DIR=$(mktemp -d /tmp/critest.XXXXXX)
    STATE=/run/${DIR##*/} BRIDGE=ct${DIR##*.}
    FORWARDING=$(cat /proc/sys/net/ipv4/ip_forward)
    mkdir -p "$RESULTS"
    mkdir "$STATE"
    # Root of a user namespace is another user of the node, and its container is below these.
    chmod 0711 "$DIR" "$STATE"
    trap clean_up EXIT
    # In these namespaces every process and every mount of the run ends with it.
    CRITEST=$CRITEST CRICTL=$CRICTL CRISCOPE=$CRISCOPE RESULTS=$RESULTS CRITEST_DIR=$DIR \
        unshare --mount --pid --fork --kill-child --mount-proc "$BASH" "$0" "$MODE" "$@"
}

main "$@"

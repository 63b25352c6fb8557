#!/usr/bin/env bash
# From a clean clone to a pod run by criscope, on Debian or Ubuntu with Rust:
#   1. installs missing packages (apt): runc, unless crun is installed, and CNI plugins
#   2. builds criscope
#   3. starts criscope as the container runtime, or in front of a containerd (--upstream)
#   4. runs one pod through criscope's socket, and shows the time of each step
#   5. runs a pod with a slow image and one that cannot start, and shows what "criscope explain" says of each
#   6. stops everything and removes all files, mounts, cgroups and interfaces
#
# No registry is used: the image is built from a static busybox. An existing runtime is never touched: root, state, socket,
# CNI configuration, bridge, cgroup and the OCI runtime's directory are private to this run. One exception: on a machine with
# systemd the Debian package "containerd", which only --upstream needs, starts its service when it is installed. This script
# neither starts nor stops that service, and does not use it.
#
# usage: deploy/quickstart.sh [--upstream [URI]] [--keep] [--stop [DIR]] [--help]
#   --upstream [URI]  without the built-in runtime: criscope runs in front of the runtime at this socket, or of a
#                     containerd that is started for it
#   --keep            leave everything running, and print how to use and stop it
#   --stop [DIR]      stop and clean up what earlier runs left (all of them, or the one with this directory)
# environment:
#   CRISCOPE_QUICKSTART_DIR  parent of the private directory (default /tmp; not a network file system)
#   CRISCOPE_BINARY          use this program instead of building one
#   CARGO_TARGET_DIR         as for cargo
set -euo pipefail

REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
SELF=$REPO/deploy/quickstart.sh
PREFIX=criscope-quickstart
# cron, sudo and su omit the sbin directories for some users; runc and iptables are there
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
# hidden, for testing the script itself: with --upstream, no criscope in between
DIRECT=${CRISCOPE_DIRECT:-}
# what serves the pod: builtin, containerd (started by this script), or other (an existing runtime, at UPSTREAM)
MODE=builtin UPSTREAM=''

# --- words -----------------------------------------------------------------------------------------------------------

if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then BOLD=$'\e[1m' DIM=$'\e[2m' RED=$'\e[31m' OFF=$'\e[0m'
else BOLD='' DIM='' RED='' OFF=''; fi
STEPS=6 STEP=${QS_STEP:-0}

now() { date +%s%N; }
since() { awk -v a="$1" -v b="$(now)" 'BEGIN { printf "%.1f s", (b - a) / 1e9 }'; }
step() { STEP_BEGAN=$(now); printf '%s[%s/%s] %s%s\n' "$BOLD" "$((STEP += 1))" "$STEPS" "$1" "$OFF"; }
note() { printf '      %s\n' "$*"; }
took() { printf '      %s%s%s\n' "$DIM" "$(since "$STEP_BEGAN")" "$OFF"; }
die() { printf '%squickstart: %s%s\n' "$RED" "$1" "$OFF" >&2; shift; printf '%s\n' "$@" >&2; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# --- 1. packages -----------------------------------------------------------------------------------------------------

cni_dir() {
    local dir
    for dir in /usr/lib/cni /opt/cni/bin /usr/libexec/cni; do
        [ -x "$dir/bridge" ] && [ -x "$dir/host-local" ] && [ -x "$dir/loopback" ] && { echo "$dir"; return; }
    done
    return 1
}

# The path of a static busybox; ldd fails for a program that needs no loader.
static_busybox() {
    local path
    for path in ${QS_BUSYBOX:+"$QS_BUSYBOX"} /bin/busybox /usr/bin/busybox /bin/busybox.static /usr/bin/busybox.static; do
        [ -x "$path" ] && ! ldd "$path" >/dev/null 2>&1 && { echo "$path"; return; }
    done
    return 1
}

missing_packages() {
    case $MODE in
        builtin) have runc || have crun || echo runc ;;
        containerd) have containerd || echo containerd; have runc || echo runc ;;
    esac
    [ "$MODE" = other ] || cni_dir >/dev/null || echo containernetworking-plugins
    # Debian's busybox and busybox-static conflict; an installed busybox stays (see fetch_busybox).
    static_busybox >/dev/null || have busybox || echo busybox-static
    have iptables || echo iptables
    have ip && have ss || echo iproute2
    # cargo links with cc
    have cc || echo gcc
    [ -e /etc/ssl/certs/ca-certificates.crt ] || echo ca-certificates
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif have sudo; then sudo -- "$@"
    else die "not root, and there is no sudo" "Run it as root, or install sudo."; fi
}

install_missing() {
    local missing
    mapfile -t missing < <(missing_packages)
    if [ "${#missing[@]}" -gt 0 ]; then
        note "missing: ${missing[*]}"
        have apt-get || die "this machine has no apt" \
            "Install by other means, then run this again: ${missing[*]}" \
            "(runc or crun, the CNI plugins bridge, host-local and loopback, a static busybox, iptables, ip, ss, a C linker;" \
            "containerd only for --upstream)"
        note "updating the package lists"
        as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" |
            sed -un 's/^Setting up \(.*\) \.\.\..*$/      installed \1/p'
        mapfile -t missing < <(missing_packages)
        [ "${#missing[@]}" -eq 0 ] || die "still missing after the installation: ${missing[*]}"
    else
        note "nothing is missing"
    fi
    case $MODE in
        builtin) note "$({ runc --version || crun --version; } 2>/dev/null | head -n 1), CNI plugins in $(cni_dir)" ;;
        containerd) note "$(containerd --version | awk '{print $1, $3}'), $(runc --version | head -n 1), CNI plugins in $(cni_dir)" ;;
    esac
}

# The image needs a static busybox. busybox-static is unpacked, not installed: installing it would remove the installed
# busybox.
fetch_busybox() {
    static_busybox >/dev/null && return
    have apt-get || die "busybox is dynamically linked, and there is no apt to get busybox-static from"
    local dir=$1
    mkdir -p "$dir"
    note "busybox is dynamically linked: unpacking busybox-static into $dir"
    # The package lists of a new machine may be empty, even if nothing else had to be installed.
    as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq
    (cd "$dir" && apt-get download -qq -o APT::Sandbox::User=root busybox-static && dpkg-deb -x busybox-static_*.deb .) ||
        die "cannot download busybox-static"
    QS_BUSYBOX=$(find "$dir" -name busybox -type f -perm -u+x | head -n 1)
    static_busybox >/dev/null || die "the downloaded busybox is not static"
}

# --- 2. build --------------------------------------------------------------------------------------------------------

# Under "sudo quickstart.sh" Rust usually belongs to the user who called sudo, and so should the files under target/.
build() {
    local cargo user=${SUDO_USER:-} home
    cd "$REPO"
    if cargo=$(command -v cargo) || { cargo=$HOME/.cargo/bin/cargo; [ -x "$cargo" ]; }; then
        "$cargo" build --release --locked --bin criscope --bin criscope-shim
    elif [ "$(id -u)" = 0 ] && [ -n "$user" ] && [ "$user" != root ]; then
        home=$(getent passwd "$user" | cut -d: -f6)
        cargo=$home/.cargo/bin/cargo
        [ -x "$cargo" ] || die "there is no cargo, neither root's nor $user's" "Install Rust: https://rustup.rs"
        sudo -H -u "$user" -- "$cargo" build --release --locked --bin criscope --bin criscope-shim
    else
        die "there is no cargo" "Install Rust: https://rustup.rs"
    fi
}

# The path of the built program; CARGO_TARGET_DIR may be relative to the repository.
binary() {
    if [ -n "${CRISCOPE_BINARY:-}" ]; then realpath "$CRISCOPE_BINARY"; return; fi
    local target=${CARGO_TARGET_DIR:-target}
    case $target in /*) ;; *) target=$REPO/$target ;; esac
    echo "$target/release/criscope"
}

# --- 3. what is started ------------------------------------------------------------------------------------------

# Everything that has to be cleaned up is written to $STATE/record before it is created, so that --stop can clean it up too.
record() { printf '%s=%q\n' "$1" "$2" >> "$STATE/record"; printf -v "$1" %s "$2"; }

free_port() {
    local port i
    for i in $(seq 50); do
        port=$((20000 + RANDOM % 12000))
        [ -z "$(ss -Hltn "sport = :$port")" ] && { echo "$port"; return; }
    done
    die "found no free port after $i tries"
}

# A /24 that no route of this machine covers, except the default route.
free_subnet() {
    local base i subnet
    for base in 10.243 172.27 198.18; do
        for i in $(seq 20); do
            subnet=$base.$((RANDOM % 254 + 1)).0/24
            if [ -z "$(ip -4 route show table all root "$subnet")" ] &&
                ! ip -4 route show table all match "$subnet" | grep -qv '^default '; then
                echo "$subnet"
                return
            fi
        done
    done
    die "found no free subnet after $i tries in each range"
}

interfaces() { ip -o link | awk -F': ' '{ printf "%s ", $2 }'; }

# overlayfs does not work on every file system, for example not on the overlay of a container.
snapshotter() {
    local try=$DIR/try kind=native
    mkdir -p "$try/lower" "$try/upper" "$try/work" "$try/merged"
    if mount -t overlay overlay -o "lowerdir=$try/lower,upperdir=$try/upper,workdir=$try/work" "$try/merged" 2>/dev/null; then
        umount "$try/merged"
        kind=overlayfs
    fi
    rm -rf "$try"
    echo "$kind"
}

prepare() {
    local parent=${CRISCOPE_QUICKSTART_DIR:-/tmp} name
    mkdir -p "$parent"
    parent=$(cd "$parent" && pwd)
    [ "$(realpath -m "$parent")" != /run ] || die "CRISCOPE_QUICKSTART_DIR is /run, where the state is: name another directory"
    DIR=$(mktemp -d "$parent/$PREFIX.XXXXXX")
    name=${DIR##*/}
    STATE=/run/$name
    SUFFIX=${name##*.}
    mkdir -m 0700 "$STATE"
    : > "$STATE/record"
    trap 'on_exit' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    # as in "quickstart.sh | head"; a handler, because what is ignored would be ignored in the pods too
    trap 'exit 141' PIPE
    record DIR "$DIR"
    record BRIDGE "crq-$SUFFIX"
    record NETWORK "crq-$SUFFIX"
    record CGROUP "/$name"
    record FORWARDING "$(cat /proc/sys/net/ipv4/ip_forward)"
    # to see later whether something else has come to need forwarding
    record INTERFACES "$(interfaces)"
    # containerd, the CNI library and criscope make these for all their users: remembered if they are not there yet
    record SHARED "$(for d in /run/containerd /run/containerd/s /var/lib/cni /var/lib/cni/results /opt/containerd \
        /sys/fs/cgroup/criscope-shims $(shim_cgroups); do
        [ -e "$d" ] || echo "$d"; done | sort -r | tr '\n' ' ')"
    SUBNET=$(free_subnet)
    REGISTRY=127.0.0.1:$(free_port)
    ADMIN=127.0.0.1:$(free_port)
    CONTAINERD_SOCKET=$STATE/containerd.sock
    CRISCOPE_SOCKET=$STATE/criscope.sock
    [ -z "$DIRECT" ] || CRISCOPE_SOCKET=$CONTAINERD_SOCKET
    [ -n "$UPSTREAM" ] || UPSTREAM=unix://$CONTAINERD_SOCKET
}

# Where the cgroup of all shims is, or would be, with cgroup v1.
shim_cgroups() {
    local hierarchy
    for hierarchy in /sys/fs/cgroup/*/cgroup.procs; do
        [ ! -e "$hierarchy" ] || echo "${hierarchy%/cgroup.procs}/criscope-shims"
    done
}

write_network() {
    mkdir -p "$DIR/root" "$DIR/cni"
    cat > "$DIR/cni/10-$NETWORK.conflist" <<EOF
{
  "cniVersion": "1.0.0",
  "name": "$NETWORK",
  "plugins": [
    {"type": "bridge", "bridge": "$BRIDGE", "isGateway": true, "ipMasq": true, "hairpinMode": true,
     "ipam": {"type": "host-local", "ranges": [[{"subnet": "$SUBNET"}]], "routes": [{"dst": "0.0.0.0/0"}],
              "dataDir": "$STATE/ipam"}}
  ]
}
EOF
}

# criscope as the runtime. The settings in [runtime] are for a test beside other runtimes; a node needs none of them.
write_runtime_config() {
    local root=$DIR/root
    # Layers need a file system that overlayfs can be on: a tmpfs always is one.
    if [ "$(snapshotter)" != overlayfs ]; then
        root=$STATE/root
        note "overlayfs does not work in $DIR: images and containers go to $root"
    fi
    cat > "$DIR/criscope.toml" <<EOF
[runtime]
root = "$root"
state = "$STATE/runtime"
# oom_score_adj is lowered as far as this process may, not further
restrict_oom_score_adj = true

[runtime.cni]
conf_dir = "$DIR/cni"
bin_dirs = ["$(cni_dir)"]
cache_dir = "$STATE/cni"

[runtime.images]
certs_dirs = []
EOF
}

write_containerd_config() {
    # Version 2 is what containerd 1.4 to 2.x read. The disabled plugins would reach outside our directories: /opt/containerd
    # (opt), the NRI socket of the machine (nri), a kernel-wide profile (AppArmor).
    cat > "$DIR/containerd.toml" <<EOF
version = 2
root = "$DIR/root"
state = "$STATE/containerd"
disabled_plugins = [
  "io.containerd.internal.v1.opt",
  "io.containerd.internal.v1.tracing",
  "io.containerd.tracing.processor.v1.otlp",
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.blockfile",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.erofs",
  "io.containerd.snapshotter.v1.zfs",
]

[grpc]
  address = "$CONTAINERD_SOCKET"

[plugins."io.containerd.nri.v1.nri"]
  disable = true

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "$REGISTRY/criscope/pause:1"
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  # oom_score_adj is lowered as far as this process may, not further
  restrict_oom_score_adj = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$(cni_dir)"
    conf_dir = "$DIR/cni"
    max_conf_num = 1

  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "$(snapshotter)"
    default_runtime_name = "runc"

    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"

      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
        Root = "$STATE/runc"
EOF
}

# daemon NAME COMMAND...: in a session of its own, so that Ctrl-C does not reach it and all is stopped in order
daemon() {
    local name=$1 var
    shift
    setsid "$@" > "$DIR/$name.log" 2>&1 < /dev/null &
    var=${name^^}_PID
    record "$var" $!
}

# ours PID WORD: whether this process is still the one we started; pids are reused
ours() {
    [ -n "$1" ] && [ -r "/proc/$1/cmdline" ] && tr '\0' ' ' 2>/dev/null < "/proc/$1/cmdline" | grep -qF -- "$2"
}

# wait_until NAME PID SECONDS COMMAND...: until COMMAND succeeds; shows the log if the process ends or time is up
wait_until() {
    local name=$1 pid=$2 i=$(($3 * 20)) why='is not ready in time'
    shift 3
    while ! "$@" > /dev/null 2>&1; do
        [ -e "/proc/$pid" ] || { why='ended'; i=0; }
        if [ "$((i -= 1))" -lt 0 ]; then
            die "$name $why; the end of its log:" "$(tail -n 20 "$DIR/$name.log")"
        fi
        sleep 0.05
    done
}

http_get() { "$BUSYBOX" wget -q -O - "http://$1"; }
containerd_up() { [ -S "$CONTAINERD_SOCKET" ] && grep -q 'successfully booted' "$DIR/containerd.log"; }

start_containerd() {
    write_network
    write_containerd_config
    daemon containerd containerd --config "$DIR/containerd.toml"
    wait_until containerd "$CONTAINERD_PID" 30 containerd_up
    note "containerd (pid $CONTAINERD_PID) on unix://$CONTAINERD_SOCKET, pods on $BRIDGE in $SUBNET"
}

start_criscope() {
    if [ -n "$DIRECT" ]; then note "left out (CRISCOPE_DIRECT)"; return; fi
    local what=(--upstream "$UPSTREAM")
    if [ "$MODE" = builtin ]; then
        write_network
        write_runtime_config
        what=(--config "$DIR/criscope.toml")
    fi
    daemon criscope "$CRISCOPE" serve --listen "unix://$CRISCOPE_SOCKET" "${what[@]}" --admin "$ADMIN"
    wait_until criscope "$CRISCOPE_PID" 30 http_get "$ADMIN/readyz"
    note "criscope (pid $CRISCOPE_PID) on unix://$CRISCOPE_SOCKET, live page on http://$ADMIN/"
    if [ "$MODE" = builtin ]; then note "pods on $BRIDGE in $SUBNET"; fi
}

# --- 4. the pod ------------------------------------------------------------------------------------------------------

# In the background, because bash runs a trap only between commands: a TERM must not wait for the smoke's timeout. In a
# session of its own, because Ctrl-C must reach it once, from on_exit: a second signal would end its own cleaning up.
run_smoke() {
    local cgroup=(--cgroup-parent "$CGROUP")
    # its cgroup driver may require another form
    [ "$MODE" != other ] || cgroup=()
    setsid "$CRISCOPE" smoke --endpoint "unix://$CRISCOPE_SOCKET" --busybox "$BUSYBOX" --registry-listen "$REGISTRY" \
        "${cgroup[@]}" --log-dir "$DIR" "$@" &
    SMOKE_PID=$!
    local rc=0
    wait "$SMOKE_PID" || rc=$?
    SMOKE_PID=''
    return "$rc"
}

run_pod() {
    local log=$DIR/criscope.log rc=0
    [ "$MODE" != containerd ] || log=$DIR/containerd.log
    run_smoke || rc=$?
    [ "$rc" = 0 ] || die "the test pod failed (exit code $rc); the end of $log:" "$(tail -n 15 "$log")"
}

# show_story ARGS...: runs a pod and shows what criscope says of it before it is removed
show_story() {
    run_smoke --explain --admin "$ADMIN" "$@" > "$DIR/story.txt" 2> "$DIR/story.log" || true
    grep -q '^criscope explain ' "$DIR/story.txt" || die "this pod has no story:" "$(tail -n 20 "$DIR/story.log")"
    sed -n '/^criscope explain /,$p' "$DIR/story.txt" | sed 's/^criscope explain/$ &/; s/^/        /; s/ *$//'
}

show_stories() {
    note "a pod whose image comes late, because its registry waits for two seconds:"
    show_story --name slow-image --slow-pull 2s
    echo
    note "a pod that cannot start, because its program is not in the image:"
    show_story --name no-program --command /usr/bin/servd
}

show_metrics() {
    [ -z "$DIRECT" ] || return 0
    local metrics
    metrics=$(http_get "$ADMIN/metrics") || die "cannot read http://$ADMIN/metrics"
    note "some of the $(grep -c '^[a-z]' <<< "$metrics") series of http://$ADMIN/metrics:"
    # how often and how long the calls that make a pod took, what criscope added, and its own state
    { grep -E '^criscope_(rpc_total|rpc_duration_seconds_sum)\{.*"(PullImage|RunPodSandbox|StartContainer)"' <<< "$metrics"
      grep -E '^(criscope_proxy_overhead_seconds_(sum|count)|criscope_backend_up|process_resident_memory_bytes)' <<< "$metrics"
    } | sed 's/^/        /' || true
}

say_how() {
    note "a kubelet uses it with:    --container-runtime-endpoint=unix:///run/criscope/criscope.sock"
    note "                           (or containerRuntimeEndpoint in its configuration; restart it. To undo: the old value, and restart)"
    if [ "$MODE" = builtin ]; then
        note "criscope is started with:  criscope serve        (criscope-shim in the same directory; see docs/INSTALL.md)"
    else
        note "criscope is started with:  criscope serve --upstream unix:///run/containerd/containerd.sock"
    fi
    note "crictl uses it with:       crictl --runtime-endpoint unix:///run/criscope/criscope.sock ps"
}

# --- 5. the end ------------------------------------------------------------------------------------------------------

# stop_pid PID WORD SECONDS: TERM, wait, KILL
stop_pid() {
    local i
    ours "$1" "$2" || return 0
    kill -TERM "$1" 2>/dev/null || return 0
    for ((i = $3 * 20; i > 0; i--)); do
        [ -e "/proc/$1" ] || return 0
        # a child of this shell stays a zombie until it is waited for
        case $(cut -d' ' -f3 "/proc/$1/stat" 2>/dev/null) in Z | '') break ;; esac
        sleep 0.05
    done
    ours "$1" "$2" && kill -KILL "$1" 2>/dev/null
    wait "$1" 2>/dev/null || true
}

# The shims of our containerd, or of our criscope: where they belong is on their command line. A shim of containerd that criscope
# has started for a handler with runtime_type runs in the directory of its pod.
shims() {
    local proc
    for proc in /proc/[0-9]*; do
        case $(tr '\0' ' ' 2>/dev/null < "$proc/cmdline") in
            */containerd-shim*" -address $CONTAINERD_SOCKET "* | */criscope-shim" $STATE/runtime/"*) echo "${proc#/proc/}" ;;
            */containerd-shim*) case $(readlink "$proc/cwd") in "$DIR/"* | "$STATE/"*) echo "${proc#/proc/}" ;; esac ;;
        esac
    done
}

# The directories of the pods and containers of our criscope.
bundles() {
    local config
    for config in {"$DIR","$STATE"}/root/{containers,sandboxes}/*/config.json; do
        [ ! -e "$config" ] || echo "${config%/config.json}"
    done
}

# stop_shim PID: a shim of containerd is asked to delete what it has left, which may run outside of its cgroup
stop_shim() {
    local program bundle
    program=$(readlink "/proc/$1/exe" || true)
    stop_pid "$1" -shim 2
    case $program in */containerd-shim*) ;; *) return 0 ;; esac
    for bundle in $(bundles); do
        (cd "$bundle" && timeout 10 "$program" -namespace k8s.io -address /dev/null -publish-binary true \
            -id "${bundle##*/}" -bundle "$bundle" delete) > /dev/null 2>&1 || true
    done
}

# Processes of our containers, whichever OCI runtime or shim has started them.
kill_containers() {
    local path hierarchy pids
    for path in $CGROUPS; do
        # the cgroup of one container, which has its id
        [[ ${path##*/} =~ ^[0-9a-f]{64}$ ]] || continue
        for hierarchy in /sys/fs/cgroup /sys/fs/cgroup/*; do
            [ -d "$hierarchy$path" ] || continue
            mapfile -t pids < <(find "$hierarchy$path" -name cgroup.procs -exec cat {} + 2>/dev/null)
            [ "${#pids[@]}" = 0 ] || kill -KILL "${pids[@]}" 2>/dev/null || true
        done
    done
}

# mounts below our two directories, the deepest first
mounts() {
    awk -v a="$STATE/" -v b="$DIR/" 'index($2, a) == 1 || index($2, b) == 1 { print $2 }' /proc/mounts | sort -r
}

stop_containers() {
    local file pid sockets bundles=$STATE/containerd/io.containerd.runtime.v2.task
    # the shims' sockets lie in a directory that all containerds share; their names are in the bundles
    sockets=$(cat "$bundles"/*/*/address 2>/dev/null || true)
    CGROUPS=$(sed -n 's/.*"cgroupsPath":"\([^"]*\)".*/\1/p' "$bundles"/*/*/config.json 2>/dev/null || true)
    for file in "$STATE"/runc/*/*/state.json; do
        [ -e "$file" ] || continue
        file=${file%/state.json}
        runc --root "${file%/*}" delete -f "${file##*/}" 2>/dev/null || true
    done
    for file in "$STATE"/runtime/oci/*/*/; do
        # the containers of a shim of containerd are a level below
        case $file in */k8s.io/) continue ;; esac
        [ -d "$file" ] || continue
        file=${file%/} pid=${file%/*}
        "${pid##*/}" --root "$pid" delete -f "${file##*/}" 2>/dev/null || true
    done
    for pid in $(shims); do stop_shim "$pid"; done
    kill_containers
    for file in $sockets; do
        case $file in unix:///run/containerd/s/*) rm -f "${file#unix://}" ;; esac
    done
}

# iptables rules that a DEL did not remove: the bridge plugin names the network in a comment on each of its rules.
remove_rules() {
    local table rules
    have iptables-save || return 0
    for table in nat filter; do
        rules=$(iptables-save -t "$table" 2>/dev/null | grep -F "name: \\\"$NETWORK\\\"") || continue
        {
            printf '*%s\n' "$table"
            sed -n 's/^-A/-D/p' <<< "$rules"
            grep -oE 'CNI-[0-9a-f]{8,}' <<< "$rules" | sort -u | sed 's/^/-X /'
            printf 'COMMIT\n'
        } | iptables-restore --noflush
    done
}

remove_network() {
    remove_rules
    rm -f "/var/lib/cni/results/$NETWORK"-*
    if ip link show dev "$BRIDGE" > /dev/null 2>&1; then ip link del "$BRIDGE" || true; fi
    # The bridge plugin enabled forwarding for the whole machine. It is restored, unless something else needs it by now.
    if [ "$FORWARDING" = 0 ] && [ "$INTERFACES" = "$(interfaces)" ]; then
        echo 0 > /proc/sys/net/ipv4/ip_forward 2>/dev/null || true
    fi
}

remove_cgroups() {
    local path hierarchy
    for path in $CGROUPS "$CGROUP"; do
        for hierarchy in /sys/fs/cgroup /sys/fs/cgroup/*; do
            [ -d "$hierarchy$path" ] || continue
            find "$hierarchy$path" -depth -type d -exec rmdir {} \; 2>/dev/null || true
        done
    done
    # the parent that containerd gives pods without one; gone only if no other containerd has any there
    case $CGROUPS in */k8s.io/*) rmdir /sys/fs/cgroup/k8s.io /sys/fs/cgroup/*/k8s.io 2>/dev/null || true ;; esac
}

# Undoes one run, as far as it got. Needs only its record.
tear_down() {
    local mount dir
    CONTAINERD_SOCKET=$STATE/containerd.sock
    stop_pid "${CRISCOPE_PID:-}" "$STATE/criscope.sock" 15
    stop_pid "${CONTAINERD_PID:-}" "$DIR/containerd.toml" 15
    stop_containers
    for mount in $(mounts); do umount "$mount" 2>/dev/null || umount -l "$mount" || true; done
    remove_network
    remove_cgroups
    for dir in $SHARED; do rmdir "$dir" 2>/dev/null || true; done
    # nothing is removed below remaining mounts
    if [ -n "$(mounts)" ]; then printf 'quickstart: still mounted: %s\n' "$(mounts)" >&2; return 1; fi
    rm -rf --one-file-system "$DIR" "$STATE"
}

on_exit() {
    local rc=$?
    trap - EXIT
    trap '' INT TERM HUP
    trap : PIPE
    set +e
    if [ -n "${SMOKE_PID:-}" ]; then
        # smoke removes its own pod
        kill -INT "$SMOKE_PID" 2>/dev/null
        wait "$SMOKE_PID" 2>/dev/null
    fi
    if [ -n "${KEPT:-}" ]; then exit "$rc"; fi
    step "stopping and removing everything"
    tear_down || rc=1
    took
    if [ "$rc" = 0 ]; then printf '%sdone in %s%s\n' "$BOLD" "$(since "$QS_BEGAN")" "$OFF"; fi
    exit "$rc"
}

stop_all() {
    local only=${1:-} found='' state rc=0
    STEPS=1
    for state in /run/"$PREFIX".??????; do
        [ -e "$state/record" ] || continue
        [ -z "$only" ] || [ "${state##*/}" = "${only##*/}" ] || continue
        found=1
        STEP=0
        step "stopping and removing $state"
        STATE=$state
        CGROUPS='' CONTAINERD_PID='' CRISCOPE_PID='' DIR='' BRIDGE='' NETWORK='' CGROUP='' FORWARDING='' INTERFACES='' SHARED=''
        # Only root can write to /run, and "record" has quoted the values.
        # shellcheck disable=SC1091
        . "$STATE/record"
        # A run killed before its record was complete created nothing that is not in the record.
        if [ -n "$SHARED" ] || [ -n "$INTERFACES" ]; then (set +e; tear_down) || rc=1; else rm -rf "$DIR" "$STATE"; fi
        took
    done
    [ -n "$found" ] || note "no earlier run is left"
    return "$rc"
}

# --- all of it -------------------------------------------------------------------------------------------------------

keep_running() {
    KEPT=1
    trap - EXIT INT TERM HUP PIPE
    note "left running, everything below $DIR and $STATE"
    note "look:  http://$ADMIN/    $CRISCOPE pods --admin $ADMIN    curl http://$ADMIN/metrics    tail -f $DIR/criscope.log"
    note "use:   crictl --runtime-endpoint unix://$CRISCOPE_SOCKET info"
    note "again: $CRISCOPE smoke --endpoint unix://$CRISCOPE_SOCKET"
    note "stop:  $SELF --stop $DIR"
    printf '%sready in %s%s\n' "$BOLD" "$(since "$QS_BEGAN")" "$OFF"
}

run_stage() {
    CRISCOPE=$(binary)
    CGROUPS='' SMOKE_PID='' KEPT='' CONTAINERD_PID='' CRISCOPE_PID=''
    prepare
    fetch_busybox "$DIR/busybox"
    BUSYBOX=$(static_busybox)
    case $MODE in
        builtin) step "criscope as the runtime in $DIR" ;;
        containerd)
            step "a separate containerd in $DIR"
            start_containerd
            took
            step "criscope in front of it"
            ;;
        other) step "criscope in front of $UPSTREAM" ;;
    esac
    start_criscope
    took
    step "a pod through unix://$CRISCOPE_SOCKET"
    run_pod
    show_metrics
    say_how
    took
    if [ -z "$DIRECT" ]; then
        step "two pods in trouble, and what criscope says of them"
        show_stories
        took
    fi
    if [ -n "$KEEP" ]; then keep_running; fi
}

usage() { sed -n '/^# usage:/,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$SELF"; }

main() {
    local stop='' only=''
    KEEP=''
    while [ $# -gt 0 ]; do
        case $1 in
            --keep) KEEP=1 ;;
            --upstream)
                MODE=containerd
                case ${2:-} in '' | -*) ;; *) MODE=other UPSTREAM=$2; shift ;; esac
                ;;
            --stop) stop=1; if [ $# -gt 1 ]; then only=$2; shift; fi ;;
            -h | --help) usage; exit 0 ;;
            *) usage >&2; exit 64 ;;
        esac
        shift
    done
    [ "$(uname -s)" = Linux ] || die "this needs Linux"
    if [ "$MODE" = containerd ]; then STEPS=7; fi
    if [ "$MODE" = builtin ]; then DIRECT=''; fi
    [ -z "$DIRECT" ] || STEPS=$((STEPS - 1))
    # The user builds, root runs the rest: the script re-executes itself for that.
    if [ -n "$stop" ]; then
        if [ "$(id -u)" != 0 ]; then as_root "$BASH" "$SELF" --stop ${only:+"$only"}; exit; fi
        stop_all "$only"
        exit
    fi
    QS_BEGAN=${QS_BEGAN:-$(now)}
    if [ -z "${QS_BUILT:-}" ]; then
        step "packages"
        install_missing
        took
        if [ -n "${CRISCOPE_BINARY:-}" ]; then
            step "no build: $CRISCOPE_BINARY"
        else
            step "building criscope (cargo build --release --locked)"
            build
            took
        fi
    fi
    if [ "$(id -u)" != 0 ]; then
        local again=()
        case $MODE in containerd) again=(--upstream) ;; other) again=(--upstream "$UPSTREAM") ;; esac
        as_root env QS_BUILT=1 QS_STEP="$STEP" QS_BEGAN="$QS_BEGAN" PATH="$PATH" CRISCOPE_BINARY="$(binary)" \
            CRISCOPE_QUICKSTART_DIR="${CRISCOPE_QUICKSTART_DIR:-}" CRISCOPE_DIRECT="$DIRECT" NO_COLOR="${NO_COLOR:-}" \
            "$BASH" "$SELF" ${KEEP:+--keep} "${again[@]}"
        exit
    fi
    run_stage
}

main "$@"

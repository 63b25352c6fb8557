#!/bin/bash
# What the scripts share that run in the virtual machines of install.sh.
set -u
export PATH=/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/bin HOME=/root RUST_BACKTRACE=0
# Emulation is slow: what systemd waits for and what a test allows is that much longer.
read -r FACTOR < /run/factor

say() { echo "criscope-install: $*"; }
end() {
    sync
    poweroff -f
    sleep 60
}
fail() {
    say "FAILED: $*"
    systemctl --no-pager --full status kubelet 'criscope*' containerd 2>&1 | head -n 90
    systemctl list-timers --all --no-pager 'criscope*'
    busybox dmesg | grep -i -e criscope -e systemd -e kubelet | tail -n 60
    end
}
# until_true SECONDS COMMAND...
until_true() {
    local end=$((SECONDS + $1 * FACTOR))
    shift
    until "$@" > /dev/null 2>&1; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.2
    done
}
active() { systemctl -q is-active "$1"; }
inactive() { ! active "$1"; }
kubelet_works() { active kubelet && wget -q -O - http://127.0.0.1:10248/healthz; }
main_pid() { systemctl show -p MainPID --value criscope.service; }
bypassed() { active criscope-bypass.service && [ -s /run/criscope/agent/bypass.since ]; }
direct() { inactive criscope-bypass.service && active criscope.service && [ ! -e /run/criscope/agent/bypass.since ]; }
answers() { timeout $((2 * FACTOR)) ctr -a /run/criscope/criscope.sock version > /dev/null; }
# answers_always SECONDS: each new connection has an answer, also while other services of the socket start.
answers_always() {
    local end=$((SECONDS + $1 * FACTOR))
    while [ "$SECONDS" -lt "$end" ]; do
        answers || fail "no answer on a new connection"
        sleep 0.2
    done
}
# The kubelet is at most MILLISECONDS without an answer.
at_most() {
    local longest
    sleep 1
    longest=$(cat /run/kubelet-longest-gap)
    say "$2: longest time without an answer $longest ms"
    [ "$longest" -le $(($1 * FACTOR)) ] || fail "$2: the kubelet had no answer for $longest ms"
    rm -f /run/kubelet-longest-gap
}
# The image that containerd takes for sandboxes, where there is no registry.
sandbox_image() {
    local name
    name=$(containerd config default | sed -n 's/^ *sandbox_image = "\(.*\)"/\1/p')
    ctr -n k8s.io images import /download/pause.tar > /dev/null || fail "no sandbox image"
    ctr -n k8s.io images tag example.com/pause:1 "$name" > /dev/null || fail "no sandbox image"
}

busybox mkdir -p /usr/local/bin
[ -e /usr/local/bin/ls ] || busybox --install -s /usr/local/bin
busybox ip link set lo up
busybox mount -t tmpfs none /dev/shm 2> /dev/null

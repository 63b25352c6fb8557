#!/bin/bash
# Runs in the virtual machine of install.sh: restarts, an upgrade and an installation under load hand over, and cut no call and no session.
set -u
export PATH=/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/bin HOME=/root RUST_BACKTRACE=0

say() { echo "criscope-install: $*"; }
fail() {
    say "FAILED: $*"
    systemctl --no-pager --full status kubelet 'criscope*' containerd 2>&1 | head -n 90
    busybox dmesg | grep -i -e criscope -e systemd | tail -n 60
    sync
    poweroff -f
    sleep 60
}
# until SECONDS COMMAND...
until_true() {
    local end=$((SECONDS + $1 * FACTOR))
    shift
    until "$@" > /dev/null 2>&1; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.2
    done
}
kubelet_works() { systemctl is-active kubelet && wget -q -O - http://127.0.0.1:10248/healthz; }
main_pid() { systemctl show -p MainPID --value criscope.service; }
processes() { busybox pidof criscope | busybox wc -w; }
# The calls of the kubelet's stand-in wait for at most MILLISECONDS.
at_most() {
    local longest
    sleep 1
    longest=$(cat /run/kubelet-longest-gap)
    say "$2: longest time without an answer $longest ms"
    [ "$longest" -le $(($1 * FACTOR)) ] || fail "$2: the kubelet had no answer for $longest ms"
    rm -f /run/kubelet-longest-gap
}
# in_journal WORDS: the number of ended calls
in_journal() { busybox grep '^{"call"' /run/criscope/criscope.state/journal.jsonl | busybox grep -c "$1"; }
# load [CALLS SESSIONS]: until everything is in progress (crates/testkit/examples/load.rs)
load() {
    PULLS=$(in_journal PullImage)
    rm -f /load.out
    (/usr/bin/load unix:///run/criscope/criscope.sock "${1:-3}" "${2:-1}" $((20 * FACTOR)) > /load.out 2>&1; echo "exit $?" >> /load.out) &
    until_true 60 busybox grep -q started /load.out || fail "the load does not start: $(cat /load.out)"
}
loaded() {
    until_true 60 busybox grep -q exit /load.out || fail "the load does not end: $(cat /load.out)"
    busybox grep -qx 'exit 0' /load.out || fail "the load: $(cat /load.out)"
    say "$(busybox grep ended /load.out)"
    [ "$(in_journal PullImage)" = $((PULLS + 1)) ] || fail "the journal has $(in_journal PullImage) pulls, before $PULLS"
    wget -q -O - http://127.0.0.1:9478/metrics > /metrics || fail "no metrics"
    ! busybox grep -e '^criscope_rpc_total.*"ExecSync".* [1-9]' -e '^criscope_rpc_total.*"PullImage".* [1-9]' /metrics || fail "the new process counts calls of the old one"
    until_true 30 only_one || fail "old processes stay: $(processes)"
}
has_returned() { ! systemctl is-active criscope-bypass.service; }
only_one() { [ "$(processes)" = 1 ]; }

busybox mkdir -p /usr/local/bin
busybox --install -s /usr/local/bin
# Emulation is slow: what systemd waits for and what the test allows is that much longer.
FACTOR=1
if grep -q 'QEMU TCG' /proc/cpuinfo; then FACTOR=3; fi
busybox ip link set lo up
busybox mount -t tmpfs none /dev/shm 2>/dev/null
until_true 60 kubelet_works || fail "the kubelet does not start"
dpkg -i /download/0.1.0.deb > /dev/null || fail "the package"
ctr -n k8s.io images import /download/pause.tar > /dev/null || fail "no sandbox image"
ctr -n k8s.io images tag example.com/pause:1 "$(containerd config default | sed -n 's/^ *sandbox_image = "\(.*\)"/\1/p')" > /dev/null || fail "no sandbox image"
criscope install || fail "install"
criscope smoke --host-network --busybox /usr/bin/busybox --keep --cgroup-parent /pods > /smoke 2>&1 || { cat /smoke; fail "no pod"; }
systemctl is-active criscope-handover.service || fail "criscope-handover.service is not active"
sleep 2
rm -f /run/kubelet-longest-gap

say "two restarts under load"
load
first=$(main_pid)
systemctl restart criscope.service || fail "restart"
[ "$(main_pid)" != "$first" ] || fail "no new process"
[ -d "/proc/$first" ] || fail "the old process has ended"
until_true 30 criscope pods || fail "the admin endpoint: $(criscope pods 2>&1)"
second=$(main_pid)
systemctl restart criscope.service || fail "the second restart"
[ "$(main_pid)" != "$second" ] || fail "no third process"
[ -d "/proc/$first" ] || fail "the second restart ends the first process"
loaded
at_most 3000 "two restarts under load"

say "an upgrade of the package with 20 calls, 5 sessions and a forwarded port"
load 20 5
first=$(main_pid)
dpkg -i /download/9.9.9.deb || fail "the upgrade"
[ "$(main_pid)" != "$first" ] || fail "the upgrade does not hand over"
loaded
at_most 3000 "an upgrade under load"

say "the next version does not start: the old one goes on serving"
load
first=$(main_pid)
cp /etc/criscope/criscope.toml /criscope.toml
echo '[nonsense' >> /etc/criscope/criscope.toml
systemctl restart criscope.service && fail "it starts"
[ -d "/proc/$first" ] || fail "the old process has ended"
until_true 10 kubelet_works || fail "the kubelet does not work"
cp /criscope.toml /etc/criscope/criscope.toml
systemctl restart criscope.service || fail "not started again"
loaded
at_most 5000 "a configuration that does not parse"

say "a kill is no handover, and a stop ends all"
# The failed start was bypassed, for a minute after the good one.
until_true 60 has_returned || fail "the bypass does not end"
load
first=$(main_pid)
systemctl restart criscope.service || fail "restart"
kill -9 "$(main_pid)"
sleep $((5 * FACTOR))
[ -d "/proc/$first" ] || fail "a kill of the new process ends the old one"
systemctl stop criscope.socket criscope.service
until_true 30 test ! -d "/proc/$first" || fail "the old process outlives a stop"
systemctl start criscope.socket criscope.service || fail "start"
until_true 60 kubelet_works || fail "the kubelet does not work"
busybox grep -c criscope_down /run/criscope/criscope.state/journal.jsonl
criscope uninstall || fail "uninstall"
say passed
sync
poweroff -f
sleep 60

#!/bin/bash
# Runs in the virtual machine of install.sh: restarts, an upgrade and an installation under load hand over, and cut no call and no session.
# shellcheck source=tests/v2/in-node.sh
. /in-node.sh

processes() { busybox pidof criscope | busybox wc -w; }
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
only_one() { [ "$(processes)" = 1 ]; }

until_true 60 kubelet_works || fail "the kubelet does not start"
dpkg -i /download/0.1.0.deb > /dev/null || fail "the package"
sandbox_image
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
answers_always 10
until_true 10 kubelet_works || fail "the kubelet does not work"
cp /criscope.toml /etc/criscope/criscope.toml
systemctl restart criscope.service || fail "not started again"
loaded
at_most 5000 "a configuration that does not parse"

say "a kill is no handover, and a stop ends all"
# The failed start was bypassed, for a minute after the good one.
until_true 60 direct || fail "the bypass does not end"
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
end

#!/bin/bash
# Runs in the virtual machine of install.sh: everything that ends criscope, and how long the kubelet is without its runtime.
# shellcheck source=tests/v2/in-node.sh
. /in-node.sh

# After a crash in this time since criscope was ready it is bypassed at once, and after a bypass criscope has to work that long.
MINUTE=60
# The first return has its minute. The others wait for less, to save time.
shorter() {
    MINUTE=30
    sed -i "s/sleep 60/sleep $MINUTE/" /etc/systemd/system/criscope-retry.service
    sed -i "s/-ge 60/-ge $MINUTE/" /etc/systemd/system/criscope.service.d/criscope-bypass.conf
    systemctl daemon-reload
}
back() {
    until_true 60 active criscope.service || fail "criscope is not started again"
    until_true 90 direct || fail "the bypass does not end"
    at_most 5000 "the return to criscope"
    sleep "$MINUTE"
}

until_true 60 kubelet_works || fail "the kubelet does not start"
dpkg -i /download/9.9.9.deb > /dev/null || fail "the package"
criscope install || fail "install"
until_true 60 answers || fail "criscope does not answer"
direct || fail "bypassed after the installation"
sleep 60
rm -f /run/kubelet-longest-gap

systemctl start criscope.service
sleep $((6 * FACTOR))
direct || fail "bypassed because a criscope that runs is told to start"

say "a single crash is no reason for a bypass"
kill -9 "$(main_pid)"
until_true 20 active criscope.service || fail "not restarted"
sleep $((8 * FACTOR))
direct || fail "bypassed after a single crash"
at_most 10000 "a single crash"

say "kill -9 again and again, on a full disk"
busybox fallocate -l "$(busybox df -k / | busybox awk 'END { print $4 }')k" /full
busybox dd if=/dev/zero of=/full.rest bs=4k 2> /dev/null
for _ in $(seq 15); do pid=$(main_pid); [ "$pid" = 0 ] || kill -9 "$pid"; sleep 2; done
until_true 10 bypassed || fail "no bypass in a crash loop"
at_most 10000 "a crash loop on a full disk"
rm -f /full /full.rest
back
shorter
read -r from to < /run/criscope/agent/bypass.last
[ "$from" -lt "$to" ] || fail "the times of the bypass: $from $to"

say "a configuration that does not parse"
cp /etc/criscope/criscope.toml /criscope.toml
echo '[nonsense' >> /etc/criscope/criscope.toml
systemctl restart criscope.service && fail "it starts"
until_true 12 bypassed || fail "no bypass with a broken configuration"
at_most 12000 "a broken configuration"
answers_always 10
at_most 3000 "starts that fail beside the bypass"
until_true 60 inactive criscope.service
criscope doctor | grep -i bypass || fail "doctor does not tell"
cp /criscope.toml /etc/criscope/criscope.toml
back

say "the program is /bin/false, then missing"
program=$(command -v criscope)
mv "$program" /criscope
ln -s /bin/false "$program"
kill -9 "$(main_pid)"
until_true 12 bypassed || fail "no bypass with /bin/false"
rm "$program"
at_most 10000 "/bin/false"
sleep 15
answers || fail "no answer without the program"
mv /criscope "$program"
back

say "it hangs, once"
kill -STOP "$(main_pid)"
until_true 12 bypassed || fail "no bypass of a criscope that hangs"
at_most 10000 "SIGSTOP"
until_true 10 answers || fail "no answer"
back

say "it hangs, and again after each start"
(until [ -e /thawed ]; do pid=$(main_pid); [ "$pid" = 0 ] || kill -STOP "$pid"; sleep 0.5; done) 2> /dev/null &
until_true 12 bypassed || fail "no bypass of a criscope that hangs again"
at_most 10000 "SIGSTOP in a loop"
sleep 20
answers || fail "no answer"
touch /thawed
back

say "stopped on purpose: the next call starts it, without a bypass"
systemctl stop criscope.service
sleep 2
inactive criscope-bypass.service || fail "a stop is bypassed"
until_true 10 active criscope.service || fail "the socket does not start it"
rm -f /run/kubelet-longest-gap

say "the bypass ends with the socket, and with an uninstallation"
sleep $((MINUTE + 1))
systemctl start criscope-bypass.service
sleep 2
systemctl stop criscope.socket criscope.service
sleep 1
for unit in criscope-bypass.service criscope-bypass.timer criscope-retry.service; do
    inactive "$unit" || fail "$unit runs without the socket"
done
systemctl start criscope.socket criscope.service || fail "not started again"
until_true 30 kubelet_works || fail "the kubelet does not work"
mv "$program" /criscope
kill -9 "$(main_pid)"
until_true 12 bypassed || fail "no bypass before the uninstallation"
/criscope uninstall || fail "uninstall"
left=$(systemctl list-units --all --no-legend 'criscope*' | grep -v -e recover -e not-found)
[ -z "$left" ] || fail "left behind: $left"
[ -z "$(find /etc/systemd /run/criscope -name '*bypass*')" ] || fail "files of the bypass are left"
say passed
end

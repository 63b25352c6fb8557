#!/bin/bash
# Runs in the virtual machine of run.sh: breaks criscope in each way, and prints how long the CRI did not answer.
# shellcheck source=tests/v2/in-node.sh
. /in-node.sh
say() { echo "criscope-path: $*"; }
# The times are those of the units as they are installed, in an emulated machine too.
rm -rf /run/systemd/system/criscope-*.d /run/systemd/system/criscope.service.d
systemctl daemon-reload
# fault NAME: what follows is this fault, for who watches from outside
fault() { say "fault: $*"; rm -f /run/kubelet-longest-gap; }
# mended: prints the longest time without an answer, and waits until calls go through criscope again.
mended() {
    sleep 2
    say "longest time without an answer: $(cat /run/kubelet-longest-gap) ms"
    systemctl reset-failed criscope.service 2> /dev/null
    until_true 300 direct || fail "criscope does not return"
    say "through criscope again; while it returned: $(cat /run/kubelet-longest-gap) ms"
    sleep 70
}
end_criscope() { kill -9 "$(main_pid)"; }
# keep KILL SECONDS: sends the signal to each criscope that starts, for so long
keep() {
    local end=$((SECONDS + $2)) pid
    while [ "$SECONDS" -lt "$end" ]; do
        pid=$(main_pid)
        [ "$pid" = 0 ] || kill "-$1" "$pid" 2> /dev/null
        sleep 1
    done
}

busybox modprobe -a virtio_net overlay veth bridge
for card in /sys/class/net/e*; do card=${card##*/}; done
ip link set "$card" up
ip addr add 10.0.2.15/24 dev "$card"
ip route add default via 10.0.2.2 || fail "no network"
until_true 120 active containerd.service || fail "no containerd"
sandbox_image
dpkg -i /download/9.9.9.deb > /dev/null || fail "the package"
systemctl start kubelet
until_true 300 wget -q -O - http://127.0.0.1:10248/healthz || fail "no kubelet"
criscope install || fail "install"
# The stand-in asks once a second beside the real kubelet. It answers on the kubelet's port for health, so it has a network of its own.
unshare -n sh -c 'ip link set lo up; exec cri-probe --container-runtime-endpoint unix:///run/criscope/criscope.sock' &
sleep 60

program=$(command -v criscope)
break_none() {
    fault "none"
    sleep 60
    mended
}
break_kill() {
    fault "kill -9 of each criscope, for five minutes"
    keep KILL 300
    mended
}
break_false() {
    fault "the program is /bin/false"
    mv "$program" /criscope.program
    ln -s /bin/false "$program"
    end_criscope
    sleep 90
    rm "$program"
    mv /criscope.program "$program"
    mended
}
break_configuration() {
    fault "a configuration that does not parse"
    cp /etc/criscope/criscope.toml /criscope.toml
    echo '[nonsense' >> /etc/criscope/criscope.toml
    systemctl restart criscope.service
    sleep 90
    cp /criscope.toml /etc/criscope/criscope.toml
    mended
}
break_library() {
    local library
    fault "a library is missing"
    library=$(busybox readlink -f "$(find /lib/ /usr/lib/ -name libgcc_s.so.1 | head -n 1)")
    mv "$library" /library
    end_criscope
    sleep 90
    mv /library "$library"
    mended
}
break_stop() {
    fault "SIGSTOP of each criscope, for two minutes"
    keep STOP 120
    mended
}
break_disk() {
    fault "the disk is full, criscope is restarted and killed"
    busybox dd if=/dev/zero of=/full bs=1M > /dev/null 2>&1
    busybox dd if=/dev/zero of=/full.rest bs=4k > /dev/null 2>&1
    sleep 20
    systemctl restart criscope.service
    sleep 30
    end_criscope
    sleep 60
    busybox df / | tail -n 1
    rm -f /full /full.rest
    mended
}
read -r -a faults < /faults
for name in "${faults[@]}"; do "break_$name"; done

say passed
end

#!/bin/bash
# Runs in the virtual machine of install.sh, once after each boot; /stage says which part comes next.
# shellcheck source=tests/v2/in-node.sh
. /in-node.sh

stage=$(cat /stage 2> /dev/null || echo 1)

# The next part, after a reboot or after the power went off.
next() { echo "$1" > /stage; sync; say again; }
# Content, modes and links of everything that an installation may touch.
state() {
    (cd / && find etc var/lib/kubelet usr/local/bin -type f -exec sha256sum {} + | sort -k 2
        find etc var/lib/kubelet usr/local/bin -printf '%p %M %U %G %l\n' | sort)
}
# The pods' containers with their processes.
pods() { ctr -n k8s.io tasks ls | sort; }
# Besides the files of the package.
nothing_left() {
    local left
    left=$(find / -xdev \( -path /proc -o -path /sys -o -path /download -o -path /before -o -path '/var/lib/dpkg/info/criscope.*' \) -prune -o -name '*criscope*' -print 2>/dev/null |
        grep -v -e containerd -e '^/tmp' -e /systemd-private- | grep -vxF -f <(dpkg -L criscope 2>/dev/null; echo none))
    [ ! -e /var/lib/criscope-install ] || left="$left /var/lib/criscope-install"
    [ ! -e /run/criscope ] || left="$left /run/criscope"
    left=${left//$'\n'/ }
    [ -z "$left" ] || fail "left behind: $left"
}

until_true 60 kubelet_works || fail "the kubelet does not start"

case $stage in
    1)
        say "part 1: the package, a pod, a kubelet that rejects criscope, then one that works"
        state > /clean
        dpkg -i /download/0.1.0.deb || fail "the package"
        state > /before
        grep -v criscope /before | cmp - <(grep -v criscope /clean) || fail "the package changes the node"
        [ -z "$(systemctl list-units --no-legend 'criscope*')" ] || fail "the package starts something"
        sandbox_image
        criscope smoke --endpoint unix:///run/containerd/containerd.sock --host-network --busybox /usr/bin/busybox --keep \
            --cgroup-parent /pods > /smoke 2>&1 || { cat /smoke; fail "no pod"; }
        pod=$(pods)
        [ "$(grep -c RUNNING <<< "$pod")" = 2 ] || fail "no pod: $pod"
        criscope install --dry-run > /dry || fail "dry run"
        state | cmp - /before || fail "a dry run changed something"
        echo unix:///run/criscope/criscope.sock > /etc/kubelet-rejects
        state > /rejecting
        if criscope install --timeout 15s; then fail "installed with a kubelet that rejects it"; fi
        state | cmp - /rejecting || { state | diff /rejecting -; fail "not as before"; }
        nothing_left
        until_true 60 kubelet_works || fail "the kubelet does not work after the roll-back"
        rm /etc/kubelet-rejects
        systemctl stop containerd
        if criscope install --timeout 15s; then fail "installed with a runtime that is down"; fi
        systemctl start containerd
        until_true 60 kubelet_works || fail "the kubelet does not work"
        sleep 2
        state | cmp - /before || fail "not as before"
        criscope install || fail "install"
        criscope install || fail "a second time"
        [ "$(pods)" = "$pod" ] || fail "the pod was touched: $pod, now $(pods)"
        systemctl show -p MainPID --value criscope.service | grep -qvx 0 || fail "criscope does not run"
        criscope doctor | grep kubelet
        next 2
        systemctl reboot --force --force
        ;;
    2)
        say "part 2: after a reboot; uninstall; the power goes off during an installation"
        grep -qx 'containerRuntimeEndpoint: unix:///run/criscope/criscope.sock   # kept' /var/lib/kubelet/config.yaml || fail "the endpoint"
        systemctl is-active criscope.service || fail "criscope does not run after a reboot"
        criscope smoke --host-network --busybox /usr/bin/busybox --keep --cgroup-parent /pods > /smoke 2>&1 || { cat /smoke; fail "no pod"; }
        pod=$(pods)
        if dpkg -r criscope; then fail "the package of a node that uses it is removed"; fi
        until_true 60 kubelet_works || fail "the kubelet does not work after a removal that was refused"
        daemon=$(systemctl show -p MainPID --value criscope.service)
        dpkg -i /download/9.9.9.deb || fail "the upgrade"
        [ "$(systemctl show -p MainPID --value criscope.service)" != "$daemon" ] || fail "the upgrade does not hand over"
        systemctl is-active criscope.service || fail "the new version does not start"
        systemctl restart criscope.service || fail "the new version does not restart"
        until_true 60 kubelet_works || fail "the kubelet does not work after the upgrade"
        [ "$(pods)" = "$pod" ] || fail "the upgrade touched the pod: $pod, now $(pods)"
        criscope uninstall || fail "uninstall"
        [ "$(pods)" = "$pod" ] || fail "the pod was touched: $pod, now $(pods)"
        state | cmp - /before || { state | diff /before -; fail "not as before"; }
        nothing_left
        next 3
        criscope install > /log 2>&1 &
        until grep -q criscope.sock /var/lib/kubelet/config.yaml; do :; done
        echo b > /proc/sysrq-trigger
        ;;
    3)
        say "part 3: recovered at boot; the power goes off during an uninstallation"
        state | cmp - /before || { state | diff /before -; fail "the installation was not undone"; }
        nothing_left
        criscope install || fail "install"
        next 4
        criscope uninstall > /log 2>&1 &
        while grep -q criscope.sock /var/lib/kubelet/config.yaml; do :; done
        echo b > /proc/sysrq-trigger
        ;;
    4)
        say "part 4: finished at boot"
        state | cmp - /before || { state | diff /before -; fail "the uninstallation was not finished"; }
        nothing_left
        say "part 4: at the path of containerd's socket"
        criscope smoke --endpoint unix:///run/containerd/containerd.sock --host-network --busybox /usr/bin/busybox --keep \
            --cgroup-parent /pods > /smoke 2>&1 || { cat /smoke; fail "no pod"; }
        pod=$(pods)
        criscope install --take-over || fail "install --take-over"
        grep -q '^containerRuntimeEndpoint: unix:///run/containerd/containerd.sock ' /var/lib/kubelet/config.yaml || fail "the endpoint was changed"
        [ -S /run/containerd/containerd.upstream.sock ] || fail "containerd did not move"
        # Through criscope, as any client of that path.
        [ "$(pods)" = "$pod" ] || fail "the pod was touched: $pod, now $(pods)"
        criscope pods > /dev/null || fail "criscope does not answer"
        criscope uninstall || fail "uninstall of --take-over"
        [ "$(pods)" = "$pod" ] || fail "the pod was touched: $pod, now $(pods)"
        state | cmp - /before || { state | diff /before -; fail "not as before --take-over"; }
        nothing_left
        say "part 4: as the runtime"
        if criscope install --runtime; then fail "installed over the pods of another runtime"; fi
        state | cmp - /before || fail "a refused installation changed something"
        ctr -n k8s.io tasks ls -q | busybox xargs -r -n 1 ctr -n k8s.io tasks kill -s KILL
        for _ in 1 2 3 4 5; do ctr -n k8s.io tasks ls -q | busybox xargs -r -n 1 ctr -n k8s.io tasks rm > /dev/null 2>&1; sleep 0.5; done
        ctr -n k8s.io containers ls -q | busybox xargs -r -n 1 ctr -n k8s.io containers rm
        systemctl restart containerd || fail "containerd does not restart"
        until_true 60 kubelet_works || fail "the kubelet does not work without pods"
        criscope install --runtime || fail "install --runtime"
        systemctl is-active criscope.service || fail "the runtime does not run"
        criscope smoke --host-network --busybox /usr/bin/busybox > /smoke 2>&1 || { cat /smoke; fail "no pod of the built-in runtime"; }
        criscope uninstall || fail "uninstall of --runtime"
        until_true 60 kubelet_works || fail "the kubelet does not work after --runtime"
        state | cmp - /before || { state | diff /before -; fail "not as before --runtime"; }
        # Images and records of pods are the user's: docs/INSTALL.md.
        rm -r /var/lib/criscope /run/criscope || fail "the state of the runtime is gone"
        nothing_left
        dpkg -P criscope || fail "the purge"
        state | cmp - /clean || { state | diff /clean -; fail "the purge leaves something"; }
        nothing_left
        say passed
        end
        ;;
esac
# until the reboot
sleep 60

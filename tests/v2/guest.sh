#!/bin/sh
# PID 1 of the virtual machine: mounts the file systems of a node, with cgroup v2 only, runs the tests, and prints the result.
set -u
# Copied programs take precedence over busybox applets.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/bin
export HOME=/root CRISCOPE_BUSYBOX=/usr/bin/busybox RUST_BACKTRACE=0

/usr/bin/busybox mount -t proc -o nosuid,nodev,noexec proc /proc
/usr/bin/busybox mkdir -p /usr/local/bin
/usr/bin/busybox --install -s /usr/local/bin
# The image may have been built by another user than root.
[ "$(stat -c %u /guest.sh)" = 0 ] || find / -xdev -exec chown -h 0:0 {} +

mount -t sysfs -o nosuid,nodev,noexec sysfs /sys
mount -t securityfs -o nosuid,nodev,noexec securityfs /sys/kernel/security
mount -t cgroup2 -o nosuid,nodev,noexec,nsdelegate,memory_recursiveprot cgroup2 /sys/fs/cgroup
# Enable all controllers below the root, as systemd does.
sed 's/^/+/; s/ / +/g' /sys/fs/cgroup/cgroup.controllers > /sys/fs/cgroup/cgroup.subtree_control
mkdir -p /dev/pts /dev/shm /root /var/tmp
mount -t devpts -o gid=5,mode=620,ptmxmode=666 devpts /dev/pts
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t tmpfs -o mode=755 tmpfs /run
mount --make-rshared /
ln -sf /proc/self/fd /dev/fd
ln -sf /proc/self/fd/0 /dev/stdin
ln -sf /proc/self/fd/1 /dev/stdout
ln -sf /proc/self/fd/2 /dev/stderr
mkdir -p /run/lock
hostname v2
ip link set lo up
# Most would be loaded on demand, but concurrent requests for the same module interfere with each other.
modprobe -a overlay veth bridge nft_compat nft_chain_nat xt_comment xt_mark xt_nat xt_MASQUERADE xt_multiport xt_addrtype
read -r up _ < /proc/uptime
echo "criscope-v2: up after $up s, controllers: $(cat /sys/fs/cgroup/cgroup.controllers), LSM: $(cat /sys/kernel/security/lsm)"

# On this kernel it works; see tests/it/runtime/verbs/checkpoints/criu.rs.
if command -v criu > /dev/null; then export CRISCOPE_TEST_CRIU=required; fi

# Each line is a runtime and a filter of test names; the tests of a runtime run in one process.
program=$(cat /etc/criscope-test-program)
failed=
for runtime in runc crun; do
    command -v "$runtime" > /dev/null || continue
    tests=$(sed -n "s/^$runtime //p" /etc/criscope-tests)
    echo "criscope-v2: with $runtime"
    # shellcheck disable=SC2086
    CRISCOPE_TEST_RUNTIME=$runtime "$program" --test-threads=2 $tests || failed="$failed $runtime"
done
left=$(find /sys/fs/cgroup -mindepth 1 -type d)
[ -z "$left" ] || { echo "cgroups left behind: $left"; failed="$failed cgroups"; }
if [ -z "$failed" ]; then echo "criscope-v2: passed"; else echo "criscope-v2: FAILED:$failed"; fi
sync
poweroff -f

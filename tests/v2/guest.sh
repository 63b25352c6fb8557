#!/bin/sh
# Process 1 of the virtual machine: mounts what a node has, cgroup v2 alone, runs the tests, and says how that went.
set -u
# What this machine has of its own goes before what busybox has.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/bin
export HOME=/root CRISCOPE_BUSYBOX=/usr/bin/busybox RUST_BACKTRACE=0

/usr/bin/busybox mount -t proc -o nosuid,nodev,noexec proc /proc
/usr/bin/busybox mkdir -p /usr/local/bin
/usr/bin/busybox --install -s /usr/local/bin
# The one who built it need not have been root.
[ "$(stat -c %u /guest.sh)" = 0 ] || find / -xdev -exec chown -h 0:0 {} +

mount -t sysfs -o nosuid,nodev,noexec sysfs /sys
mount -t cgroup2 -o nosuid,nodev,noexec,nsdelegate,memory_recursiveprot cgroup2 /sys/fs/cgroup
# As systemd does it: what is made below may use them all.
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
# Most are loaded when they are asked for; two at once that ask for the same one would be in each other's way.
modprobe -a overlay veth bridge nft_compat nft_chain_nat xt_comment xt_mark xt_nat xt_MASQUERADE xt_multiport xt_addrtype
read -r up _ < /proc/uptime
echo "criscope-v2: up after $up s, controllers: $(cat /sys/fs/cgroup/cgroup.controllers)"

# Every line is a runtime and what its tests' names begin with: one program for all tests of a runtime.
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
[ -z "$left" ] || { echo "cgroups that are left: $left"; failed="$failed cgroups"; }
if [ -z "$failed" ]; then echo "criscope-v2: passed"; else echo "criscope-v2: FAILED:$failed"; fi
sync
poweroff -f

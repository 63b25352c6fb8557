#!/usr/bin/env bash
# The Debian package, `criscope install` and `uninstall` on a node with systemd, containerd and runc, in virtual machines: with a kubelet
# that works and with one that does not, through a reboot and an upgrade, and with the power going off in the middle. A small program in the kubelet's place
# (crates/testkit/examples/kubelet.rs) reads the real configuration files and calls the CRI.
#
# usage: tests/v2/install.sh [SCRIPT...]   these scripts (default: node.sh, bypass.sh and handover.sh), each in a machine, side by side
# environment: as of tests/v2/run.sh. Without qemu, a kernel, systemd or containerd it prints NOT CHECKED and exits with 0.
set -euo pipefail

# shellcheck source=tests/v2/run.sh
. "$(dirname "${BASH_SOURCE[0]}")/run.sh"

PROGRAMS=(sh bash runc containerd containerd-shim-runc-v2 ctr systemctl sha256sum find flock
    dpkg dpkg-deb dpkg-query dpkg-split tar rm ldconfig start-stop-daemon)
OPTIONAL=()
SYSTEMD=/lib/systemd
FILES=("$SYSTEMD/systemd" "$SYSTEMD/systemd-shutdown" "$SYSTEMD/systemd-socket-proxyd" "$SYSTEMD/system/containerd.service")
NIC=(-nic none)
UNITS=(basic sysinit sockets slices paths timers local-fs local-fs-pre network multi-user shutdown umount reboot final)

build_programs() {
    # as the step test of tests/run.sh has built them: see build()
    cargo test --workspace --locked --no-run
}

stage_node() {
    local name path
    ROOT=$WORK/root
    mkdir -p "$ROOT"/{dev,proc,run,sys,tmp,root,download,etc/systemd/system,usr/bin,usr/sbin,usr/lib,usr/lib64,var/lib/kubelet,var/tmp,lib/modules}
    for name in bin sbin lib lib64; do
        if [ -L "/$name" ]; then rm -rf "${ROOT:?}/$name"; cp -P "/$name" "$ROOT/"; else mkdir -p "$ROOT/$name"; fi
    done
    cp "$BUSYBOX" "$ROOT/usr/bin/busybox"
    ln -s ../bin/busybox "$ROOT/usr/sbin/modprobe"
    for name in "${PROGRAMS[@]}"; do
        path=$(command -v "$name") || not_checked "$name is not installed"
        add "$path"
    done
    for path in "${FILES[@]}"; do add "$path"; done
    for name in "${UNITS[@]}"; do add "$SYSTEMD/system/$name.target"; done
    add "$SYSTEMD/system/systemd-reboot.service"
    packages
    for name in kubelet load; do
        path=$(realpath "$TARGET/debug/examples/$name")
        add_built "$path"
        mv "$ROOT$path" "$ROOT/usr/bin/$name"
    done
    printf 'root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n' > "$ROOT/etc/passwd"
    printf 'root:x:0:\nnogroup:x:65534:\n' > "$ROOT/etc/group"
    printf '127.0.0.1 localhost\n' > "$ROOT/etc/hosts"
    printf 'v2\n' > "$ROOT/etc/hostname"
    printf '0123456789abcdef0123456789abcdef\n' > "$ROOT/etc/machine-id"
    : > "$ROOT/etc/resolv.conf"
    add_modules
    cp tests/v2/in-node.sh "$ROOT/in-node.sh"
    node_init > "$ROOT/guest.sh"
    node_files
}

# The first program. In an emulated machine the bypass and the watchdog wait for longer: programs need several times as long to start.
node_init() {
    cat <<SH
#!/bin/sh
busybox mount -t proc proc /proc
busybox mount -t tmpfs -o mode=755 tmpfs /run
if busybox grep -q 'QEMU TCG' /proc/cpuinfo; then
    echo 4 > /run/factor
    busybox mkdir -p /run/systemd/system/criscope-bypass.timer.d /run/systemd/system/criscope.service.d
    printf '[Timer]\nOnActiveSec=\nOnActiveSec=20\n' > /run/systemd/system/criscope-bypass.timer.d/slow.conf
    printf '[Service]\nWatchdogSec=24\n' > /run/systemd/system/criscope.service.d/slow.conf
else
    echo 1 > /run/factor
fi
exec $SYSTEMD/systemd --log-target=kmsg
SH
}

# A package of the version before, and one of this, of the same programs: what an upgrade must not touch does not depend on them.
packages() {
    local name version
    mkdir -p "$WORK/bin" "$ROOT"/var/lib/dpkg/{info,updates,triggers,parts} "$ROOT/etc/dpkg"
    touch "$ROOT/var/lib/dpkg/status" "$ROOT/var/lib/dpkg/available"
    for name in criscope criscope-shim; do
        # Copies of programs with debug information take minutes under emulation.
        strip --strip-debug -o "$WORK/bin/$name" "$TARGET/debug/$name"
        # Their shared libraries, which packages of a release do not need.
        add "$WORK/bin/$name"
        rm -r "${ROOT:?}$WORK"
    done
    for version in 0.1.0 9.9.9; do
        deploy/release.sh --arch x86_64 --binaries "$WORK/bin" --only deb --fast --version "$version" --out "$WORK/deb" > "$WORK/log" 2>&1 ||
            { cat "$WORK/log" >&2; die "deploy/release.sh failed"; }
        cp "$WORK"/deb/*.deb "$ROOT/download/$version.deb"
    done
}

# A node of kubeadm 1.34: configuration file, instance configuration, drop-in of the package.
node_files() {
    local etc=$ROOT/etc/systemd/system
    cat > "$ROOT/var/lib/kubelet/config.yaml" <<'YAML'
# The kubelet of this node.
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock   # kept
cgroupDriver: systemd
YAML
    printf 'apiVersion: kubelet.config.k8s.io/v1beta1\ncontainerRuntimeEndpoint: unix:///run/containerd/containerd.sock\nkind: KubeletConfiguration\n' \
        > "$ROOT/var/lib/kubelet/instance-config.yaml"
    printf 'KUBELET_KUBEADM_ARGS="--node-labels=a=b"\n' > "$ROOT/var/lib/kubelet/kubeadm-flags.env"
    mkdir -p "$etc/kubelet.service.d" "$etc/multi-user.target.wants"
    cat > "$etc/kubelet.service" <<'UNIT'
[Unit]
After=containerd.service
[Service]
ExecStart=/usr/bin/kubelet
Restart=always
RestartSec=1
UNIT
    cat > "$etc/kubelet.service.d/10-kubeadm.conf" <<'UNIT'
[Service]
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS
UNIT
    cat > "$etc/node-test.service" <<'UNIT'
[Unit]
After=containerd.service kubelet.service
[Service]
Type=oneshot
ExecStart=/bin/bash /node.sh
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
UNIT
    ln -s "$SYSTEMD/system/containerd.service" "$etc/multi-user.target.wants/"
    ln -s /etc/systemd/system/kubelet.service "$etc/multi-user.target.wants/"
    ln -s /etc/systemd/system/node-test.service "$etc/multi-user.target.wants/"
    ln -s "$SYSTEMD/system/multi-user.target" "$etc/default.target"
}

# The sandbox image of containerd, which has no registry here: busybox, asleep.
pause_image() {
    local dir=$WORK/pause sum
    mkdir -p "$dir/layer/bin"
    cp "$BUSYBOX" "$dir/layer/bin/busybox"
    tar -C "$dir/layer" -cf "$dir/layer.tar" bin
    sum=$(sha256sum "$dir/layer.tar" | cut -d ' ' -f 1)
    printf '{"architecture":"amd64","os":"linux","config":{"Entrypoint":["/bin/busybox","sleep","86400"]},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
        "$sum" > "$dir/config.json"
    printf '[{"Config":"config.json","RepoTags":["example.com/pause:1"],"Layers":["layer.tar"]}]' > "$dir/manifest.json"
    tar -C "$dir" -cf "$ROOT/download/pause.tar" manifest.json config.json layer.tar
}

# node_image SCRIPT: the disk of a machine that runs it. With a journal, as on nodes: the power goes off.
node_image() {
    local disk
    disk=$WORK/$(basename "$1").disk
    cp "$1" "$ROOT/node.sh"
    truncate -s 2G "$disk"
    mkfs.ext4 -q -F -E root_owner=0:0,lazy_itable_init=1 -d "$ROOT" "$disk"
}

# boot_node NAME: as boot, but what is written stays.
boot_node() {
    local console=$WORK/$1.console
    : > "$console"
    timeout --kill-after=5 "$PATIENCE" qemu-system-x86_64 -accel "$ACCEL" -cpu max -smp 2 -m 2048 \
        -nodefaults -display none -serial "file:$console" -no-reboot "${NIC[@]}" \
        -drive "file=$WORK/$1.disk,if=virtio,format=raw,cache=writeback" \
        -kernel "$KERNEL" -initrd "$WORK/initramfs" \
        -append "console=ttyS0 quiet panic=-1 mitigations=off" < /dev/null &
    MACHINE=$!
    tail -n +1 -s 0.2 -f --pid="$MACHINE" "$console" | sed -u "s/\r*$//; s/^/    $1 | /" &
    wait "$MACHINE" || true
    wait
}

# run_node NAME: until its script has passed, through its reboots.
run_node() {
    local boots=0
    MACHINE=''
    # the traps of the shell around it are not inherited
    trap '[ -z "$MACHINE" ] || kill "$MACHINE" 2> /dev/null || true' EXIT
    trap 'exit 143' TERM INT HUP
    while [ "$boots" -lt 6 ]; do
        boots=$((boots + 1))
        boot_node "$1"
        if grep -q 'criscope-install: passed' "$WORK/$1.console"; then
            note "$1: passed, $boots boots, $((SECONDS - BEGAN)) s"
            return
        fi
        grep -q 'criscope-install: again' "$WORK/$1.console" || die "$1 failed, or did not finish within $PATIENCE s"
    done
    die "$1: too many boots"
}

main_install() {
    local script node failed=0
    NODES=()
    [ "$#" -gt 0 ] || set -- tests/v2/{node,bypass,handover}.sh
    [ "$(uname -m)" = x86_64 ] || not_checked "this machine is $(uname -m), the virtual machine requires x86_64"
    have qemu-system-x86_64 || not_checked "this machine has no qemu-system-x86_64"
    [ -x "$SYSTEMD/systemd" ] || not_checked "this machine has no systemd"
    have containerd || not_checked "this machine has no containerd"
    find_kernel
    mkdir -p "$TARGET/test-tools"
    WORK=$(mktemp -d "$TARGET/test-tools/install.XXXXXX")
    MACHINE=''
    trap 'kill "${NODES[@]}" 2> /dev/null || true; cleanup' EXIT
    trap 'exit 143' TERM INT HUP
    build_programs
    stage_node
    pause_image
    initramfs
    for script; do node_image "$script"; done
    accelerator
    note "Linux $RELEASE, $ACCEL, $(du -sh "$ROOT" | cut -f 1) of files; ready after $SECONDS s"
    rm -rf "$ROOT"
    BEGAN=$SECONDS
    for script; do
        run_node "$(basename "$script")" &
        NODES+=($!)
    done
    for node in "${NODES[@]}"; do wait "$node" || failed=1; done
    NODES=()
    return "$failed"
}

# tests/by-hand/path-faults/run.sh uses its functions.
[ "${BASH_SOURCE[0]}" != "$0" ] || main_install "$@"

#!/usr/bin/env bash
# The integration tests of the built-in runtime on a machine with cgroup v2 only and with AppArmor, as on most nodes: in a
# virtual machine with Debian's cloud kernel, whatever the host has. Its files are copied from the host: the tests and programs built by
# cargo, runc, crun, the CNI plugins. Its only network is loopback, and its disk is discarded.
#
# usage: tests/v2/run.sh             the tests of tests/v2/tests
#        tests/v2/run.sh FILTER...   those whose names contain a FILTER, with each OCI runtime
# environment:
#   CRISCOPE_V2_PATIENCE   timeout of the virtual machine in seconds (default 600)
#   CRISCOPE_V2_ACCEL      kvm or tcg (default kvm where it works, else tcg, which is emulation)
#   CRISCOPE_BUSYBOX       a static busybox (default /bin/busybox)
# Needs no root. Needs qemu-system-x86_64, mkfs.ext4, jq, and a kernel package, which it downloads and unpacks in
# target/. Without qemu or a kernel it prints NOT CHECKED with the reason, and exits with 0.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
TARGET=${CARGO_TARGET_DIR:-$PWD/target}
# tests/run.sh unpacks packages there that cannot be installed
PATH=$PATH:$TARGET/test-tools/bin
KERNELS=$TARGET/test-tools/v2-kernel
BUSYBOX=${CRISCOPE_BUSYBOX:-/bin/busybox}
PATIENCE=${CRISCOPE_V2_PATIENCE:-600}
PACKAGE=linux-image-cloud-amd64

# Programs of the host that the tests and the runtime call; copied with their shared libraries.
PROGRAMS=(sh bash runc ip iptables iptables-save nsenter unshare setpriv install flock)
# Copied if installed. CRIU calls the programs after it: two lock the network of the pod, two copy the files of a tmpfs.
OPTIONAL=(crun criu iptables-restore ip6tables-restore tar gzip)
# Files that programs open by name at run time; ldd does not list them.
FILES=(/usr/lib/cni /usr/lib/x86_64-linux-gnu/xtables /etc/protocols /etc/services)
# Kernel modules.
MODULES=(crypto drivers/block drivers/net/veth.ko drivers/net/dummy.ko drivers/virtio fs/overlayfs lib net)

die() { printf 'tests/v2/run.sh: %s\n' "$*" >&2; exit 1; }
note() { printf '    %s\n' "$*"; }
not_checked() { note "NOT CHECKED: $*"; exit 0; }
have() { command -v "$1" > /dev/null 2>&1; }

# --- the kernel ------------------------------------------------------------------------------------------------------

# The unpacked kernel is kept until apt has a newer one.
find_kernel() {
    local package
    package=$(apt-cache depends "$PACKAGE" 2>/dev/null | awk '$1 == "Depends:" && $2 ~ /^linux-image/ { print $2; exit }') || true
    if [ -n "$package" ] && [ ! -e "$KERNELS/$package/done" ]; then
        note "downloading $package"
        download_kernel "$package" || note "$package cannot be downloaded"
    fi
    KERNEL=$(find "$KERNELS" -path '*/boot/vmlinuz-*' 2>/dev/null | sort -V | tail -n 1)
    [ -n "$KERNEL" ] || not_checked "apt has no $PACKAGE here, or it cannot be downloaded"
    RELEASE=${KERNEL##*/vmlinuz-}
    UNPACKED=${KERNEL%/boot/*}
}

# The program that loads profiles, without the service of its package, which the machine may not want.
find_apparmor() {
    APPARMOR=$TARGET/test-tools/v2-apparmor
    [ ! -x "$APPARMOR/sbin/apparmor_parser" ] || return 0
    rm -rf "$APPARMOR"
    mkdir -p "$APPARMOR"
    (cd "$APPARMOR" && apt-get download -qq -o APT::Sandbox::User="$(id -un)" apparmor && dpkg-deb -x ./*.deb . && rm -f ./*.deb) ||
        not_checked "apt has no package apparmor here, or it cannot be downloaded"
}

download_kernel() {
    local dir=$KERNELS/$1
    rm -rf "$KERNELS"
    mkdir -p "$dir"
    (cd "$dir" && apt-get download -qq -o APT::Sandbox::User="$(id -un)" "$1" && dpkg-deb -x ./*.deb .) || return 1
    rm -f "$dir"/*.deb
    "$BUSYBOX" depmod -b "$dir" "$(basename "$dir"/lib/modules/*)" || return 1
    touch "$dir/done"
}

# --- files of the virtual machine ------------------------------------------------------------------------------------

# Builds the tests and sets the path of the test program. With --workspace, as tests/run.sh does: for one package alone cargo
# enables fewer features of the dependencies, and would compile most of them a second time, into as much disk again.
build() {
    cargo test --workspace --locked --no-run --test it
    TEST_PROGRAM=$(cargo test --workspace --locked --no-run --test it --message-format json 2> /dev/null |
        jq -r --arg manifest "$PWD/Cargo.toml" 'select(.manifest_path == $manifest and .target.name == "it").executable')
    [ -n "$TEST_PROGRAM" ] || die "cargo does not print the path of the test program"
}

# Copies a file and its shared libraries, with their paths.
add() {
    local library
    cp --parents -L -r -- "$1" "$ROOT"
    [ -f "$1" ] || return 0
    ldd "$1" 2>/dev/null | grep -o '/[^ ]*' | while read -r library; do
        [ -e "$ROOT$library" ] || cp --parents -L -- "$library" "$ROOT"
    done || true
}

# Debug information is nine tenths of the size of cargo's binaries, and not needed there.
add_built() {
    add "$1"
    strip --strip-debug "$ROOT$1"
}

stage() {
    local name path
    ROOT=$WORK/root
    mkdir -p "$ROOT"/{dev,etc,proc,run,sys,tmp,usr/bin,usr/sbin,usr/lib,usr/lib64,var/lib,lib/modules}
    for name in bin sbin lib lib64; do
        if [ -L "/$name" ]; then rm -rf "${ROOT:?}/$name"; cp -P "/$name" "$ROOT/"; else mkdir -p "$ROOT/$name"; fi
    done
    cp "$BUSYBOX" "$ROOT/usr/bin/busybox"
    # called by the kernel
    ln -s ../bin/busybox "$ROOT/usr/sbin/modprobe"
    for name in "${PROGRAMS[@]}"; do
        path=$(command -v "$name") || die "$name is missing; run the step packages of tests/run.sh"
        add "$path"
    done
    for name in "${OPTIONAL[@]}"; do
        if path=$(command -v "$name"); then add "$path"; else note "NOT CHECKED: $name is not installed"; fi
    done
    for path in "${FILES[@]}"; do
        if [ -e "$path" ]; then add "$path"; fi
    done
    for path in "$TEST_PROGRAM" "$TARGET/debug/criscope" "$TARGET/debug/criscope-shim"; do
        add_built "$(realpath "$path")"
    done
    printf 'root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n' > "$ROOT/etc/passwd"
    printf 'root:x:0:\nnogroup:x:65534:\n' > "$ROOT/etc/group"
    printf '127.0.0.1 localhost\n' > "$ROOT/etc/hosts"
    : > "$ROOT/etc/resolv.conf"
    add_modules
    add_apparmor
    cp tests/v2/guest.sh "$ROOT/guest.sh"
    printf '%s\n' "$(realpath "$TEST_PROGRAM")" > "$ROOT/etc/criscope-test-program"
    if [ "$#" = 0 ]; then
        cp tests/v2/tests "$ROOT/etc/criscope-tests"
    else
        printf 'runc %s\ncrun %s\n' "$*" "$*" > "$ROOT/etc/criscope-tests"
    fi
}

add_apparmor() {
    add "$APPARMOR/sbin/apparmor_parser"
    mv "$ROOT$APPARMOR/sbin/apparmor_parser" "$ROOT/usr/sbin/"
    mkdir -p "$ROOT/etc" "$ROOT/usr/share"
    cp -r "$APPARMOR/etc/apparmor" "$APPARMOR/etc/apparmor.d" "$ROOT/etc/"
    cp -r "$APPARMOR/usr/share/apparmor-features" "$ROOT/usr/share/"
}

add_modules() {
    local from=$UNPACKED/lib/modules/$RELEASE to=$ROOT/lib/modules/$RELEASE module
    mkdir -p "$to/kernel"
    cp "$from"/modules.* "$to"
    for module in "${MODULES[@]}"; do
        [ ! -e "$from/kernel/$module" ] || (cd "$from" && cp --parents -r "kernel/$module" "$to")
    done
    "$BUSYBOX" depmod -b "$ROOT" "$RELEASE"
}

# The initramfs: loads the disk driver and switches to the root file system on the disk.
initramfs() {
    local dir=$WORK/first module
    mkdir -p "$dir/bin" "$dir/dev" "$dir/root"
    cp "$BUSYBOX" "$dir/bin/busybox"
    cp tests/v2/first.sh "$dir/init"
    chmod 755 "$dir/init"
    : > "$dir/modules"
    for module in $(modules_of virtio_pci) $(modules_of virtio_blk); do
        # they share dependencies
        [ ! -e "$dir/${module##*/}" ] || continue
        cp "$UNPACKED/lib/modules/$RELEASE/$module" "$dir/"
        echo "${module##*/}" >> "$dir/modules"
    done
    (cd "$dir" && find . | "$BUSYBOX" cpio -o -H newc -R 0:0 2>/dev/null) > "$WORK/initramfs"
}

# A module, after its dependencies.
modules_of() {
    awk -v name="$1.ko:" '{ n = split($1, part, "/") } part[n] == name { for (i = NF; i > 1; i--) print $i; sub(/:$/, "", $1); print $1 }' \
        "$UNPACKED/lib/modules/$RELEASE/modules.dep"
}

image() {
    # A sparse file.
    truncate -s 4G "$WORK/disk"
    mkfs.ext4 -q -F -O ^has_journal -E root_owner=0:0,lazy_itable_init=1 -d "$ROOT" "$WORK/disk"
    rm -rf "$ROOT"
}

# --- the machine -----------------------------------------------------------------------------------------------------

# Boots the virtual machine in the background; its console is written to a file. It powers itself off.
boot() {
    local accel=$1 seconds=$2 console=$3
    : > "$console"
    # -no-reboot: a panic ends it. TMPDIR: writes to the disk go to an unlinked temporary file.
    TMPDIR=$WORK timeout --kill-after=5 "$seconds" qemu-system-x86_64 -accel "$accel" -cpu max -smp 2 -m 2048 \
        -nodefaults -display none -serial "file:$console" -no-reboot -nic none \
        -drive "file=$WORK/disk,if=virtio,format=raw,snapshot=on,cache=unsafe" \
        -kernel "$KERNEL" -initrd "$WORK/initramfs" \
        -append "console=ttyS0 quiet panic=-1 mitigations=off ${4:-}" < /dev/null &
    MACHINE=$!
}

# /dev/kvm does not imply that kvm works: nested virtualization may be incomplete. So a boot of a few seconds probes it.
accelerator() {
    ACCEL=${CRISCOPE_V2_ACCEL:-}
    [ -z "$ACCEL" ] || return 0
    ACCEL=tcg
    [ -w /dev/kvm ] || return 0
    boot kvm 10 "$WORK/probe" criscope.probe 2> /dev/null
    wait "$MACHINE" || true
    if grep -q 'criscope-v2: first' "$WORK/probe"; then ACCEL=kvm; else note "kvm does not boot here"; fi
}

# At exit, also by a signal. The virtual machine may have ended already.
cleanup() {
    [ -z "$MACHINE" ] || kill "$MACHINE" 2>/dev/null || true
    rm -rf "$WORK"
}

main() {
    [ "$(uname -m)" = x86_64 ] || not_checked "this machine is $(uname -m), the virtual machine requires x86_64"
    have qemu-system-x86_64 || not_checked "this machine has no qemu-system-x86_64"
    have mkfs.ext4 || die "mkfs.ext4 is missing: apt-get install e2fsprogs"
    if [ ! -x "$BUSYBOX" ] || ldd "$BUSYBOX" > /dev/null 2>&1; then
        die "$BUSYBOX is not a static busybox; run the step packages of tests/run.sh"
    fi
    find_kernel
    find_apparmor
    mkdir -p "$TARGET/test-tools"
    WORK=$(mktemp -d "$TARGET/test-tools/v2.XXXXXX")
    MACHINE=''
    trap cleanup EXIT
    trap 'exit 143' TERM INT HUP
    build
    stage "$@"
    initramfs
    image
    accelerator
    note "Linux $RELEASE, $ACCEL, $(du -h "$WORK/disk" | cut -f 1) of files; ready after $SECONDS s"
    local began=$SECONDS
    boot "$ACCEL" "$PATIENCE" "$WORK/console"
    tail -n +1 -s 0.2 -f --pid="$MACHINE" "$WORK/console" | sed -u 's/\r*$//; s/^/    | /' &
    wait "$MACHINE" || true
    wait
    note "the virtual machine ran for $((SECONDS - began)) s"
    grep -q '^criscope-v2: passed' "$WORK/console" || die "failed, or not finished within $PATIENCE s"
}

# install.sh uses its functions.
[ "${BASH_SOURCE[0]}" != "$0" ] || main "$@"

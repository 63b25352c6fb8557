#!/usr/bin/env bash
# The integration tests of the built-in runtime on a machine with cgroup v2 alone, as most nodes are: in a virtual machine
# with Debian's cloud kernel, whatever this machine has. Its files are those of this machine: the tests and programs that
# cargo built, runc, crun, the CNI plugins. It has no network but its own loopback, and no disk that outlives it.
#
# usage: tests/v2/run.sh             the tests of tests/v2/tests
#        tests/v2/run.sh FILTER...   those whose names contain a FILTER, with each OCI runtime
# environment:
#   CRISCOPE_V2_PATIENCE   seconds that the virtual machine may take, 600 if not set
#   CRISCOPE_V2_ACCEL      kvm or tcg; if not set, kvm where it works, else tcg, which emulates and needs nothing
#   CRISCOPE_BUSYBOX       a static busybox; /bin/busybox if not set
# Needs no root. Needs qemu-system-x86_64, mkfs.ext4, and a package of the kernel, which it downloads and unpacks in
# target/. Where there is no qemu or no kernel it says NOT CHECKED and why, with exit code 0.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
TARGET=${CARGO_TARGET_DIR:-$PWD/target}
# what tests/run.sh could not install it has unpacked there
PATH=$PATH:$TARGET/test-tools/bin
KERNELS=$TARGET/test-tools/v2-kernel
BUSYBOX=${CRISCOPE_BUSYBOX:-/bin/busybox}
PATIENCE=${CRISCOPE_V2_PATIENCE:-600}
PACKAGE=linux-image-cloud-amd64

# Programs of this machine that the tests and what they drive call, with the libraries they are linked with.
PROGRAMS=(sh bash runc ip iptables iptables-save nsenter unshare setpriv install flock)
# Those there may be.
OPTIONAL=(crun)
# What programs open by name while they run. The loader finds no such thing.
FILES=(/usr/lib/cni /usr/lib/x86_64-linux-gnu/xtables /etc/protocols /etc/services)
# Directories of the kernel's modules.
MODULES=(crypto drivers/block drivers/net/veth.ko drivers/net/dummy.ko drivers/virtio fs/overlayfs lib net)

die() { printf 'tests/v2/run.sh: %s\n' "$*" >&2; exit 1; }
note() { printf '    %s\n' "$*"; }
not_checked() { note "NOT CHECKED: $*"; exit 0; }
have() { command -v "$1" > /dev/null 2>&1; }

# --- the kernel ------------------------------------------------------------------------------------------------------

# The newest one that was unpacked is kept until apt has another.
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

download_kernel() {
    local dir=$KERNELS/$1
    rm -rf "$KERNELS"
    mkdir -p "$dir"
    (cd "$dir" && apt-get download -qq -o APT::Sandbox::User="$(id -un)" "$1" && dpkg-deb -x ./*.deb .) || return 1
    rm -f "$dir"/*.deb
    "$BUSYBOX" depmod -b "$dir" "$(basename "$dir"/lib/modules/*)" || return 1
    touch "$dir/done"
}

# --- what it sees of this machine ------------------------------------------------------------------------------------

# Builds what cargo has not, and sets the path of the test program.
build() {
    cargo test --locked --no-run --test it
    TEST_PROGRAM=$(cargo test --locked --no-run --test it 2>&1 | sed -n 's/^ *Executable .*(\(.*\))$/\1/p')
    [ -n "$TEST_PROGRAM" ] || die "cargo does not say where the tests are"
}

# A file and the libraries it is linked with, all at their own paths.
add() {
    local library
    cp --parents -L -r -- "$1" "$ROOT"
    [ -f "$1" ] || return 0
    ldd "$1" 2>/dev/null | grep -o '/[^ ]*' | while read -r library; do
        [ -e "$ROOT$library" ] || cp --parents -L -- "$library" "$ROOT"
    done || true
}

# Debugging information is nine tenths of what cargo builds, and nobody reads it there.
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
    # the kernel calls it
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
    cp tests/v2/guest.sh "$ROOT/guest.sh"
    printf '%s\n' "$(realpath "$TEST_PROGRAM")" > "$ROOT/etc/criscope-test-program"
    if [ "$#" = 0 ]; then
        cp tests/v2/tests "$ROOT/etc/criscope-tests"
    else
        printf 'runc %s\ncrun %s\n' "$*" "$*" > "$ROOT/etc/criscope-tests"
    fi
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

# The first root: it has the driver of the disk and goes over to what is on it.
initramfs() {
    local dir=$WORK/first module
    mkdir -p "$dir/bin" "$dir/dev" "$dir/root"
    cp "$BUSYBOX" "$dir/bin/busybox"
    cp tests/v2/first.sh "$dir/init"
    chmod 755 "$dir/init"
    : > "$dir/modules"
    for module in $(modules_of virtio_pci) $(modules_of virtio_blk); do
        # both need some that are the same
        [ ! -e "$dir/${module##*/}" ] || continue
        cp "$UNPACKED/lib/modules/$RELEASE/$module" "$dir/"
        echo "${module##*/}" >> "$dir/modules"
    done
    (cd "$dir" && find . | "$BUSYBOX" cpio -o -H newc -R 0:0 2>/dev/null) > "$WORK/initramfs"
}

# A module and what it needs, that first.
modules_of() {
    awk -v name="$1.ko:" '{ n = split($1, part, "/") } part[n] == name { for (i = NF; i > 1; i--) print $i; sub(/:$/, "", $1); print $1 }' \
        "$UNPACKED/lib/modules/$RELEASE/modules.dep"
}

image() {
    # Not a file of zeros: only what is written takes place.
    truncate -s 4G "$WORK/disk"
    mkfs.ext4 -q -F -O ^has_journal -E root_owner=0:0,lazy_itable_init=1 -d "$ROOT" "$WORK/disk"
    rm -rf "$ROOT"
}

# --- the machine -----------------------------------------------------------------------------------------------------

# Runs until it turns itself off; what it says goes to a file.
boot() {
    local accel=$1 seconds=$2 console=$3
    : > "$console"
    # -no-reboot: a panic ends it. TMPDIR: what is written to the disk goes to a file that has no name.
    TMPDIR=$WORK timeout --kill-after=5 "$seconds" qemu-system-x86_64 -accel "$accel" -cpu max -smp 2 -m 2048 \
        -nodefaults -display none -serial "file:$console" -no-reboot -nic none \
        -drive "file=$WORK/disk,if=virtio,format=raw,snapshot=on,cache=unsafe" \
        -kernel "$KERNEL" -initrd "$WORK/initramfs" \
        -append "console=ttyS0 quiet panic=-1 mitigations=off ${4:-}" < /dev/null &
    MACHINE=$!
}

# kvm that is there need not run: of what is asked of it in a virtual machine much is missing. It boots within seconds.
accelerator() {
    ACCEL=${CRISCOPE_V2_ACCEL:-}
    [ -z "$ACCEL" ] || return 0
    ACCEL=tcg
    [ -w /dev/kvm ] || return 0
    boot kvm 10 "$WORK/probe" criscope.probe 2> /dev/null
    wait "$MACHINE" || true
    if grep -q 'criscope-v2: first' "$WORK/probe"; then ACCEL=kvm; else note "kvm does not boot here"; fi
}

# At the end, and when somebody ends us. A machine that has ended is not there any more.
cleanup() {
    [ -z "$MACHINE" ] || kill "$MACHINE" 2>/dev/null || true
    rm -rf "$WORK"
}

main() {
    [ "$(uname -m)" = x86_64 ] || not_checked "this machine is $(uname -m), and the virtual one x86_64"
    have qemu-system-x86_64 || not_checked "this machine has no qemu-system-x86_64"
    have mkfs.ext4 || die "mkfs.ext4 is missing: apt-get install e2fsprogs"
    if [ ! -x "$BUSYBOX" ] || ldd "$BUSYBOX" > /dev/null 2>&1; then
        die "$BUSYBOX is no static busybox; run the step packages of tests/run.sh"
    fi
    find_kernel
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
    grep -q '^criscope-v2: passed' "$WORK/console" || die "failed, or not ended within $PATIENCE s"
}

main "$@"

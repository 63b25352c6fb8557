# What release.sh and profile.sh have in common: the tools, and how programs are built. Sourced, with REPO and the NAME of the script.
# shellcheck shell=bash
set -euo pipefail

die() { printf '%s: %s\n' "$NAME" "$1" >&2; shift; [ $# -eq 0 ] || printf '    %s\n' "$@" >&2; exit 1; }
note() { printf '    %s\n' "$*"; }
step() { printf '==> %s\n' "$*"; }
have() { command -v "$1" > /dev/null 2>&1; }

find_tools() {
    CARGO=${CARGO:-cargo} RUSTC=${RUSTC:-rustc}
    export CARGO RUSTC
    cd "$REPO"
    have "$CARGO" || die "there is no cargo" "Install Rust: https://rustup.rs"
    SYSROOT=$("$RUSTC" --print sysroot)
    TARGET=${CARGO_TARGET_DIR:-$REPO/target}
    case $TARGET in /*) ;; *) TARGET=$REPO/$TARGET ;; esac
    export CARGO_TARGET_DIR=$TARGET
    CARGO_DIR=${CARGO_HOME:-$HOME/.cargo}
}

has_std() { compgen -G "$SYSROOT/lib/rustlib/$1/lib/libstd-*.rlib" > /dev/null; }

# The C compiler for architecture $1. It also links: the rlibs of musl bring their own libc and start files.
compiler() {
    if have "$1-linux-gnu-gcc"; then echo "$1-linux-gnu-gcc"
    elif [ "$1" = "$(uname -m)" ] && have cc; then echo cc
    else return 1; fi
}

# The target for an architecture: musl if it is installed, because a static glibc loads its resolver's modules at run time.
target() {
    local libc
    for libc in musl gnu; do
        if has_std "$1-unknown-linux-$libc"; then echo "$1-unknown-linux-$libc"; return; fi
    done
    return 1
}

# build ARCH TRIPLE PACKAGE [FLAG...]: static, or dynamic with CRT=-crt-static, with these flags of rustc besides.
# Paths of this machine do not get into the programs: not by Rust, nor by the C code of ring and zstd. Relocations are packed
# (DT_RELR), because a program reads all of them when it starts and they stay resident; code that a profile has found to be cold stays
# apart from the rest. Linkers without support ignore these options.
build() {
    local arch=$1 triple=$2 package=$3 cc linker variable
    shift 3
    linker=$(compiler "$arch") cc=$linker
    # the headers of musl, where they are installed
    case $triple in *-musl) if have "$arch-linux-musl-gcc"; then cc=$arch-linux-musl-gcc; fi ;; esac
    variable=${triple//-/_}
    env "CARGO_TARGET_${variable^^}_LINKER=$linker" "CC_$variable=$cc" \
        "CFLAGS_$variable=-ffile-prefix-map=$CARGO_DIR=/cargo -ffile-prefix-map=$REPO=/criscope -ffile-prefix-map=$TARGET=/target" \
        CARGO_ENCODED_RUSTFLAGS="$(printf '%s\x1f' -C "target-feature=${CRT:-+crt-static}" \
            -C link-arg=-Wl,-z,pack-relative-relocs -C link-arg=-Wl,-z,keep-text-section-prefix \
            "--remap-path-prefix=$CARGO_DIR=/cargo" "--remap-path-prefix=$REPO=/criscope" \
            "--remap-path-prefix=$TARGET=/target" "$@" | head -c -1)" \
        "$CARGO" build --manifest-path "$REPO/Cargo.toml" --profile dist --locked --target "$triple" -p "$package" --bins
}

# A static program has no interpreter.
check_static() {
    if have readelf && readelf -lW "$1" | grep -q INTERP; then die "$1 is not static"; fi
}

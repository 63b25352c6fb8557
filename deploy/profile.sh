#!/usr/bin/env bash
# Records a profile for `deploy/release.sh --profile ARCH=FILE`: builds the programs with counters, runs benchmarks with them, and merges
# what was counted. See docs/adr/0083-packages-are-optimized-with-a-profile.md.
#
# usage: deploy/profile.sh [FILE]
#   FILE   the profile (default target/criscope.profdata)
# environment: as for deploy/release.sh, and
#   LLVM_PROFDATA  the program llvm-profdata of the compiler's LLVM (default: that of `rustup component add llvm-tools`)
#
# Runs as root on a machine of the architecture that the profile is for, for about 20 minutes on two cores. Needs, besides what
# deploy/release.sh needs there, llvm-profdata and what the benchmarks need
# (docs/PERFORMANCE.md).
set -euo pipefail

REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
SELF=$REPO/deploy/profile.sh
NAME=profile
# shellcheck source=deploy/programs.sh
. "$REPO/deploy/programs.sh"

usage() { sed -n '/^# usage:/,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$SELF"; }

check_machine() {
    ARCH=$(uname -m)
    TRIPLE=$(target "$ARCH") || die "$SYSROOT has no standard library for $ARCH" "rustup target add $ARCH-unknown-linux-musl"
    compiler "$ARCH" > /dev/null || die "there is no C compiler" "apt install gcc"
    PROFDATA=${LLVM_PROFDATA:-$(compgen -G "$SYSROOT/lib/rustlib/*/bin/llvm-profdata")} ||
        die "$SYSROOT has no llvm-profdata" "rustup component add llvm-tools, or LLVM_PROFDATA"
    [ "$(id -u)" = 0 ] || die "the benchmarks need root"
}

# The benchmarks are only clients here, so they are built fast.
bench() {
    CARGO_PROFILE_BENCH_LTO=off CARGO_PROFILE_BENCH_CODEGEN_UNITS=16 LLVM_PROFILE_FILE="$RAW/%m.profraw" \
        "$CARGO" bench --manifest-path "$REPO/Cargo.toml" --locked --bench "$1" -- --criscope "$PROGRAMS/criscope" "${@:2}"
}

main() {
    case ${1:-} in -h | --help) usage; exit ;; -*) usage >&2; exit 64 ;; esac
    [ $# -le 1 ] || { usage >&2; exit 64; }
    local file=${1:-}
    [ -z "$file" ] || file=$(realpath -m "$file")
    find_tools
    check_machine
    file=${file:-$TARGET/criscope.profdata}
    RAW=$TARGET/profile/raw PROGRAMS=$TARGET/profile/$TRIPLE/dist
    rm -rf "$RAW"
    step "building for $TRIPLE with counters"
    # What has counters is linked, needed or not, and some of it names symbols that only the shared library of glibc has.
    case $TRIPLE in *-gnu) CRT=-crt-static ;; esac
    CARGO_TARGET_DIR=$TARGET/profile build "$ARCH" "$TRIPLE" criscope "-Cprofile-generate=$RAW"
    step "a proxy under load"
    bench proxy --quick --paths criscope
    step "a runtime and a proxy in front of it: pods, sessions, pulls, lists, scrapes"
    bench runtime --soak --minutes 3 --shim "$PROGRAMS/criscope-shim"
    "$PROFDATA" merge --output "$file" "$RAW"/*.profraw
    rm -rf "$RAW"
    step "$file: deploy/release.sh --profile $ARCH=$file"
}

main "$@"

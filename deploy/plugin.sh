# The kubectl plugin in a release: for Linux as the other programs, for macOS and Windows by zig. Sourced by release.sh.
# shellcheck shell=bash

# system architecture target: the systems besides Linux.
FOREIGN_TARGETS=(
    "darwin x86_64 x86_64-apple-darwin"
    "darwin aarch64 aarch64-apple-darwin"
    "windows x86_64 x86_64-pc-windows-gnu"
)

wants_system() { [[ " ${SYSTEMS[*]} " == *" $1 "* ]]; }

# The targets of FOREIGN_TARGETS that are wanted, a line each.
foreign_targets() {
    local foreign system arch triple
    for foreign in "${FOREIGN_TARGETS[@]}"; do
        read -r system arch triple <<< "$foreign"
        if wants_system "$system" && [[ " ${ARCHES[*]} " == *" $arch "* ]]; then echo "$system $arch $triple"; fi
    done
}

check_systems() {
    local system triple missing=()
    while read -r system _ triple; do
        has_std "$triple" || missing+=("$system: $SYSROOT has no standard library for $triple; rustup target add $triple")
    done < <(foreign_targets)
    [ "${#missing[@]}" -eq 0 ] || die "this machine cannot build the plugin for every system" "${missing[@]}" \
        "To release without them, name the others: --system linux"
}

# zig and cargo-zigbuild in the versions, and with the bytes, of deploy/zig.txt.
install_zig() {
    ZIG=$TARGET/release-tools/zig
    if cmp -s "$REPO/deploy/zig.txt" "$ZIG/installed.txt"; then return; fi
    step "installing zig into $ZIG"
    rm -rf "$ZIG"
    python3 -m venv "$ZIG"
    "$ZIG/bin/pip" install --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes -r "$REPO/deploy/zig.txt"
    cp "$REPO/deploy/zig.txt" "$ZIG/installed.txt"
}

# make_frameworks DIR: what the linker needs to know of the frameworks of macOS that crates of Cargo.lock bind: their names, their places,
# and the symbols that these crates declare. Apple's own files are part of Xcode.
make_frameworks() {
    local entry crate framework version directory symbols
    for entry in security-framework-sys=Security core-foundation-sys=CoreFoundation; do
        crate=${entry%%=*} framework=${entry#*=}
        version=$(sed -n "/^name = \"$crate\"/{n;s/^version = \"\(.*\)\"/\1/p}" "$REPO/Cargo.lock")
        directory=$(compgen -G "$CARGO_DIR/registry/src/*/$crate-$version/src") || die "$crate $version is not in $CARGO_DIR" "cargo fetch --locked"
        symbols=$(grep -rhoE 'pub (fn|static) [A-Za-z_0-9]+' "$directory" | awk '{ print "_" $3 }' | sort -u | paste -sd, -)
        mkdir -p "$1/$framework.framework"
        cat > "$1/$framework.framework/$framework.tbd" <<END
--- !tapi-tbd
tbd-version: 4
targets: [ x86_64-macos, arm64-macos ]
install-name: '/System/Library/Frameworks/$framework.framework/Versions/A/$framework'
exports:
  - targets: [ x86_64-macos, arm64-macos ]
    symbols: [ ${symbols//,/, } ]
...
END
    done
}

# build_with_zig TRIPLE PACKAGE PROGRAM: its compiler and linker have headers and libraries of all systems.
build_with_zig() {
    local triple=$1 variable=${1//-/_} flags=()
    install_zig
    case $1 in
        *-darwin)
            "$CARGO" fetch --quiet --locked --manifest-path "$REPO/Cargo.toml" --target "$triple"
            # Below the directory in which rustc links: a path of this machine would be part of the names of symbols.
            make_frameworks "$REPO/target/frameworks"
            flags=(-C link-arg=-Ftarget/frameworks)
            ;;
    esac
    env PATH="$ZIG/bin:$PATH" \
        "CFLAGS_$variable=-ffile-prefix-map=$CARGO_DIR=/cargo -ffile-prefix-map=$REPO=/criscope -ffile-prefix-map=$TARGET=/target" \
        CARGO_ENCODED_RUSTFLAGS="$(printf '%s\x1f' "${flags[@]}" "--remap-path-prefix=$CARGO_DIR=/cargo" \
            "--remap-path-prefix=$REPO=/criscope" "--remap-path-prefix=$TARGET=/target" | head -c -1)" \
        cargo-zigbuild zigbuild --manifest-path "$REPO/Cargo.toml" --profile dist --locked --target "$triple" -p "$2" --bin "$3"
    case $1 in *-windows-*) date_program "$TARGET/$triple/dist/$3.exe" ;; esac
}

# Replaces the time of the build that the linker writes into the header (PE, TimeDateStamp), which Windows does not read.
date_program() {
    local header number byte
    header=$(od -An -tu4 -j60 -N4 "$1")
    for ((number = 0; number < 4; number++)); do
        byte=$(printf '%03o' $((EPOCH >> 8 * number & 255)))
        # shellcheck disable=SC2059
        printf "\\$byte" | dd of="$1" bs=1 seek=$((header + 8 + number)) conv=notrunc status=none
    done
}

# pack_plugin SYSTEM ARCH PROGRAM: as kubectl and krew want a plugin, with the program that lets kubectl complete its arguments.
pack_plugin() {
    local dir=$WORK/plugin-$1-$2 name=${3##*/}
    install -D -m 755 -t "$dir" "$3"
    install -m 644 -t "$dir" "$REPO/LICENSE"
    local complete=kubectl_complete-criscope
    if [ "$1" = windows ]; then
        complete=$complete.cmd
        printf '@kubectl-criscope __complete %%*\r\n' > "$dir/$complete"
    else
        "${PLUGIN_NATIVE[@]}" completion > "$dir/$complete"
    fi
    chmod 755 "$dir/$complete"
    # shellcheck disable=SC2153
    pack "$dir" "$OUT/$PLUGIN-$VERSION-$1-$2.tar.gz" "$name" LICENSE "$complete"
}

make_plugin() { if wants_system linux; then pack_plugin linux "$1" "${DIRS[$1]}/$PLUGIN"; fi; }

# The plugin for the systems besides Linux: those of --binaries, DIR/SYSTEM/kubectl-criscope, or new ones.
make_foreign_plugins() {
    local system arch triple
    while read -r system arch triple; do
        step "plugin for $triple"
        make_foreign_plugin "$system" "$arch" "$triple" < /dev/null
    done < <(foreign_targets)
}

make_foreign_plugin() {
    local system=$1 arch=$2 triple=$3 program=$PLUGIN from
    [ "$system" != windows ] || program=$PLUGIN.exe
    from=$BINARIES/$system
    if [ -z "$BINARIES" ]; then
        step "building the plugin for $triple"
        build_with_zig "$triple" criscope-agent "$PLUGIN"
        from=$TARGET/$triple/dist
    fi
    [ -f "$from/$program" ] || die "$from has no program $program"
    pack_plugin "$system" "$arch" "$from/$program"
}

# The manifest for `kubectl krew install --manifest`, and for krew's index.
make_krew() {
    local file system arch sum
    sed "s/@VERSION@/v$VERSION/; s#@SOURCE@#$SOURCE#g" "$REPO/deploy/packaging/krew.yaml" > "$OUT/criscope.yaml"
    for file in "$OUT/$PLUGIN-$VERSION"-*.tar.gz; do
        IFS=- read -r system arch <<< "$(basename "${file#"$OUT/$PLUGIN-$VERSION-"}" .tar.gz)"
        sum=$(sha256sum < "$file" | cut -d' ' -f1)
        cat >> "$OUT/criscope.yaml" <<END
    - selector:
        matchLabels:
          os: $system
          arch: $(deb_arch "$arch")
      uri: $SOURCE/releases/download/v$VERSION/${file##*/}
      sha256: $sum
      bin: $PLUGIN$([ "$system" != windows ] || echo .exe)
END
    done
}

#!/usr/bin/env bash
# Makes a release, for x86_64 and aarch64: static and stripped programs, tarballs, .deb, .rpm, an OCI image for both
# architectures, the Helm chart, the kubectl plugin for Linux, macOS and Windows with its manifest for krew, SBOMs, a statement on known
# defects (OpenVEX), SHA256SUMS, and a statement on how all of it was made (SLSA provenance). The same commit and compiler make the same
# bytes, wherever the clone is.
#
# usage: deploy/release.sh [OPTION...]
#   --arch ARCH      x86_64 or aarch64, only this one; may be repeated (default: both)
#   --out DIR        where the files go (default target/release-VERSION); it is emptied
#   --binaries DIR   package the programs in DIR instead of building them: for tests, and for one --arch
#   --version V      the version of the packages (default: that in Cargo.toml)
#   --only KIND      tar, deb, rpm, image, chart, plugin, sbom or vex, only this one; may be repeated (default: all)
#   --system SYSTEM  linux, darwin or windows: the plugin only for this one; may be repeated (default: all)
#   --profile ARCH=FILE  optimize the programs of the node with a profile of deploy/profile.sh, which is added to the files;
#                    once for each architecture
#   --fast           compress the .deb less, for tests
#   --verify         build everything once more in another clone, and fail unless it has the same bytes
#   --compare DIR    build what is in DIR, a downloaded release of the commit that is checked out, and fail unless it has the same bytes
# environment:
#   CARGO, RUSTC       another toolchain; see docs/RELEASING.md for one that has aarch64 without rustup
#   CARGO_TARGET_DIR   as for cargo; the packaging tools are kept there too
#   SOURCE_DATE_EPOCH  date of all files in seconds (default: the commit's)
#   CRISCOPE_BUILDER   who builds, as a URI, for the provenance (default: this script in its repository)
#
# Needs for each architecture the standard library of Rust for its musl or gnu target (`rustup target add
# aarch64-unknown-linux-musl`) and a C compiler for it (gcc-aarch64-linux-gnu). The plugin for macOS and Windows needs their standard
# libraries, and python3 with venv, for zig from PyPI. Besides: git, tar, gzip, jq and sha256sum.
set -euo pipefail

REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
SELF=$REPO/deploy/release.sh
NAME=release
# Programs of a node, of the image besides these, and of a workstation.
NODE=(criscope criscope-shim)
CLUSTER=(criscope-agent)
PLUGIN=kubectl-criscope
# Systems for which the plugin is built.
SYSTEMS=(linux darwin windows)
# name=version of the packaging tools, from crates.io
TOOLS=(cargo-deb=3.8.0 cargo-generate-rpm=0.21.1 cargo-cyclonedx=0.5.9)

# shellcheck source=deploy/programs.sh
. "$REPO/deploy/programs.sh"
# shellcheck source=deploy/plugin.sh
. "$REPO/deploy/plugin.sh"
# shellcheck source=deploy/statements.sh
. "$REPO/deploy/statements.sh"

wants() { [ "${#KINDS[@]}" -eq 0 ] || [[ " ${KINDS[*]} " == *" $1 "* ]]; }
usage() { sed -n '/^# usage:/,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$SELF"; }

# --- what the machine can do -----------------------------------------------------------------------------------------

# The name that Debian, OCI and krew have for an architecture.
deb_arch() { case $1 in x86_64) echo amd64 ;; aarch64) echo arm64 ;; esac; }

check_architectures() {
    local arch missing=()
    for arch in "${ARCHES[@]}"; do
        if ! target "$arch" > /dev/null; then
            missing+=("$arch: $SYSROOT has no standard library for it; rustup target add $arch-unknown-linux-musl")
        elif ! compiler "$arch" > /dev/null; then
            missing+=("$arch: there is no C compiler for it; apt install gcc-$arch-linux-gnu")
        else
            note "$arch: $(target "$arch"), linked by $(compiler "$arch")"
        fi
    done
    [ "${#missing[@]}" -eq 0 ] || die "this machine cannot build every architecture" "${missing[@]}" \
        "To release without it, name the others: --arch $(uname -m)"
}

# --- the files of a package ------------------------------------------------------------------------------------------

# Sets NATIVE to a program that runs here, for manual pages and completions, which are the same for every architecture.
find_native() {
    local arch runner
    for arch in "${ARCHES[@]}"; do
        for runner in '' "qemu-$arch-static" "qemu-$arch"; do
            [ -z "$runner" ] || have "$runner" || continue
            NATIVE=(${runner:+"$runner"} "${DIRS[$arch]}/criscope")
            PLUGIN_NATIVE=(${runner:+"$runner"} "${DIRS[$arch]}/$PLUGIN")
            if "${NATIVE[@]}" --version > /dev/null 2>&1; then return; fi
        done
    done
    die "none of the programs runs on this machine, and manual pages and completions come from one" "Add --arch $(uname -m), or install qemu-user-static."
}

# stage DIR: the files of every package but the programs, with the paths that they have on a node.
stage() {
    local root=$1/usr share=$1/usr/share page
    rm -rf "$1"
    mkdir -p "$share"/{man/man1,man/man8,bash-completion/completions,zsh/vendor-completions,fish/vendor_completions.d,doc/criscope}
    mkdir -p "$share"/criscope/{dashboards,prometheus,selinux,systemd} "$root/lib/systemd/system"
    "${NATIVE[@]}" man "$share/man/man1"
    cp "$REPO/deploy/packaging/criscope-shim.8" "$share/man/man8"
    for page in "$share"/man/man?/*; do gzip -9n "$page"; done
    "${NATIVE[@]}" completions bash > "$share/bash-completion/completions/criscope"
    "${NATIVE[@]}" completions zsh > "$share/zsh/vendor-completions/_criscope"
    "${NATIVE[@]}" completions fish > "$share/fish/vendor_completions.d/criscope.fish"
    cp "$REPO"/dashboards/*.json "$share/criscope/dashboards"
    cp "$REPO"/deploy/prometheus/*.yaml "$share/criscope/prometheus"
    cp "$REPO"/deploy/selinux/*.cil "$share/criscope/selinux"
    cp "$REPO"/deploy/systemd/*.service "$REPO"/deploy/systemd/*.socket "$share/criscope/systemd"
    cp "$REPO/deploy/criscope.toml" "$share/doc/criscope"
    gzip -9nc "$REPO/CHANGELOG.md" > "$share/doc/criscope/changelog.gz"
    # Packages own /usr/bin. The unit of the runtime has the same name on a node as that of the proxy, so it is only supplied.
    sed -i 's#/usr/local/bin/#/usr/bin/#' "$share"/criscope/systemd/*
    cp "$share"/criscope/systemd/criscope{.service,.socket,-handover.service} "$root/lib/systemd/system"
    changelog | gzip -9n > "$1/changelog.Debian.gz"
    find "$1" -type d -exec chmod 755 {} +
    find "$1" -type f -exec chmod 644 {} +
    find "$1" -exec touch -hd "@$EPOCH" {} +
}

changelog() {
    printf 'criscope (%s-1) unstable; urgency=medium\n\n  * Version %s: see changelog.gz.\n\n -- %s  %s\n' "$VERSION" "$VERSION" \
        "$(sed -n 's/^maintainer = "\(.*\)"/\1/p' "$REPO/Cargo.toml")" "$(LC_ALL=C date -u -R -d "@$EPOCH")"
}

# pack DIR FILE NAME...: a tar of DIR without anything of this machine or moment; compressed if FILE ends in .gz.
pack() {
    local dir=$1 file=$2
    shift 2
    tar -C "$dir" --format=gnu --sort=name --mtime="@$EPOCH" --owner=0 --group=0 --numeric-owner -c "$@" |
        if [[ $file == *.gz ]]; then gzip -9n; else cat; fi > "$file"
}

# --- the kinds -------------------------------------------------------------------------------------------------------

# As for /usr/local: tar -C /usr/local --strip-components=1 -xf FILE
make_tar() {
    local arch=$1 name=criscope-$VERSION-linux-$1 dir
    dir=$WORK/tar-$arch
    mkdir -p "$dir/$name"/{bin,share/zsh}
    (cd "${DIRS[$arch]}" && cp "${NODE[@]}" "$dir/$name/bin")
    cp -r "$STAGE/usr/share"/{man,bash-completion,fish,criscope,doc} "$dir/$name/share"
    cp -r "$STAGE/usr/share/zsh/vendor-completions" "$dir/$name/share/zsh/site-functions"
    cp "$REPO"/deploy/systemd/*.service "$REPO"/deploy/systemd/*.socket "$dir/$name/share/criscope/systemd"
    cp "$REPO/LICENSE" "$REPO/README.md" "$dir/$name/share/doc/criscope"
    find "$dir" -type d -exec chmod 755 {} +
    find "$dir" -type f -exec chmod 644 {} +
    chmod 755 "$dir/$name/bin"/*
    pack "$dir" "$OUT/$name.tar.gz" "$name"
}

# As `helm package` makes it, but the same bytes each time: links are replaced by their files, and versions are those of the release.
make_chart() {
    local dir=$WORK/chart
    mkdir -p "$dir"
    cp -rL "$REPO/deploy/kubernetes/chart" "$dir/criscope"
    sed -i "s/^version: .*/version: $VERSION/; s/^appVersion: .*/appVersion: $VERSION/; s#\(image: ghcr.io/.*:\).*#\1$VERSION#" "$dir/criscope/Chart.yaml"
    find "$dir" -type d -exec chmod 755 {} +
    find "$dir" -type f -exec chmod 644 {} +
    pack "$dir" "$OUT/criscope-chart-$VERSION.tar.gz" criscope
    mv "$OUT/criscope-chart-$VERSION.tar.gz" "$OUT/criscope-chart-$VERSION.tgz"
}

# Both tools replace the prefix target/release/ of the assets in Cargo.toml by the directory of target and profile.
make_deb() {
    tool cargo-deb
    CARGO_TARGET_DIR=$PACK "$BIN/cargo-deb" deb --manifest-path "$REPO/Cargo.toml" --no-build --no-strip --quiet "${FAST[@]}" \
        --profile dist --target "$2" --deb-version "$VERSION-1" --output "$OUT/criscope_$VERSION-1_$(deb_arch "$1").deb"
}

make_rpm() {
    tool cargo-generate-rpm
    (cd "$REPO" && "$BIN/cargo-generate-rpm" generate-rpm --target-dir "$PACK" --profile dist --target "$2" --arch "$1" \
        --set-metadata "version = \"$VERSION\"" --auto-req disabled --payload-compress gzip --output "$OUT/criscope-$VERSION-1.$1.rpm")
}

# The digest of a file that becomes a blob of the image.
blob() {
    local digest
    digest=$(sha256sum < "$1" | cut -d' ' -f1)
    mv "$1" "$IMAGE/blobs/sha256/$digest"
    echo "$digest"
}

# descriptor TYPE DIGEST
descriptor() {
    jq -ncS --arg type "$1" --arg digest "sha256:$2" --argjson size "$(stat -c %s "$IMAGE/blobs/sha256/$2")" \
        '{mediaType: $type, digest: $digest, size: $size}'
}

# An OCI image layout with one manifest per architecture, as an archive: one layer with the programs, on nothing.
make_image() {
    local arch digest layer config manifests=() created oci=application/vnd.oci.image
    created=$(date -u -d "@$EPOCH" +%Y-%m-%dT%H:%M:%SZ)
    IMAGE=$WORK/image
    mkdir -p "$IMAGE/blobs/sha256"
    for arch in "${ARCHES[@]}"; do
        (cd "${DIRS[$arch]}" && install -D -m 755 -t "$WORK/layer-$arch/usr/bin" "${NODE[@]}" "${CLUSTER[@]}")
        install -D -m 644 -t "$WORK/layer-$arch/usr/share/licenses/criscope" "$REPO/LICENSE"
        find "$WORK/layer-$arch" -type d -exec chmod 755 {} +
        pack "$WORK/layer-$arch" "$WORK/layer.tar" usr
        digest=$(sha256sum < "$WORK/layer.tar" | cut -d' ' -f1)
        gzip -9nf "$WORK/layer.tar"
        layer=$(blob "$WORK/layer.tar.gz")
        jq -ncS --arg created "$created" --arg arch "$(deb_arch "$arch")" --arg layer "sha256:$digest" --argjson labels "$(labels)" '{
            created: $created, architecture: $arch, os: "linux",
            config: {Entrypoint: ["/usr/bin/criscope"], Env: ["PATH=/usr/bin"], Labels: $labels},
            rootfs: {type: "layers", diff_ids: [$layer]},
            history: [{created: $created, created_by: "deploy/release.sh"}]}' > "$WORK/config"
        config=$(blob "$WORK/config")
        jq -ncS --argjson config "$(descriptor $oci.config.v1+json "$config")" \
            --argjson layer "$(descriptor $oci.layer.v1.tar+gzip "$layer")" --argjson labels "$(labels)" '{
            schemaVersion: 2, mediaType: "application/vnd.oci.image.manifest.v1+json",
            config: $config, layers: [$layer], annotations: $labels}' > "$WORK/manifest"
        manifests+=("$(descriptor $oci.manifest.v1+json "$(blob "$WORK/manifest")" |
            jq -cS --arg arch "$(deb_arch "$arch")" '. + {platform: {architecture: $arch, os: "linux"}}')")
    done
    printf '%s\n' "${manifests[@]}" | jq -scS --argjson labels "$(labels)" '{
        schemaVersion: 2, mediaType: "application/vnd.oci.image.index.v1+json", manifests: ., annotations: $labels}' > "$WORK/index"
    descriptor $oci.index.v1+json "$(blob "$WORK/index")" | jq -cS --arg version "$VERSION" '{
        schemaVersion: 2, mediaType: "application/vnd.oci.image.index.v1+json",
        manifests: [. + {annotations: {"org.opencontainers.image.ref.name": $version}}]}' > "$IMAGE/index.json"
    printf '{"imageLayoutVersion":"1.0.0"}' > "$IMAGE/oci-layout"
    pack "$IMAGE" "$OUT/criscope-$VERSION-image.tar" blobs index.json oci-layout
}

labels() {
    jq -ncS --arg version "$VERSION" --arg revision "$COMMIT" --arg source "$SOURCE" --arg licenses "$LICENSES" '{
        "org.opencontainers.image.title": "criscope", "org.opencontainers.image.version": $version,
        "org.opencontainers.image.revision": $revision, "org.opencontainers.image.source": $source,
        "org.opencontainers.image.licenses": $licenses}'
}

# cargo-cyclonedx writes beside each Cargo.toml, so it works on a copy; the place of that copy is taken out again.
make_sbom() {
    tool cargo-cyclonedx
    local arch=$1 triple=$2 copy=$WORK/sbom-$1
    mkdir -p "$copy"
    (cd "$REPO" && tar -c Cargo.toml Cargo.lock build.rs src crates benches tests/it/main.rs examples) | tar -xC "$copy"
    "$BIN/cargo-cyclonedx" cyclonedx --manifest-path "$copy/Cargo.toml" --format json --spec-version 1.5 --target "$triple" \
        --no-build-deps --override-filename sbom --quiet
    sed "s#$copy#/criscope#g" "$copy/sbom.json" > "$OUT/criscope-$VERSION-$arch.cdx.json"
    sed "s#$copy#/criscope#g" "$copy/crates/agent/sbom.json" > "$OUT/criscope-agent-$VERSION-$arch.cdx.json"
}

# Installs a packaging tool in its version, unless it is there.
tool() {
    local entry version
    for entry in "${TOOLS[@]}"; do
        [ "${entry%%=*}" = "$1" ] || continue
        version=${entry#*=}
        if [ -e "$BIN/$1" ] && [ "$(cat "$BIN/$1.version" 2> /dev/null)" = "$version" ]; then return; fi
        step "installing $1 $version into $BIN"
        # for this machine, with its own compiler, whatever the release is built with
        env -u RUSTC -u CARGO_BUILD_TARGET CARGO_TARGET_DIR="$TARGET/release-tools/build" \
            CARGO_PROFILE_RELEASE_LTO=false CARGO_PROFILE_RELEASE_OPT_LEVEL=1 \
            cargo install --locked --force --quiet --root "$TARGET/release-tools" --version "$version" "$1"
        rm -rf "$TARGET/release-tools/build"
        echo "$version" > "$BIN/$1.version"
    done
}

# --- all of it -------------------------------------------------------------------------------------------------------

facts() {
    find_tools
    BIN=$TARGET/release-tools/bin
    VERSION=${VERSION:-$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)}
    SOURCE=$(sed -n 's/^repository = "\(.*\)"/\1/p' Cargo.toml)
    IMAGE_NAME=$(sed -n 's/^ *repository: //p' deploy/kubernetes/chart/values.yaml)
    LICENSES=$(sed -n 's/^license = "\(.*\)"/\1/p' Cargo.toml)
    COMMIT=$(git rev-parse HEAD)
    EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
    export SOURCE_DATE_EPOCH=$EPOCH CRISCOPE_COMMIT=$COMMIT LC_ALL=C TZ=UTC
    [ -z "$(git status --porcelain)" ] || note "the working tree has changes: this is not what commit ${COMMIT:0:12} makes"
    OUT=${OUT:-$TARGET/release-$VERSION}
    case $OUT in /*) ;; *) OUT=$FROM/$OUT ;; esac
}

# add_profile ARCH=FILE
add_profile() {
    local arch=${1%%=*} file=${1#*=}
    case $1 in x86_64=* | aarch64=*) ;; *) usage >&2; exit 64 ;; esac
    [ -f "$file" ] || die "the profile $file is no file" "deploy/profile.sh makes one."
    PROFILES[$arch]=$(realpath "$file")
}

# Each package by itself: the client of the Kubernetes API must add no features to what the daemon links.
build_all() {
    local flags=() profile=${PROFILES[$1]:-} copy
    if [ -n "$profile" ]; then
        # A path of its own for each content: other flags are other programs for cargo. A newer copy of the same would be compiled again.
        copy=$TARGET/$(sha256sum < "$profile" | cut -c 1-16).profdata
        cmp -s "$profile" "$copy" || cp "$profile" "$copy"
        # Beside calls all else is rare, starts and pods too: only what never ran is cold.
        flags+=("-Cprofile-use=$copy" -Cllvm-args=-profile-summary-cold-count=0)
    fi
    step "building for $2 (profile dist${profile:+, optimized with $profile})"
    build "$1" "$2" criscope "${flags[@]}"
    build "$1" "$2" criscope-agent
}

make() {
    local arch kind triple from program programs=("${NODE[@]}")
    if wants image; then programs+=("${CLUSTER[@]}"); fi
    if wants plugin; then programs+=("$PLUGIN"); fi
    if [ -z "$BINARIES" ]; then check_architectures; fi
    if [ -z "$BINARIES" ] && wants plugin; then check_systems; fi
    # A target directory of its own for the packaging tools: a file of another date in that of cargo would be built again.
    PACK=$WORK/pack
    declare -gA DIRS=()
    for arch in "${ARCHES[@]}"; do
        triple=$(target "$arch") || triple=$arch-unknown-linux-musl
        from=$BINARIES
        if [ -z "$from" ]; then
            build_all "$arch" "$triple"
            from=$TARGET/$triple/dist
            for program in "${programs[@]}"; do check_static "$from/$program"; done
        fi
        for program in "${programs[@]}"; do [ -x "$from/$program" ] || die "$from has no program $program"; done
        DIRS[$arch]=$PACK/$triple/dist
        (cd "$from" && install -D -t "${DIRS[$arch]}" "${programs[@]}")
        touch -d "@$EPOCH" "${DIRS[$arch]}"/*
    done
    STAGE=$WORK/stage
    find_native
    stage "$STAGE"
    rm -rf "$OUT"
    mkdir -p "$OUT"
    for arch in "${ARCHES[@]}"; do
        triple=${DIRS[$arch]%/dist} triple=${triple##*/}
        cp -a "$STAGE" "${DIRS[$arch]}/package"
        for kind in tar deb rpm plugin sbom; do
            if wants "$kind"; then step "$kind for $triple"; "make_$kind" "$arch" "$triple"; fi
        done
    done
    if wants plugin; then make_foreign_plugins; make_krew; fi
    for kind in chart vex; do
        if wants "$kind"; then step "$kind"; "make_$kind"; fi
    done
    for arch in "${!PROFILES[@]}"; do install -m 644 "${PROFILES[$arch]}" "$OUT/criscope-$VERSION-$arch.profdata"; done
    if wants image; then step "image for ${ARCHES[*]}"; make_image; fi
    (cd "$OUT" && sha256sum -- * > SHA256SUMS)
    make_provenance
    step "$OUT"
    (cd "$OUT" && du -h --apparent-size -- * | sed 's/^/    /')
}

# Once more from a clone of the commit in another directory, with nothing of the first build.
verify() {
    local args=() arch system
    for arch in "${ARCHES[@]}"; do args+=(--arch "$arch"); done
    for arch in "${!PROFILES[@]}"; do args+=(--profile "$arch=${PROFILES[$arch]}"); done
    for system in "${SYSTEMS[@]}"; do args+=(--system "$system"); done
    step "the same once more, from another clone"
    git clone --quiet "$REPO" "$WORK/again.clone"
    git -C "$WORK/again.clone" checkout --quiet "$COMMIT"
    mkdir -p "$WORK/target"
    cp -r "$TARGET/release-tools" "$WORK/target"
    CARGO_TARGET_DIR=$WORK/target "$WORK/again.clone/deploy/release.sh" "${args[@]}" --out "$WORK/again"
    diff "$OUT/SHA256SUMS" "$WORK/again/SHA256SUMS" || die "the second build differs"
    note "the same bytes"
}

# The profiles of a downloaded release, which must be of this commit.
read_release() {
    local file commit arch
    file=$(compgen -G "$COMPARE/criscope-*.intoto.json") || die "$COMPARE has no provenance" "Download SHA256SUMS, *.intoto.json and *.profdata of the release."
    [ -f "$COMPARE/SHA256SUMS" ] || die "$COMPARE has no SHA256SUMS"
    commit=$(jq -r '.predicate.buildDefinition.resolvedDependencies[0].digest.gitCommit' "$file")
    [ "$commit" = "$(git -C "$REPO" rev-parse HEAD)" ] || die "the release is of another commit" "git checkout $commit"
    for arch in "${ARCHES[@]}"; do
        if file=$(compgen -G "$COMPARE/criscope-*-$arch.profdata"); then add_profile "$arch=$file"; fi
    done
}

# Some of the files may be enough: what was not built here is not compared.
compare() {
    grep -F -x -f "$OUT/SHA256SUMS" "$COMPARE/SHA256SUMS" > "$WORK/same" || true
    diff "$WORK/same" "$OUT/SHA256SUMS" || die "this build (right) has other files than the release" \
        "It was made with $("$RUSTC" --version), and the release with $(jq -r '.predicate.buildDefinition.internalParameters.rustc' "$COMPARE"/criscope-*.intoto.json)."
    note "the same bytes as the release: $(wc -l < "$WORK/same") of its $(wc -l < "$COMPARE/SHA256SUMS") files"
}

main() {
    FROM=$PWD COMPARE='' OUT='' BINARIES='' VERSION='' VERIFY='' ARCHES=() KINDS=() CHOSEN=() FAST=()
    declare -gA PROFILES=()
    while [ $# -gt 0 ]; do
        case $1 in
            --arch | --out | --binaries | --profile | --version | --only | --system | --compare) [ $# -gt 1 ] || { usage >&2; exit 64; } ;;&
            --arch) case $2 in x86_64 | aarch64) ARCHES+=("$2") ;; *) usage >&2; exit 64 ;; esac; shift ;;
            --out) OUT=$2; shift ;;
            --binaries) BINARIES=$(realpath "$2"); shift ;;
            --profile) add_profile "$2"; shift ;;
            --version) VERSION=$2; shift ;;
            --only) case $2 in tar | deb | rpm | image | chart | plugin | sbom | vex) KINDS+=("$2") ;; *) usage >&2; exit 64 ;; esac; shift ;;
            --system) case $2 in linux | darwin | windows) CHOSEN+=("$2") ;; *) usage >&2; exit 64 ;; esac; shift ;;
            --compare) COMPARE=$(realpath "$2"); shift ;;
            --fast) FAST=(--fast) ;;
            --verify) VERIFY=1 ;;
            -h | --help) usage; exit ;;
            *) usage >&2; exit 64 ;;
        esac
        shift
    done
    [ "${#ARCHES[@]}" -gt 0 ] || ARCHES=(x86_64 aarch64)
    [ "${#CHOSEN[@]}" -eq 0 ] || SYSTEMS=("${CHOSEN[@]}")
    [ -z "$BINARIES" ] || [ "${#ARCHES[@]}" = 1 ] || die "--binaries needs one --arch"
    for program in git tar gzip jq sha256sum; do have "$program" || die "$program is missing"; done
    if [ -n "$COMPARE" ]; then read_release; fi
    facts
    mkdir -p "$TARGET"
    WORK=$(mktemp -d "$TARGET/release-work.XXXXXX")
    trap 'rm -rf "$WORK"' EXIT
    umask 022
    make
    if [ -n "$COMPARE" ]; then compare; fi
    if [ -n "$VERIFY" ]; then verify; fi
}

main "$@"

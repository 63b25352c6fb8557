#!/usr/bin/env bash
# Packages of the programs that are already built: makes them twice with the same bytes, compares their contents, installs, upgrades,
# removes and purges the .deb in a fresh Debian root, and the .rpm in an empty one, and installs both from repositories.
#
# usage: tests/packages.sh [DIR]   of the programs in DIR (default target/release, where deploy/quickstart.sh builds them)
#
# Runs as root, or as a user with sudo. Without a Debian root, rpm or lintian it prints NOT CHECKED for what they are needed for.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
TARGET=${CARGO_TARGET_DIR:-$PWD/target}
case $TARGET in /*) ;; *) TARGET=$PWD/$TARGET ;; esac
ARCH=$(uname -m)
ROOT_TAR=$TARGET/test-tools/packages-root-apt.tar

die() { printf 'tests/packages.sh: %s\n' "$*" >&2; exit 1; }
note() { printf '    %s\n' "$*"; }
have() { command -v "$1" > /dev/null 2>&1; }
same() { diff "$1" "$2" > "$WORK/diff" || { cat "$WORK/diff" >&2; die "$3"; }; }

# --- as the user -----------------------------------------------------------------------------------------------------

# release OUT [OPTION...]
release() {
    deploy/release.sh --arch "$ARCH" --binaries "$WORK/bin" --only deb --only rpm --fast --out "$@" > "$WORK/log" 2>&1 ||
        { cat "$WORK/log" >&2; die "deploy/release.sh failed"; }
}

make_packages() {
    mkdir -p "$WORK/bin"
    strip -o "$WORK/bin/criscope" "$1/criscope"
    strip -o "$WORK/bin/criscope-shim" "$1/criscope-shim"
    # Those of the cluster are run by their own tests; here it only counts where they end up.
    local program
    for program in criscope-agent kubectl-criscope; do strip -o "$WORK/bin/$program" "$TARGET/debug/$program"; done
    # Those for other systems are compiled for releases; here only files of their names are packaged.
    mkdir -p "$WORK"/bin/{darwin,windows}
    echo darwin > "$WORK/bin/darwin/kubectl-criscope"
    echo windows > "$WORK/bin/windows/kubectl-criscope.exe"
    # A profile is not used for programs that are built already, but is a file of the release.
    echo profile > "$WORK/profile"
    local kinds=(--only tar --only image --only plugin --only chart --only vex)
    release "$WORK/out" "${kinds[@]}" --profile "$ARCH=$WORK/profile"
    release "$WORK/again" "${kinds[@]}" --compare "$WORK/out"
    grep -q 'the same bytes as the release' "$WORK/log" || die "a rebuild does not say that it is the same: $(cat "$WORK/log")"
    grep -q " criscope-[0-9].*-$ARCH.profdata\$" "$WORK/out/SHA256SUMS" || die "the profile is not among the files"
    if deploy/release.sh --profile "$ARCH=$WORK/none" > "$WORK/log" 2>&1; then die "a profile that does not exist is accepted"; fi
    grep -q "the profile $WORK/none is no file" "$WORK/log" || die "the error does not name the profile: $(cat "$WORK/log")"
    same "$WORK/out/SHA256SUMS" "$WORK/again/SHA256SUMS" "the same files are not packaged into the same bytes"
    note "the same bytes twice: $(cut -c 67- "$WORK/out/SHA256SUMS" | tr '\n' ' ')"
    DEB=$(echo "$WORK"/out/*.deb) RPM=$(echo "$WORK"/out/*.rpm)
    # What an upgrade must not touch does not depend on what is in the version before.
    release "$WORK/before" --version 0.1.0
}

# Of both packages, as "mode path"; where the formats have different places, those of Debian.
check_contents() {
    dpkg-deb -c "$DEB" | awk '$1 ~ /^-/ { print $1, substr($6, 2) }' | sort > "$WORK/deb.list"
    local path
    for path in /usr/bin/criscope /usr/bin/criscope-shim /etc/criscope/criscope.toml /usr/lib/systemd/system/criscope.service \
        /usr/lib/systemd/system/criscope.socket /usr/lib/systemd/system/criscope-handover.service /usr/share/man/man1/criscope.1.gz /usr/share/man/man1/criscope-explain.1.gz \
        /usr/share/man/man8/criscope-shim.8.gz /usr/share/bash-completion/completions/criscope \
        /usr/share/zsh/vendor-completions/_criscope /usr/share/fish/vendor_completions.d/criscope.fish \
        /usr/share/criscope/dashboards/node.json /usr/share/criscope/prometheus/criscope.rules.yaml \
        /usr/share/criscope/prometheus/crio.rules.yaml /usr/share/criscope/prometheus/containerd.rules.yaml \
        /usr/share/criscope/selinux/criscope.cil /usr/share/criscope/systemd/criscope-runtime.service \
        /usr/share/doc/criscope/copyright; do
        grep -q " $path\$" "$WORK/deb.list" || die "$path is not in the .deb"
    done
    if have rpm; then
        rpm -qp --qf '[%{FILEMODES:perms} %{FILENAMES}\n]' "$RPM" | sed 's#zsh/site-functions#zsh/vendor-completions#' |
            grep -v /usr/share/licenses/ | sort > "$WORK/rpm.list"
        grep -v -e /usr/share/lintian -e /copyright -e changelog.Debian "$WORK/deb.list" > "$WORK/deb.common"
        same "$WORK/deb.common" "$WORK/rpm.list" "the .deb and the .rpm have different files"
        ! rpm -qp --requires "$RPM" | grep -v -e '^rpmlib' -e '^/bin/sh' -e '^config(' || die "the .rpm requires libraries"
        [ "$(rpm -qp --configfiles "$RPM")" = /etc/criscope/criscope.toml ] || die "the .rpm does not mark its configuration"
    else
        note "NOT CHECKED: the .rpm; there is no rpm"
    fi
    dpkg-deb --ctrl-tarfile "$DEB" | tar -xO ./conffiles | grep -x /etc/criscope/criscope.toml > /dev/null || die "the .deb does not mark its configuration"
    dpkg-deb -x "$DEB" "$WORK/unpacked"
    ! grep -rn usr/local "$WORK/unpacked/usr/lib" "$WORK/unpacked/usr/share/criscope/systemd" || die "a unit of a package names /usr/local"
    tar -tf "$WORK"/out/criscope-[0-9]*.tar.gz | grep "/bin/criscope-shim$" > /dev/null || die "no program in the tarball"
    tar -tf "$WORK"/out/kubectl-criscope-*-linux-*.tar.gz | grep -x kubectl-criscope > /dev/null || die "no program in the tarball of the plugin"
    if have skopeo; then
        skopeo copy --quiet --override-arch "$(dpkg --print-architecture)" "oci-archive:$(echo "$WORK"/out/*-image.tar)" "dir:$WORK/image"
        local layer command
        layer=$(jq -r '.layers[0].digest' "$WORK/image/manifest.json")
        tar -tzf "$WORK/image/${layer#sha256:}" > "$WORK/image.list"
        for command in /usr/bin/criscope-shim $(sed -n 's/.*command: \[\([^],]*\).*/\1/p' deploy/kubernetes/base/*/daemonset.yaml); do
            grep -qx "${command#/}" "$WORK/image.list" || die "$command is not in the image"
        done
        note "image: $(jq -r '.layers | length' "$WORK/image/manifest.json") layer, with the commands of the DaemonSets"
    fi
    if have lintian; then
        # The programs of the quickstart need the shared libraries of this machine; deploy/release.sh checks that those of a release are static.
        # It leaves files in its temporary directory.
        TMPDIR=$WORK lintian --no-cfg --allow-root --suppress-tags undeclared-elf-prerequisites --fail-on error,warning "$DEB" || die "lintian finds something"
    else
        note "NOT CHECKED: lintian is not installed"
    fi
}

# What is for machines: the manifest for krew, the chart, and the statements on the release.
check_metadata() {
    local out=$WORK/out
    /usr/bin/python3 tests/krew.py "$out/criscope.yaml" "$out" || die "krew would refuse the manifest"
    [ "$(grep -c 'sha256:' "$out/criscope.yaml")" = "$(compgen -G "$out/kubectl-criscope-*.tar.gz" | wc -l)" ] || die "the manifest for krew lacks a plugin"
    tar -tzf "$out"/kubectl-criscope-*-linux-*.tar.gz | grep -x kubectl_complete-criscope > /dev/null || die "the plugin has no completion"
    if have helm; then
        helm template criscope "$out"/criscope-chart-*.tgz > "$WORK/chart" 2>&1 || { cat "$WORK/chart" >&2; die "helm cannot render the chart of the release"; }
        grep -q PrometheusRule <(helm template criscope "$out"/criscope-chart-*.tgz --set monitoring.enabled=true) || die "the chart of the release has no rules"
    else
        note "NOT CHECKED: the chart of the release; there is no helm"
    fi
    jq -r '.subject[] | "\(.digest.sha256)  \(.name)"' "$out"/*.intoto.json | diff - "$out/SHA256SUMS" || die "the provenance has other files"
    [ "$(jq -r '.predicate.buildDefinition.resolvedDependencies[0].digest.gitCommit' "$out"/*.intoto.json)" = "$(git rev-parse HEAD)" ] ||
        die "the provenance does not name the commit"
    # What advisories are ignored for users' scanners is what is ignored for our own.
    jq -r '.statements[].vulnerability.name' "$out"/*.openvex.json | sort > "$WORK/vex"
    sed -n 's/.*{ id = "\(RUSTSEC-[0-9-]*\)".*/\1/p' deny.toml | sort | diff "$WORK/vex" - || die "OpenVEX (left) and deny.toml (right) have other advisories"
    jq -e '[.statements[] | .products[] | .["@id"] | test("@|tag=")] | all' "$out"/*.openvex.json > /dev/null || die "a product of OpenVEX has no version"
    note "manifest for krew, chart, provenance and OpenVEX"
}

# --- as root ---------------------------------------------------------------------------------------------------------

# What packages leave on a file system; dpkg's own files aside.
files() { (cd "$1" && find . -xdev \( -path ./var/lib/dpkg -o -path ./var/log -o -path ./var/lib/rpm -o -path ./proc -o -path ./usr/lib/sysimage \) -prune -o -print) | sort; }

# A systemctl that records its calls, in a root with systemd.
fake_systemd() {
    mkdir -p "$1/run/systemd/system" "$1/usr/bin"
    printf '#!/bin/sh\necho "$*" >> /systemctl.log\ncase $* in *is-active*handover*) [ -e /hands-over ] ;; *is-active*) [ -e /active ] ;; esac\n' > "$1/usr/bin/systemctl"
    chmod 755 "$1/usr/bin/systemctl"
    : > "$1/systemctl.log"
}

only_reloads() { ! grep -v -e daemon-reload -e is-active "$1/systemctl.log" || die "$2 calls systemctl"; }

debian_root() {
    local suite
    # shellcheck disable=SC1091
    suite=$(. /etc/os-release; echo "${VERSION_CODENAME:-stable}")
    if [ ! -e "$ROOT_TAR" ]; then
        have mmdebstrap || return 1
        mmdebstrap --quiet --mode=root --variant=apt --format=tar "$suite" "$ROOT_TAR.new" > "$WORK/mmdebstrap.log" 2>&1 || return 1
        mv "$ROOT_TAR.new" "$ROOT_TAR"
    fi
    mkdir -p "$1"
    tar -xf "$ROOT_TAR" -C "$1" --exclude='./dev/*'
}

# With the word by which the list of what is left behind knows processes of this run.
IN_ROOT=(/usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "CRISCOPE_TEST_RUN=${CRISCOPE_TEST_RUN-}")
in_root() { chroot "$ROOT" "${IN_ROOT[@]}" "$@"; }
refused() { ! "$@" > "$WORK/refused" 2>&1 || die "not refused: $*"; grep -q "^criscope: " "$WORK/refused" || die "refused without a reason: $(cat "$WORK/refused")"; }

try_deb() {
    ROOT=$WORK/debian
    if ! debian_root "$ROOT"; then note "NOT CHECKED: installation of the .deb; mmdebstrap makes no Debian root here"; return; fi
    mknod -m 666 "$ROOT/dev/null" c 1 3
    fake_systemd "$ROOT"
    cp "$DEB" "$ROOT/new.deb"
    cp "$WORK"/before/*.deb "$ROOT/before.deb"
    mkdir "$ROOT/proc.mount" "$ROOT/image"
    : > "$ROOT/log"
    files "$ROOT" > "$WORK/clean"

    in_root dpkg -i /before.deb > "$ROOT/log" 2>&1 || { cat "$ROOT/log" >&2; die "the version before cannot be installed"; }
    in_root criscope check-config /etc/criscope/criscope.toml > /dev/null
    in_root criscope --version > /dev/null

    # An upgrade with the daemon running and a changed configuration: no question, no restart, nothing lost.
    echo '# changed' >> "$ROOT/etc/criscope/criscope.toml"
    # No function: $! would be a shell that waits for the daemon.
    chroot "$ROOT" "${IN_ROOT[@]}" criscope serve --config /etc/criscope/criscope.toml --admin off > "$ROOT/log" 2>&1 &
    local daemon=$! i
    for ((i = 0; i < 100; i++)); do [ ! -S "$ROOT/run/criscope/criscope.sock" ] || break; sleep 0.1; done
    [ -S "$ROOT/run/criscope/criscope.sock" ] || { cat "$ROOT/log" >&2; die "criscope does not start in the root"; }
    : > "$ROOT/active"
    in_root dpkg -i /new.deb > "$WORK/upgrade" 2>&1 < /dev/null || { cat "$WORK/upgrade" >&2; die "the upgrade failed"; }
    kill -0 "$daemon" || die "the upgrade ended the daemon"
    grep -q 'still version 0.1.0-1' "$WORK/upgrade" || die "the upgrade does not say which version runs: $(cat "$WORK/upgrade")"
    grep -q '^# changed' "$ROOT/etc/criscope/criscope.toml" || die "the upgrade replaced the configuration"
    only_reloads "$ROOT" "the upgrade"
    : > "$ROOT/hands-over"
    in_root dpkg -i /new.deb > "$WORK/upgrade" 2>&1 < /dev/null || { cat "$WORK/upgrade" >&2; die "the upgrade failed"; }
    grep -q 'try-restart criscope.service' "$ROOT/systemctl.log" || die "a daemon that hands over keeps its version"
    grep -q 'the new version serves' "$WORK/upgrade" || die "the upgrade does not say that it restarts: $(cat "$WORK/upgrade")"
    rm "$ROOT/hands-over"
    : > "$ROOT/systemctl.log"
    note "upgraded under a running daemon"

    refused in_root dpkg -r criscope
    kill "$daemon"
    wait "$daemon" || true
    rm "$ROOT/active"
    mkdir -p "$ROOT/var/lib/criscope-install"
    : > "$ROOT/var/lib/criscope-install/record.json"
    refused in_root dpkg -r criscope
    rm "$ROOT/var/lib/criscope-install/record.json"
    in_root /usr/bin/criscope --version > /dev/null || die "a refused removal removed something"

    # Removal keeps configuration, images and records; so does a purge while a pod's file system is mounted.
    mkdir -p "$ROOT/var/lib/criscope/images" "$ROOT/var/lib/criscope/rootfs"
    mkdir -p "$ROOT/etc/systemd/system/multi-user.target.wants"
    ln -s /usr/lib/systemd/system/criscope.service "$ROOT/etc/systemd/system/multi-user.target.wants/criscope.service"
    in_root dpkg -r criscope > "$ROOT/log" 2>&1
    if ! [ -e "$ROOT/etc/criscope/criscope.toml" ] || ! [ -d "$ROOT/var/lib/criscope/images" ]; then die "removal is no purge"; fi
    [ ! -L "$ROOT/etc/systemd/system/multi-user.target.wants/criscope.service" ] || die "a link to the removed unit stays"
    purge_with_a_pod
    [ -d "$ROOT/var/lib/criscope/images" ] || die "a purge removes the images of running pods"
    in_root dpkg -i /new.deb > "$ROOT/log" 2>&1
    in_root dpkg -P criscope > "$ROOT/log" 2>&1
    only_reloads "$ROOT" "removal or purge"
    rm -f "$ROOT/active"
    files "$ROOT" | grep -v '^./etc/systemd/system/multi-user.target.wants$' > "$WORK/left"
    grep -v '^./etc/systemd/system/multi-user.target.wants$' "$WORK/clean" > "$WORK/clean.list"
    same "$WORK/clean.list" "$WORK/left" "a purge leaves files"
    note "removal refused while in use, purged with nothing left"
}

# In a mount namespace of its own: /proc, and a mount as of a container.
purge_with_a_pod() {
    # shellcheck disable=SC2016
    unshare -m sh -ec 'mount -t proc proc "$1/proc"; mount -t tmpfs pod "$1/var/lib/criscope/rootfs"; exec chroot "$1" dpkg -P criscope' \
        sh "$ROOT" > "$WORK/purge" 2>&1 || { cat "$WORK/purge" >&2; die "the purge failed"; }
    grep -q 'pods still run' "$WORK/purge" || die "a purge with pods says nothing: $(cat "$WORK/purge")"
}

try_rpm() {
    have rpm || return 0
    ROOT=$WORK/rpm
    local shell=${CRISCOPE_BUSYBOX:-/bin/busybox}
    mkdir -p "$ROOT/bin" "$ROOT/dev" "$ROOT/etc/systemd/system"
    mknod -m 666 "$ROOT/dev/null" c 1 3
    cp "$shell" "$ROOT/bin/busybox"
    ln -s busybox "$ROOT/bin/sh"
    fake_systemd "$ROOT"
    rpm --root "$ROOT" --initdb
    mkdir -p "$ROOT/usr/share" "$ROOT/usr/lib" "$ROOT/var/tmp"
    files "$ROOT" > "$WORK/clean"
    # not rpm -V: nothing else is in this root, so neither are its directories nor /bin/sh
    rpm --root "$ROOT" --nodeps --noplugins -i "$WORK"/before/*.rpm > "$WORK/log" 2>&1 || { cat "$WORK/log" >&2; die "the .rpm cannot be installed"; }
    echo '# changed' >> "$ROOT/etc/criscope/criscope.toml"
    : > "$ROOT/active"
    rpm --root "$ROOT" --nodeps --noplugins -U "$RPM" > "$WORK/upgrade" 2>&1 || { cat "$WORK/upgrade" >&2; die "the upgrade of the .rpm failed"; }
    [ "$(rpm --root "$ROOT" -qa | grep -c '^criscope-')" = 1 ] || die "two versions of the .rpm"
    grep -q '^# changed' "$ROOT/etc/criscope/criscope.toml" || die "the upgrade of the .rpm replaced the configuration"
    [ -x "$ROOT/usr/bin/criscope-shim" ] || die "the upgrade of the .rpm removed a program"
    refused rpm --root "$ROOT" --nodeps --noplugins -e criscope
    [ -x "$ROOT/usr/bin/criscope" ] || die "a refused removal of the .rpm removed something"
    rm "$ROOT/active"
    rpm --root "$ROOT" --nodeps --noplugins -e criscope > /dev/null 2>&1
    only_reloads "$ROOT" "the .rpm"
    # RPM keeps a changed configuration beside its place.
    files "$ROOT" > "$WORK/left"
    comm -13 "$WORK/clean" "$WORK/left" | while read -r path; do
        [ -d "$ROOT/$path" ] && [ -z "$(find "$ROOT/$path" -type f ! -name 'criscope.toml.rpmsave')" ] && continue
        case $path in */criscope.toml.rpmsave) ;; *) die "the .rpm leaves $path" ;; esac
    done
    note "the .rpm installed, upgraded, and removed, in a root without a distribution"
}

main() {
    if [ "${1:-}" = --as-root ]; then
        WORK=$2 DEB=$3 RPM=$4
        try_deb
        try_rpm
        if [ -e "$ROOT_TAR" ]; then tests/repositories.sh "$ROOT_TAR" "$WORK/before" "$WORK/out"; fi
        return
    fi
    local programs=${1:-$TARGET/release}
    [ -x "$programs/criscope" ] || die "no programs in $programs: cargo build --release --locked"
    [ -x "$TARGET/debug/criscope-agent" ] || cargo build --locked -p criscope-agent --bins
    mkdir -p "$TARGET/test-tools"
    WORK=$(mktemp -d "$TARGET/test-tools/packages.XXXXXX")
    local sudo=()
    [ "$EUID" = 0 ] || sudo=(sudo -E env "PATH=$PATH")
    # shellcheck disable=SC2064
    trap "${sudo[*]@Q} rm -rf --one-file-system '$WORK'" EXIT
    make_packages "$(realpath "$programs")"
    check_contents
    check_metadata
    tests/publish.sh "$WORK/bin"
    "${sudo[@]}" "$BASH" "$0" --as-root "$WORK" "$DEB" "$RPM"
}

main "$@"

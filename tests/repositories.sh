#!/usr/bin/env bash
# The repositories of deploy/repositories.sh: apt and dnf install and upgrade from them, with the signatures checked, and take no
# package from one that was changed.
#
# usage: tests/repositories.sh ROOT.tar EARLIER LATER   a Debian root with apt, and two releases; runs as root
#
# Without apt-ftparchive, createrepo_c, dnf or rpmbuild it prints NOT CHECKED for what they are needed for.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
ROOT_TAR=$1 EARLIER=$2 LATER=$3
WORK=$(mktemp -d "$(dirname "$ROOT_TAR")/repositories.XXXXXX")
GNUPGHOME=$(mktemp -d)
export GNUPGHOME

die() { printf 'tests/repositories.sh: %s\n' "$*" >&2; exit 1; }
note() { printf '    %s\n' "$*"; }
have() { command -v "$1" > /dev/null 2>&1; }
version() { sed -n 's/.*  criscope_\(.*\)_.*\.deb$/\1/p' "$1/SHA256SUMS" | head -n 1; }

leave() {
    gpgconf --kill all || true
    rm -rf --one-file-system "$WORK" "$GNUPGHOME"
}
trap leave EXIT

make() {
    gpg --batch --quiet --passphrase '' --quick-generate-key 'criscope test <test@localhost>' ed25519 sign never 2> /dev/null
    KEY=$(gpg --batch --list-secret-keys --with-colons 2> /dev/null | sed -n 's/^fpr:*\([0-9A-F]*\):$/\1/p' | head -n 1)
    # The later release goes into the repositories that have the earlier one.
    deploy/repositories.sh --key "$KEY" --url file:///repo --out "$WORK/repo" "$EARLIER" > /dev/null
    deploy/repositories.sh --key "$KEY" --url file:///repo --out "$WORK/repo" "$LATER" > /dev/null
    cmp "$LATER"/*.deb "$WORK"/repo/apt/pool/main/c/criscope/criscope_"$(version "$LATER")"_*.deb || die "the repository has another package"
    mkdir "$WORK/fake"
    cp -r "$LATER" "$WORK/fake/release"
    printf x >> "$(echo "$WORK"/fake/release/*.deb)"
    if deploy/repositories.sh --key "$KEY" --url file:///repo --out "$WORK/repo" "$WORK/fake/release" > "$WORK/log" 2>&1; then
        die "another package of a released version is accepted"
    fi
    grep -q 'a version is released once' "$WORK/log" || die "refused without a reason: $(cat "$WORK/log")"
}

in_root() { chroot "$ROOT" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"; }
quietly() { "$@" > "$WORK/log" 2>&1 || { cat "$WORK/log" >&2; die "$* failed"; }; }

try_apt() {
    ROOT=$WORK/debian
    mkdir "$ROOT"
    tar -xf "$ROOT_TAR" -C "$ROOT" --exclude='./dev/*'
    [ -x "$ROOT/usr/bin/apt-get" ] || { note "NOT CHECKED: apt; the root has none"; return; }
    mknod -m 666 "$ROOT/dev/null" c 1 3
    cp -r "$WORK/repo" "$ROOT/repo"
    rm -f "$ROOT/etc/apt/sources.list" "$ROOT"/etc/apt/sources.list.d/*
    cp "$WORK/repo/criscope.sources" "$ROOT/etc/apt/sources.list.d"
    if in_root apt-get update -o APT::Update::Error-Mode=any > "$WORK/log" 2>&1; then die "apt reads the repository without its key"; fi
    install -m 644 "$WORK/repo/criscope.asc" "$ROOT/usr/share/keyrings/criscope.asc"
    quietly in_root apt-get update -o APT::Update::Error-Mode=any
    quietly in_root apt-get install -y "criscope=$(version "$EARLIER")"
    quietly in_root apt-get install -y criscope
    # shellcheck disable=SC2016
    [ "$(in_root dpkg-query -W -f '${Version}' criscope)" = "$(version "$LATER")" ] || die "apt does not upgrade to the later version"
    quietly in_root apt-get purge -y criscope
    printf x >> "$(echo "$ROOT"/repo/apt/pool/main/c/criscope/criscope_"$(version "$LATER")"_*.deb)"
    in_root apt-get clean
    if in_root apt-get install -y criscope > "$WORK/log" 2>&1; then die "apt installs a package that was changed"; fi
    sed -i 's/^Version: .*/Version: 9/' "$(echo "$ROOT"/repo/apt/dists/stable/main/binary-*/Packages | cut -d' ' -f1)"
    sed -i 's/^Date: .*/Date: Thu, 01 Jan 2026 00:00:00 UTC/' "$ROOT/repo/apt/dists/stable/InRelease"
    rm -rf "$ROOT"/var/lib/apt/lists/*
    if in_root apt-get update -o APT::Update::Error-Mode=any > "$WORK/log" 2>&1; then die "apt reads a list that was changed"; fi
    note "apt: installed, upgraded; refused without the key, and what was changed"
}

# The packages need /bin/sh, which nothing else provides in an empty root.
make_shell_package() {
    mkdir -p "$WORK/shell"
    printf 'Name: shell\nVersion: 1\nRelease: 1\nSummary: provides /bin/sh\nLicense: none\nBuildArch: noarch\nProvides: /bin/sh\n%%description\n.\n%%files\n' > "$WORK/shell.spec"
    rpmbuild --quiet --define "_topdir $WORK/rpmbuild" --define "_rpmdir $WORK/shell" -bb "$WORK/shell.spec" > "$WORK/log" 2>&1 || { cat "$WORK/log" >&2; die "rpmbuild failed"; }
    createrepo_c --quiet "$WORK/shell"
}

in_dnf() {
    dnf --quiet -y --installroot="$ROOT" --releasever=1 --setopt=reposdir="$ROOT/etc/yum.repos.d" --setopt=cachedir="$ROOT/cache" \
        --setopt=logdir="$ROOT/log" --setopt=keepcache=0 --setopt=tsflags=noscripts --setopt=plugins=0 --setopt=skip_if_unavailable=0 "$@"
}

try_dnf() {
    ROOT=$WORK/dnf
    make_shell_package
    mkdir -p "$ROOT/etc/yum.repos.d" "$ROOT/dev" "$ROOT/log"
    sed "s#file:///repo#file://$WORK/repo#" "$WORK/repo/criscope.repo" > "$ROOT/etc/yum.repos.d/criscope.repo"
    printf '[shell]\nname=shell\nbaseurl=file://%s\ngpgcheck=0\n' "$WORK/shell" > "$ROOT/etc/yum.repos.d/shell.repo"
    local earlier
    earlier=$(version "$EARLIER")
    quietly in_dnf install "criscope-${earlier%-*}"
    quietly in_dnf upgrade
    [ "$(rpm --root "$ROOT" -q --qf '%{VERSION}-%{RELEASE}' criscope)" = "$(version "$LATER")" ] || die "dnf does not upgrade to the later version"
    printf '\n' >> "$WORK/repo/rpm/$(uname -m)/repodata/repomd.xml"
    rm -rf "$ROOT/cache"
    if in_dnf --refresh makecache > "$WORK/log" 2>&1; then die "dnf reads a list that was changed"; fi
    grep -qi signature "$WORK/log" || die "dnf fails for another reason: $(cat "$WORK/log")"
    note "dnf: installed, upgraded; refused what was changed"
}

main() {
    for program in gpg apt-ftparchive createrepo_c; do
        if ! have "$program"; then note "NOT CHECKED: the repositories; there is no $program"; return; fi
    done
    make
    try_apt
    if have dnf && have rpmbuild; then try_dnf; else note "NOT CHECKED: dnf; there is none, or no rpmbuild"; fi
}

main

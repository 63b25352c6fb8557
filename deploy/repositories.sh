#!/usr/bin/env bash
# Makes repositories for apt and dnf out of releases: static files, for any web server. Packages are the files of the releases, byte for
# byte; the lists of them are signed, and have their digests.
#
# usage: deploy/repositories.sh --key ID --url URL --out DIR RELEASE...
#   --key ID     the key of GnuPG that signs; its public part becomes DIR/criscope.asc
#   --url URL    where DIR will be served, for criscope.sources and criscope.repo
#   --out DIR    the repositories; packages of earlier releases in it stay
#   RELEASE      directories that deploy/release.sh made
#
# Needs gpg, apt-ftparchive (apt-utils) and createrepo_c.
set -euo pipefail

REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
SELF=$REPO/deploy/repositories.sh
SUITE=stable
COMPONENT=main

die() { printf 'repositories: %s\n' "$*" >&2; exit 1; }
usage() { sed -n '/^# usage:/,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$SELF"; }
sign() { gpg --batch --yes --quiet --local-user "$KEY" --digest-algo SHA256 "$@"; }

# place FILE DIR: keeps the date of the file, and replaces no package of the same name by another.
place() {
    local target=$2/${1##*/}
    mkdir -p "$2"
    if [ ! -e "$target" ]; then cp -p "$1" "$target"; return; fi
    cmp -s "$1" "$target" || die "$target is another package with the name of $1: a version is released once"
}

make_apt() {
    local dist=dists/$SUITE arch list
    cd "$OUT/apt"
    rm -rf "$dist"
    for arch in amd64 arm64; do
        list=$dist/$COMPONENT/binary-$arch
        mkdir -p "$list"
        apt-ftparchive --arch "$arch" packages pool > "$list/Packages"
        gzip -9nk "$list/Packages"
    done
    apt-ftparchive -o APT::FTPArchive::Release::Origin=criscope -o APT::FTPArchive::Release::Label=criscope \
        -o APT::FTPArchive::Release::Suite=$SUITE -o APT::FTPArchive::Release::Codename=$SUITE \
        -o "APT::FTPArchive::Release::Architectures=amd64 arm64" -o APT::FTPArchive::Release::Components=$COMPONENT \
        release "$dist" > Release
    mv Release "$dist/Release"
    sign --clearsign --output "$dist/InRelease" "$dist/Release"
    sign --armor --detach-sign --output "$dist/Release.gpg" "$dist/Release"
    cat > "$OUT/criscope.sources" <<END
Types: deb
URIs: $URL/apt
Suites: $SUITE
Components: $COMPONENT
Signed-By: /usr/share/keyrings/criscope.asc
END
}

make_dnf() {
    local arch
    for arch in x86_64 aarch64; do
        mkdir -p "$OUT/rpm/$arch"
        createrepo_c --quiet --general-compress-type gz "$OUT/rpm/$arch"
        sign --armor --detach-sign --output "$OUT/rpm/$arch/repodata/repomd.xml.asc" "$OUT/rpm/$arch/repodata/repomd.xml"
    done
    # The signed list has the digest of each package.
    cat > "$OUT/criscope.repo" <<END
[criscope]
name=criscope
baseurl=$URL/rpm/\$basearch
enabled=1
repo_gpgcheck=1
gpgcheck=0
gpgkey=$URL/criscope.asc
END
}

main() {
    local release package arch
    KEY='' URL='' OUT=''
    while [ $# -gt 0 ]; do
        case $1 in
            --key | --url | --out) [ $# -gt 1 ] || { usage >&2; exit 64; } ;;&
            --key) KEY=$2; shift ;;
            --url) URL=${2%/}; shift ;;
            --out) OUT=$2; shift ;;
            -h | --help) usage; exit ;;
            -*) usage >&2; exit 64 ;;
            *) break ;;
        esac
        shift
    done
    if [ -z "$KEY" ] || [ -z "$URL" ] || [ -z "$OUT" ] || [ $# -eq 0 ]; then usage >&2; exit 64; fi
    for program in gpg apt-ftparchive createrepo_c; do command -v "$program" > /dev/null || die "$program is missing"; done
    umask 022
    mkdir -p "$OUT"
    OUT=$(realpath "$OUT")
    for release in "$@"; do
        compgen -G "$release/*.deb" > /dev/null || die "$release has no packages"
        for package in "$release"/*.deb; do place "$package" "$OUT/apt/pool/$COMPONENT/c/criscope"; done
        for package in "$release"/*.rpm; do
            arch=${package%.rpm}
            place "$package" "$OUT/rpm/${arch##*.}"
        done
    done
    gpg --batch --yes --quiet --armor --export --output "$OUT/criscope.asc" "$KEY"
    [ -s "$OUT/criscope.asc" ] || die "GnuPG has no key $KEY"
    (make_apt)
    make_dnf
    printf '==> %s\n' "$OUT"
}

main "$@"

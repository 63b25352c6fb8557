#!/usr/bin/env bash
# The steps of .github/workflows/release.yml after the build. Each can be run by hand, with --dry-run to see what it would send.
#
# usage: deploy/publish.sh [--dry-run] STEP DIR
#   STEP         check     the tag, the changelog and all checksums belong together
#                sign      SHA256SUMS and the provenance, with the identity of the workflow (cosign, keyless)
#                image     push the image, and sign it with its SBOMs
#                chart     push the Helm chart, and sign it
#                pages     repositories for apt and dnf, on the branch gh-pages
#                upload    all files, as a release of GitHub
#   DIR          what deploy/release.sh made
# environment:
#   TAG                the tag (default: the commit's)
#   GITHUB_REPOSITORY  OWNER/NAME (default criscope/criscope)
#   COSIGN_KEY         a key for cosign, instead of the identity of the workflow
#   RELEASE_KEY        the key of GnuPG for the repositories (pages)
#   PAGES_URL          where gh-pages is served (default https://OWNER.github.io/NAME)
set -euo pipefail

REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
SELF=$REPO/deploy/publish.sh

die() { printf 'publish: %s\n' "$*" >&2; exit 1; }
usage() { sed -n '/^# usage:/,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$SELF"; }

# What leaves this machine.
send() {
    if [ -n "$DRY_RUN" ]; then
        printf 'would run:'
        printf ' %q' "$@"
        printf '\n'
        return
    fi
    "$@"
}

# Signs with the workflow's identity, which Sigstore certifies for some minutes, or with a key.
cosign_with_identity() {
    local command=$1
    shift
    send cosign "$command" --yes ${COSIGN_KEY:+--key "$COSIGN_KEY"} "$@"
}

step_check() {
    local sums=$WORK/sums
    [ "$TAG" = "v$VERSION" ] || die "the tag is $TAG, and the files are of version $VERSION"
    grep -q "^## \[$VERSION\] - 20[0-9][0-9]-[0-9][0-9]-[0-9][0-9]\$" "$REPO/CHANGELOG.md" ||
        die "CHANGELOG.md has no date for version $VERSION"
    (cd "$DIR" && sha256sum --quiet --strict -c SHA256SUMS) || die "a file is not what SHA256SUMS says"
    (cd "$DIR" && find . -maxdepth 1 -type f ! -name SHA256SUMS ! -name '*.intoto.json' ! -name '*.sigstore.json' -printf '%P\n' | sort) > "$WORK/files"
    cut -c 67- "$DIR/SHA256SUMS" | sort > "$sums"
    diff "$WORK/files" "$sums" || die "the files (left) are not those in SHA256SUMS (right)"
    jq -r '.subject[] | "\(.digest.sha256)  \(.name)"' "$DIR/criscope-$VERSION.intoto.json" | diff - "$DIR/SHA256SUMS" ||
        die "the provenance has other files than SHA256SUMS"
}

step_sign() {
    cosign_with_identity sign-blob --bundle "$DIR/SHA256SUMS.sigstore.json" "$DIR/SHA256SUMS"
    cosign_with_identity attest-blob --statement "$DIR/criscope-$VERSION.intoto.json" \
        --bundle "$DIR/criscope-$VERSION.intoto.sigstore.json"
}

step_image() {
    local name=ghcr.io/$REPOSITORY archive=$DIR/criscope-$VERSION-image.tar digest sbom
    digest=$(tar -xOf "$archive" index.json | jq -r '.manifests[0].digest')
    send skopeo copy --all --preserve-digests "oci-archive:$archive" "docker://$name:$VERSION"
    cosign_with_identity sign --recursive "$name@$digest"
    for sbom in $(compgen -G "$DIR/criscope-agent-$VERSION-*.cdx.json"); do
        cosign_with_identity attest --type cyclonedx --predicate "$sbom" "$name@$digest"
    done
    cosign_with_identity attest --type openvex --predicate "$DIR/criscope-$VERSION.openvex.json" "$name@$digest"
}

step_chart() {
    local name=ghcr.io/$OWNER/charts digest
    send helm push "$DIR/criscope-chart-$VERSION.tgz" "oci://$name" 2>&1 | tee "$WORK/push"
    digest=$(sed -n 's/^Digest: //p' "$WORK/push")
    [ -n "$digest" ] || [ -n "$DRY_RUN" ] || die "helm push says no digest"
    cosign_with_identity sign "$name/criscope@${digest:-DIGEST}"
}

step_pages() {
    local pages=$WORK/pages
    [ -n "${RELEASE_KEY:-}" ] || die "RELEASE_KEY names no key of GnuPG"
    if [ -n "$DRY_RUN" ] || ! git clone --quiet --depth 1 --branch gh-pages "$(git -C "$REPO" remote get-url origin)" "$pages"; then
        git init --quiet --initial-branch gh-pages "$pages"
    fi
    "$REPO/deploy/repositories.sh" --key "$RELEASE_KEY" --url "$PAGES_URL" --out "$pages" "$DIR"
    touch "$pages/.nojekyll"
    git -C "$pages" add --all
    git -C "$pages" -c user.name=criscope -c user.email=criscope@users.noreply.github.com commit --quiet -m "Version $VERSION"
    send git -C "$pages" push "$(git -C "$REPO" remote get-url origin 2> /dev/null || echo origin)" gh-pages
}

step_upload() {
    awk -v heading="## [$VERSION]" 'index($0, "## [") == 1 { shown = index($0, heading) == 1; next } shown' "$REPO/CHANGELOG.md" > "$WORK/notes.md"
    send gh release create "$TAG" --repo "$REPOSITORY" --verify-tag --title "criscope $VERSION" --notes-file "$WORK/notes.md" "$DIR"/*
}

main() {
    DRY_RUN=''
    if [ "${1:-}" = --dry-run ]; then DRY_RUN=1; shift; fi
    case ${1:-} in
        check | sign | image | chart | pages | upload) ;;
        -h | --help) usage; exit ;;
        *) usage >&2; exit 64 ;;
    esac
    [ $# -eq 2 ] || { usage >&2; exit 64; }
    [ -f "$2/SHA256SUMS" ] || die "$2 has no SHA256SUMS: deploy/release.sh makes it"
    DIR=$(realpath "$2")
    VERSION=$(sed -n 's/.*  criscope-\([0-9].*\)\.openvex\.json$/\1/p' "$DIR/SHA256SUMS")
    [ -n "$VERSION" ] || die "$DIR is no whole release"
    TAG=${TAG:-$(git -C "$REPO" describe --tags --exact-match 2> /dev/null || echo none)}
    REPOSITORY=${GITHUB_REPOSITORY:-criscope/criscope}
    OWNER=${REPOSITORY%%/*}
    PAGES_URL=${PAGES_URL:-https://$OWNER.github.io/${REPOSITORY#*/}}
    WORK=$(mktemp -d)
    trap 'rm -rf "$WORK"' EXIT
    "step_$1"
}

main "$@"

#!/usr/bin/env bash
# Runs every step of .github/workflows/release.yml that is no action, in a clone of this commit with a tag, with programs of its own in
# the place of those that change a machine or send something: they check their arguments, and note them.
#
# usage: tests/publish.sh PROGRAMS   a directory as for deploy/release.sh --binaries
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
PROGRAMS=$(realpath "$1")
TARGET=${CARGO_TARGET_DIR:-$PWD/target}
case $TARGET in /*) ;; *) TARGET=$PWD/$TARGET ;; esac
mkdir -p "$TARGET/test-tools"
WORK=$(mktemp -d "$TARGET/test-tools/publish.XXXXXX")
# Sockets of GnuPG have short paths.
GNUPGHOME=$(mktemp -d)
export GNUPGHOME

die() { printf 'tests/publish.sh: %s\n' "$*" >&2; exit 1; }
note() { printf '    %s\n' "$*"; }
have() { command -v "$1" > /dev/null 2>&1; }

leave() {
    gpgconf --kill all || true
    rm -rf "$WORK" "$GNUPGHOME"
}
trap leave EXIT

# Programs that are small to package, and run those in PROGRAMS.
make_programs() {
    local program
    mkdir -p "$WORK"/programs/{darwin,windows}
    for program in criscope criscope-shim criscope-agent kubectl-criscope; do
        printf '#!/bin/sh\nexec %q/%s "$@"\n' "$PROGRAMS" "$program" > "$WORK/programs/$program"
        chmod +x "$WORK/programs/$program"
    done
    cp "$PROGRAMS/darwin/kubectl-criscope" "$WORK/programs/darwin"
    cp "$PROGRAMS/windows/kubectl-criscope.exe" "$WORK/programs/windows"
}

# stand_in NAME: the script on standard input, after its arguments were noted.
stand_in() {
    { printf '#!/usr/bin/env bash\nset -euo pipefail\necho "%s $*" >> "%s/calls"\n' "$1" "$WORK"; cat; } > "$WORK/bin/$1"
    chmod +x "$WORK/bin/$1"
}

make_stand_ins() {
    mkdir -p "$WORK/bin"
    for program in sudo apt-get rustup; do stand_in "$program" < /dev/null; done
    stand_in cosign << 'END'
fail() { echo "cosign: $*" >&2; exit 1; }
command=$1 bundle='' statement='' predicate=''
shift
case $command in sign-blob | attest-blob | sign | attest) ;; *) fail "no command $command" ;; esac
while [ $# -gt 0 ]; do
    case $1 in
        --yes | --recursive) ;;
        --bundle) bundle=$2; shift ;;
        --statement) statement=$2; shift ;;
        --predicate) predicate=$2; shift ;;
        --type) case $2 in cyclonedx | openvex) ;; *) fail "no type $2" ;; esac; shift ;;
        -*) fail "no option $1" ;;
        *) break ;;
    esac
    shift
done
case $command in
    sign-blob) [ -f "$1" ] && echo '{}' > "$bundle" ;;
    attest-blob) [ "$(jq -r ._type "$statement")" = https://in-toto.io/Statement/v1 ] && echo '{}' > "$bundle" ;;
    sign | attest) [[ $1 =~ ^ghcr\.io/[a-z/]+@sha256:[0-9a-f]{64}$ ]] || fail "$1 is no image with a digest" ;;
esac
[ "$command" != attest ] || jq . "$predicate" > /dev/null
END
    stand_in skopeo << END
case \$1 in
    login) [ "\$(cat)" = token ] ;;
    copy) $(command -v skopeo || echo true) copy --quiet --all --preserve-digests "\${@: -2:1}" "dir:$WORK/pushed" ;;
esac
END
    stand_in helm << 'END'
case $1 in
    registry) [ "$(cat)" = token ] ;;
    push) tar -tzf "$2" | grep -x criscope/Chart.yaml > /dev/null; printf 'Pushed: %s\nDigest: sha256:%s\n' "$3" "$(sha256sum < "$2" | cut -d' ' -f1)" ;;
esac
END
    stand_in gh << END
for file in "\${@:11}"; do [ -f "\$file" ]; done
printf '%s\n' "\${@:11}" > "$WORK/uploaded"
cp "\${10}" "$WORK/notes"
END
}

# A clone whose origin is not this repository, with the commit of a release.
make_clone() {
    git -c init.defaultBranch=main clone --quiet --config advice.detachedHead=false . "$WORK/clone"
    git init --quiet --bare --initial-branch main "$WORK/origin.git"
    cd "$WORK/clone"
    git remote set-url origin "$WORK/origin.git"
    VERSION=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
    sed -i "s/^## \[$VERSION\].*/## [$VERSION] - 2026-01-31/" CHANGELOG.md
    git -c user.name=test -c user.email=test@localhost commit --quiet --all --allow-empty -m "Version $VERSION"
    git tag --force "v$VERSION" > /dev/null
}

make_key() {
    gpg --batch --quiet --passphrase '' --quick-generate-key 'criscope test <test@localhost>' ed25519 sign never 2> /dev/null
    KEY=$(gpg --batch --list-secret-keys --with-colons 2> /dev/null | sed -n 's/^fpr:*\([0-9A-F]*\):$/\1/p' | head -n 1)
    SECRET=$(gpg --batch --armor --export-secret-keys "$KEY" 2> /dev/null)
    # The step imports it.
    gpgconf --kill all
    find "$GNUPGHOME" -mindepth 1 -delete
}

# The commands of the steps, each in a file of its own, and the variables of each, in the order of the workflow.
read_workflow() {
    /usr/bin/python3 - "$WORK/steps" << 'END'
import pathlib, re, shlex, sys
import yaml
out = pathlib.Path(sys.argv[1])
out.mkdir()
for workflow in sorted(pathlib.Path(".github/workflows").glob("*.yml")):
    text = yaml.safe_load(workflow.read_text())
    if "permissions" not in text:
        sys.exit(f"{workflow}: no permissions, so the token may do everything")
    for name, job in text["jobs"].items():
        for number, step in enumerate(job["steps"]):
            uses = step.get("uses")
            if uses and not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", uses):
                sys.exit(f"{workflow}: {uses} is not pinned to a commit")
            if uses or name != "release":
                continue
            variables = {**job.get("env", {}), **step.get("env", {})}
            file = out / f"{number:02}"
            file.write_text(step["run"])
            lines = [f"{key}={shlex.quote(str(value))}\n" for key, value in variables.items()]
            file.with_suffix(".env").write_text("".join(lines))
            file.with_suffix(".name").write_text(step.get("name", step["run"]))
END
}

# What GitHub puts into the expressions of variables.
expand() {
    case $1 in
        *secrets.GITHUB_TOKEN*) echo token ;;
        *secrets.RELEASE_KEY_SECRET*) echo "$SECRET" ;;
        *vars.RELEASE_KEY*) echo "$KEY" ;;
        *github.ref_name*) echo "v$VERSION" ;;
        *github.workflow_ref*) echo "https://github.com/criscope/criscope/.github/workflows/release.yml@refs/tags/v$VERSION" ;;
        *'{{'*) die "the value of $1 is not known" ;;
        *) echo "$1" ;;
    esac
}

run_steps() {
    local step variable variables
    # The programs are there already, without SBOMs, which another tool makes of the sources.
    local options
    options="--arch $(uname -m) --binaries $WORK/programs --only tar --only deb --only rpm --only image --only plugin --only chart --only vex"
    for step in "$WORK"/steps/??; do
        variables=()
        while IFS= read -r variable; do
            eval "value=${variable#*=}"
            variables+=("${variable%%=*}=$(expand "${value:?}")")
        done < "$step.env"
        env PATH="$WORK/bin:$PATH" HOME="$WORK/home" RUSTUP_HOME="${RUSTUP_HOME:-$HOME/.rustup}" CARGO_HOME="${CARGO_HOME:-$HOME/.cargo}" \
            CARGO_TARGET_DIR="$TARGET" GITHUB_ACTOR=actor GITHUB_REPOSITORY=criscope/criscope "${variables[@]}" \
            RELEASE_OPTIONS="$options" bash --noprofile --norc -eo pipefail "$step" > "$WORK/log" 2>&1 ||
            { cat "$WORK/log" >&2; die "the step \"$(cat "$step.name")\" fails"; }
        note "$(cat "$step.name")"
    done
}

check() {
    local files=$WORK/clone/target/release-files
    [ "$(sort "$WORK/uploaded")" = "$(realpath "$files"/* | sort)" ] || die "not all files are uploaded"
    for file in "SHA256SUMS.sigstore.json" "criscope-$VERSION.intoto.sigstore.json" criscope.yaml; do
        grep -q "/$file\$" "$WORK/uploaded" || die "$file is not uploaded"
    done
    grep -q '^### Added' "$WORK/notes" || die "the notes are not those of the changelog"
    for call in "cosign sign --yes --recursive ghcr.io/criscope/criscope@sha256:" "cosign attest --yes --type openvex" \
        "cosign sign --yes ghcr.io/criscope/charts/criscope@sha256:" "rustup target add"; do
        grep -qF "$call" "$WORK/calls" || die "no step calls $call"
    done
    if have skopeo; then
        grep -qF "@sha256:$(sha256sum < "$WORK/pushed/manifest.json" | cut -d' ' -f1)" "$WORK/calls" || die "another image is signed than is pushed"
    fi
    git clone --quiet --branch gh-pages "$WORK/origin.git" "$WORK/pages"
    gpg --batch --quiet --verify "$WORK/pages/apt/dists/stable/InRelease" 2> /dev/null || die "the repository for apt is not signed"
    [ -f "$WORK/pages/rpm/$(uname -m)/repodata/repomd.xml.asc" ] || die "there is no repository for dnf"
    # Without the tag of this version nothing is published.
    if TAG=v9.9.9 deploy/publish.sh check "$files" > "$WORK/log" 2>&1; then die "another tag is accepted"; fi
    grep -q 'the tag is v9.9.9' "$WORK/log" || die "refused without a reason: $(cat "$WORK/log")"
    echo >> "$files/criscope.yaml"
    if TAG=v$VERSION deploy/publish.sh check "$files" > "$WORK/log" 2>&1; then die "a file that was changed is accepted"; fi
    TAG=v$VERSION deploy/publish.sh --dry-run sign "$files" | grep -q '^would run: cosign sign-blob --yes --bundle' || die "a dry run says nothing"
}

main() {
    for program in gpg apt-ftparchive createrepo_c jq; do
        if ! have "$program"; then note "NOT CHECKED: the workflow of releases; there is no $program"; return; fi
    done
    if ! /usr/bin/python3 -c "import yaml" 2> /dev/null; then note "NOT CHECKED: the workflow of releases; Debian's python3 has no yaml"; return; fi
    mkdir "$WORK/home"
    make_programs
    make_stand_ins
    make_clone
    make_key
    read_workflow
    run_steps
    check
}

main

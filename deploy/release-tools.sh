#!/usr/bin/env bash
# Installs what deploy/profile.sh, deploy/release.sh and deploy/publish.sh need on Ubuntu or Debian with rustup: compilers, the standard
# libraries of all targets, what the benchmarks run, and the programs that publish; cosign, gh and helm aside.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
SUDO=()
[ "$EUID" = 0 ] || SUDO=(sudo)

PACKAGES=(
    gcc musl-tools gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static
    jq python3-venv skopeo gnupg apt-utils createrepo-c rpm
    crun containernetworking-plugins busybox-static iptables socat nginx-light docker-registry zstd e2fsprogs
)
# Another vendor's containerd works too, and Debian's would remove it.
command -v containerd > /dev/null || PACKAGES+=(containerd)
command -v runc > /dev/null || PACKAGES+=(runc)

"${SUDO[@]}" apt-get update -qq
"${SUDO[@]}" apt-get install --yes -qq --no-install-recommends "${PACKAGES[@]}"
rustup component add llvm-tools
rustup target add x86_64-unknown-linux-musl aarch64-unknown-linux-musl \
    x86_64-apple-darwin aarch64-apple-darwin x86_64-pc-windows-gnu

#!/usr/bin/env bash
# Installs the Debian 12 packages that building and testing need. Safe to repeat: does nothing when all are there.
set -euo pipefail

packages=(
  bazel-bootstrap g++ make ca-certificates
  libgrpc++-dev protobuf-compiler protobuf-compiler-grpc libprotobuf-dev libabsl-dev
  libyaml-cpp-dev libdnnl-dev nlohmann-json3-dev libcli11-dev zlib1g-dev libssl-dev libxxhash-dev libzstd-dev
  libjpeg-dev libpng-dev
  libgoogle-perftools-dev prometheus-cpp-dev libcivetweb-dev
  openssl catch2 libbenchmark-dev patchelf
  python3 python3-grpcio python3-protobuf python3-numpy python3-yaml etcd-server
)

if [[ "${1:-}" == "--help" ]]; then
  echo "usage: deploy/install_deps.sh [--list]"
  exit 0
elif [[ "${1:-}" == "--list" ]]; then
  printf '%s\n' "${packages[@]}"
  exit 0
elif [[ $# -gt 0 ]]; then
  echo "install_deps.sh: unknown argument \"$1\", want --list or nothing" >&2
  exit 2
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
  [[ "$status" == "install ok installed" ]] || missing+=("$package")
done
[[ ${#missing[@]} -eq 0 ]] && exit 0

if ! command -v apt-get >/dev/null; then
  echo "install_deps.sh: no apt-get here; install the equivalents of: ${missing[*]}" >&2
  exit 1
fi
as_root=()
if [[ $(id -u) -ne 0 ]]; then
  if ! command -v sudo >/dev/null; then
    echo "install_deps.sh: packages are missing and this is not root; as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

echo "install_deps.sh: installing ${#missing[@]} packages: ${missing[*]}" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { "${as_root[@]}" apt-get update &&
       "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
         "${missing[@]}"; } >"$log" 2>&1; then
  tail -20 "$log" >&2
  echo "install_deps.sh: apt-get failed; its last lines are above" >&2
  exit 1
fi

#!/usr/bin/env bash
# The folder that bundle.sh and gpu_bundle.sh write to. What is packed lies in FOLDER.part until it is whole, so that a
# run that fails leaves FOLDER as it was, and the next run can begin.
#
# A bundle is known by its bundle.sha256, which lists its files. One that is as it was packed is replaced; one in which
# anything was added or changed is kept, as FOLDER.1 or with the next number; any other folder is refused with 2.
set -euo pipefail
usage="usage: deploy/bundle_folder.sh --check|--begin|--end FOLDER"
[[ "${1:-}" == "--help" ]] && echo "$usage" && exit 0
if [[ $# -ne 2 || ! "$1" =~ ^--(check|begin|end)$ || -z "$2" ]]; then
  echo "$usage" >&2
  exit 2
fi
out=$2
part=$out.part
list=bundle.sha256
say() { echo "bundle_folder.sh: $*"; }
files_of() { (cd "$1" && find . ! -type d ! -path "./$list" | LC_ALL=C sort); }

# Bundles of earlier versions have no list, and terms of libraries that nothing else has there.
is_bundle() {
  [[ -f "$1/$list" ]] && return
  [[ -d "$1/lib/licenses" && ( -f "$1/tessera-server" || -f "$1/check.sh" ) ]]
}
is_as_packed() {
  [[ -s "$1/$list" ]] && cmp -s <(sed 's/^[^ ]* [ *]//' "$1/$list" | LC_ALL=C sort) <(files_of "$1") &&
    (cd "$1" && sha256sum --check --status "$list")
}
check() {
  if [[ -e "$out" ]] && ! is_bundle "$out"; then
    say "$out: exists and is no bundle, want another folder" >&2
    exit 2
  fi
  if [[ -e "$part" && ! -f "$part/$list" ]]; then
    say "$part: exists and is no part of a bundle, want another folder" >&2
    exit 2
  fi
}

case $1 in
  --check) check ;;
  --begin)
    check
    rm -rf "$part"
    mkdir -p "$part"
    : >"$part/$list"
    ;;
  --end)
    sums=$(files_of "$part" | (cd "$part" && tr '\n' '\0' | xargs -0 sha256sum))
    echo "$sums" >"$part/$list"
    if [[ -e "$out" ]]; then
      check
      if is_as_packed "$out"; then
        rm -rf "$out"
      else
        number=1
        while [[ -e "$out.$number" ]]; do number=$((number + 1)); done
        mv "$out" "$out.$number"
        say "$out was not as it had been packed; it is $out.$number now" >&2
      fi
    fi
    mv "$part" "$out"
    # Nobody's on the other machine is a user's here.
    tar -C "$(dirname "$out")" --owner=0 --group=0 --numeric-owner -czf "$out.tar.gz.part" "$(basename "$out")"
    mv "$out.tar.gz.part" "$out.tar.gz"
    ;;
esac

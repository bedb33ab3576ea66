#!/usr/bin/env bash
# Copies the libraries that programs are linked with into a folder, and has the programs look there first, so that
# machines without them can run these: all but the C library's, a GPU driver's and CUDA's own, which belong to the
# machine. FOLDER/licenses has the terms of the packages that they are from.
#
# The C++ library's own two are in FOLDER/cxx and taken where the machine has none: they want a newer C library than
# all the others do, and a machine whose C library is older brings C++ libraries that fit it. Prints the C library that
# is wanted.
set -euo pipefail
if [[ "${1:-}" == "--help" || $# -lt 2 ]]; then
  echo "usage: deploy/pack_libraries.sh FOLDER PROGRAM..."
  [[ "${1:-}" == "--help" ]] && exit 0 || exit 2
fi
folder=$1
shift
of_the_machine='lib(c|m|dl|rt|pthread|resolv|cuda|cudart|cublas|cublasLt)\.so'
of_cxx='lib(stdc\+\+|gcc_s)\.so'
of_machines=/usr/lib/$(uname -m)-linux-gnu:/usr/lib64
libraries=$(ldd "$@")
missing=$(awk '/=> not found/ {print $1}' <<<"$libraries" | sort -u | { grep -v -E "^$of_the_machine" || true; })
if [[ -n "$missing" ]]; then
  echo "pack_libraries.sh: not on this machine: ${missing//$'\n'/ }" >&2
  exit 1
fi
mkdir -p "$folder/licenses" "$folder/cxx"
awk '$2 == "=>" && $3 ~ /^\// {print $3}' <<<"$libraries" | sort -u |
  { grep -v -E "/$of_the_machine" || true; } |
  while read -r library; do
    if [[ $library =~ /$of_cxx ]]; then
      packed=$folder/cxx/$(basename "$library")
      rpath='$ORIGIN'
    else
      packed=$folder/$(basename "$library")
      rpath="\$ORIGIN:$of_machines:\$ORIGIN/cxx"
    fi
    install -m 644 "$library" "$packed"
    patchelf --set-rpath "$rpath" "$packed"
    # Where /lib is /usr/lib, packages may know either.
    real=$(realpath "$library")
    package=$({ dpkg -S "$real" || dpkg -S "${real#/usr}"; } 2>/dev/null | cut -d: -f1 || true)
    terms=/usr/share/doc/$package/copyright
    if [[ -n "$package" && -f "$terms" ]]; then
      install -m 644 "$terms" "$folder/licenses/$package"
    else
      echo "pack_libraries.sh: $library: its terms are not known here; add them to $folder/licenses" >&2
    fi
  done
for program in "$@"; do
  here=$(realpath -m --relative-to="$(dirname "$program")" "$folder")
  rest=$(patchelf --print-rpath "$program")
  patchelf --set-rpath "\$ORIGIN/$here${rest:+:$rest}:$of_machines:\$ORIGIN/$here/cxx" "$program"
done
for file in "$@" "$folder"/*.so*; do
  grep -s -a -o -h 'GLIBC_2\.[0-9]*' "$file" || true
done | sort -u -V | tail -1 | cut -d_ -f2

#!/usr/bin/env bash
# Copies the libraries that programs are linked with into a folder, so that machines without them can run these: all but
# the C library's, a GPU driver's and CUDA's own, which belong to the machine.
set -euo pipefail
if [[ "${1:-}" == "--help" || $# -lt 2 ]]; then
  echo "usage: deploy/pack_libraries.sh FOLDER PROGRAM..."
  [[ "${1:-}" == "--help" ]] && exit 0 || exit 2
fi
folder=$1
shift
libraries=$(ldd "$@")
if missing=$(grep -o '.* => not found' <<<"$libraries" | grep -v -E '^\s*lib(cuda|cudart|cublas|cublasLt)\.so'); then
  echo "pack_libraries.sh: not on this machine: $(awk '{print $1}' <<<"$missing" | sort -u | xargs)" >&2
  exit 1
fi
mkdir -p "$folder"
awk '$2 == "=>" && $3 ~ /^\// {print $3}' <<<"$libraries" | sort -u |
  grep -v -E '/lib(c|m|dl|rt|pthread|resolv|cuda|cudart|cublas|cublasLt)\.so' |
  while read -r library; do install -m 644 "$library" "$folder/"; done

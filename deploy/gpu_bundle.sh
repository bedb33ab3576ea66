#!/usr/bin/env bash
# Packs programs, GPU tests and benchmark into one folder, and that into one file, which run on another Linux machine
# with an NVIDIA driver, the CUDA 13 runtime with cuBLAS, and a C library that is new enough: no build tools are needed
# there.
#
# FOLDER.tar.gz is what travels, far smaller than the folder: `tar xzf FOLDER.tar.gz` there. Then FOLDER/check.sh runs
# all of it once, in ten minutes at most, and prints one table (its first lines say how to run parts of it), and
# FOLDER/run.sh COMMAND runs one program: FOLDER/run.sh tessera run deploy/jobs/digits.yaml --set cluster.device=cuda.
# What the table is short for lies in FOLDER/logs; with RESULTS=PLACE check.sh leaves both in PLACE.
set -euo pipefail
if [[ "${1:-}" == -* || $# -gt 1 ]]; then
  echo "usage: [CUDA_HOME=DIR] deploy/gpu_bundle.sh [FOLDER; default gpu_bundle, in the root of the tree]"
  [[ "${1:-}" == "--help" ]] && exit 0 || exit 2
fi
out=${1:+$(realpath -m "$1")}
cd "$(dirname "$0")/.."
out=${out:-gpu_bundle}
umask 022
deploy/bundle_folder.sh --check "$out"

programs=(//deploy/cli:tessera //server:tessera-server //worker:tessera-worker //bench/gpu:gpu)
tests=(//tests/kernels/cuda:conformance_test //tests/worker/model:device_network_test
  //tests/worker/model:device_network_half_test //tests/worker/model:device_product_step_test
  //tests/worker/replica:minibatch_steps_test
  //tests/worker/train:device_training_test //tests/kernels/cuda:planted_faults)
# Tests, too, are one file each.
bazel build --config=cuda --dynamic_mode=off "${programs[@]}" "${tests[@]}"

deploy/bundle_folder.sh --begin "$out"
part=$out.part
mkdir -p "$part/bin" "$part/lib" "$part/deploy/data"
for target in "${programs[@]}" "${tests[@]}"; do
  path=bazel-bin/${target#//}
  install -m 755 "${path/://}" "$part/bin/"
done
# The benchmark's name says nothing outside its folder.
mv "$part/bin/gpu" "$part/bin/gpu_bench"
strip --strip-debug "$part"/bin/*
cp -rL deploy/data/optdigits "$part/deploy/data/"
cp -r deploy/jobs "$part/deploy/"
find "$part" -name BUILD.bazel -delete

# The digits' training rows 64 times over: what is timed does not begin an epoch, and ask the servers for it, each
# ten steps.
repeat_rows() {  # file, bytes before the rows, bytes of a row
  local raw=$part/rows rows
  gzip -dc "deploy/data/optdigits/$1" >"$raw"
  rows=$((64 * ($(stat -c %s "$raw") - $2) / $3))
  {
    head -c 4 "$raw"
    for shift in 24 16 8 0; do printf '%b' "$(printf '\\x%02x' $((rows >> shift & 255)))"; done
    head -c "$2" "$raw" | tail -c +9
    for _ in {1..64}; do tail -c +$(($2 + 1)) "$raw"; done
  } | gzip -n >"$part/deploy/data/optdigits_64/$1"
  rm "$raw"
}
mkdir "$part/deploy/data/optdigits_64"
cp -L deploy/data/optdigits/test-* deploy/data/optdigits/ATTRIBUTION.md "$part/deploy/data/optdigits_64/"
repeat_rows train-images-idx3-ubyte.gz 16 64
repeat_rows train-labels-idx1-ubyte.gz 8 1

glibc=$(deploy/pack_libraries.sh "$part/lib" "$part"/bin/*)
install -m 755 deploy/gpu/*.sh "$part/"
deploy/bundle_folder.sh --end "$out"
echo "gpu_bundle: $out holds $(du -sh "$out" | cut -f1), $out.tar.gz $(du -sh "$out.tar.gz" | cut -f1)"
echo "gpu_bundle: it wants CUDA 13 and glibc $glibc or newer"

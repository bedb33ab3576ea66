#!/usr/bin/env bash
# Packs programs, GPU tests and benchmark into one folder, and that into one file, which run on another Linux machine
# with an NVIDIA driver, the CUDA 13 runtime with cuBLAS, and a C library no older than this machine's: no build tools
# are needed there.
#
# There: FOLDER/check.sh runs all of it once; FOLDER/run.sh COMMAND runs one program, such as
# FOLDER/run.sh tessera run jobs/digits.yaml --set cluster.device=cuda.
set -euo pipefail
cd "$(dirname "$0")/.."
if [[ "${1:-}" == "--help" || $# -gt 1 ]]; then
  echo "usage: [CUDA_HOME=DIR] deploy/gpu_bundle.sh [FOLDER; default gpu_bundle]"
  [[ "${1:-}" == "--help" ]] && exit 0 || exit 2
fi
out=${1:-gpu_bundle}
if [[ -e "$out" && ! -f "$out/check.sh" ]]; then
  echo "gpu_bundle: $out: exists and is no bundle, want another folder" >&2
  exit 2
fi

programs=(//deploy/cli:tessera //server:tessera-server //worker:tessera-worker //bench/gpu:gpu)
tests=(//tests/kernels/cuda:conformance_test //tests/worker/model:device_network_test
  //tests/worker/train:device_training_test)
# Tests, too, are one file each.
bazel build --config=cuda --dynamic_mode=off "${programs[@]}" "${tests[@]}"

rm -rf "$out"
mkdir -p "$out/bin" "$out/lib" "$out/deploy/data"
for target in "${programs[@]}" "${tests[@]}"; do
  path=bazel-bin/${target#//}
  install -m 755 "${path/://}" "$out/bin/"
done
# The benchmark's name says nothing outside its folder.
mv "$out/bin/gpu" "$out/bin/gpu_bench"
strip --strip-debug "$out"/bin/*
cp -rL deploy/data/optdigits "$out/deploy/data/"
cp -r deploy/jobs "$out/deploy/"
# All libraries but the C library's, the driver's and CUDA's own.
ldd "$out"/bin/* | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
  grep -v -E '/(libc|libm|libdl|librt|libpthread|libresolv|libcuda|libcudart|libcublas|libcublasLt)\.so' |
  while read -r library; do install -m 644 "$library" "$out/lib/"; done

cat >"$out/run.sh" <<'END'
#!/usr/bin/env bash
# Runs a program of this bundle: run.sh COMMAND [ARGUMENT]...  CUDA_HOME says where CUDA is, where it is elsewhere.
here=$(cd "$(dirname "$0")" && pwd)
export LD_LIBRARY_PATH="$here/lib:${CUDA_HOME:-/usr/local/cuda}/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export PATH="$here/bin:$PATH"
exec "$@"
END
cat >"$out/check.sh" <<'END'
#!/usr/bin/env bash
# Runs the GPU tests, under compute-sanitizer as well where there is one, then the benchmark and a few jobs.
# check.sh [--quick]: without sanitizer and benchmark. The last line is `N passed, N failed`.
# Each gets STEP_LIMIT seconds, 600 by default.
cd "$(dirname "$0")" || exit 1
quick=${1:-}
passed=0 failed=0
step() {  # name, command...
  local name=$1
  shift
  echo "== $name"
  if timeout "${STEP_LIMIT:-600}" "$@"; then passed=$((passed + 1)); else
    failed=$((failed + 1))
    echo "FAILED: $name"
  fi
}
command -v nvidia-smi >/dev/null && nvidia-smi -L || { echo "excluded: everything (no NVIDIA driver here)"; exit 1; }
for test in conformance_test device_network_test device_training_test; do step "$test" ./run.sh "$test"; done
if [[ "$quick" != "--quick" ]]; then
  if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck; do
      step "$tool" ./run.sh compute-sanitizer --tool "$tool" --error-exitcode 3 bin/device_network_test
      step "$tool, kernels" ./run.sh compute-sanitizer --tool "$tool" --error-exitcode 3 bin/conformance_test \
        '~[optimizer]~[sparse_linear]'
    done
  else
    echo "excluded: memcheck, racecheck (no compute-sanitizer here)"
  fi
  step "benchmark" ./run.sh gpu_bench
fi
hidden='linear: {units: 4096, bias: false}, batch_norm: {}, relu: {}'
wide="model.layers=[$hidden, $hidden, linear: {units: 10, bias: false}, batch_norm: {affine: false}]"
reports=()
for workers in 1 4; do
  for method in 'data_parallel: {}' 'local_sgd: {local_steps: 2}' 'ist: {local_steps: 20}'; do
    name=${method%%:*}_$workers
    step "job $name" ./run.sh tessera run deploy/jobs/digits.yaml --quiet --report "$name.json" \
      --set cluster.device=cuda --set cluster.workers="$workers" --set "method={$method}" --set "$wide" \
      --set 'train.optimizer={sgd: {learning_rate: 0.01}}' --set train.precision=bf16 \
      --set train.batch_size=128 --set train.epochs=5 --set train.evaluate_every=0
    reports+=("$name=$name.json")
  done
done
step "jobs" ./run.sh gpu_bench --reports "$(IFS=,; echo "${reports[*]}")"
echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
END
chmod +x "$out/run.sh" "$out/check.sh"
tar -C "$(dirname "$out")" -czf "$out.tar.gz" "$(basename "$out")"
glibc=$(ldd --version | head -1 | grep -oE '[0-9.]+$')
echo "gpu_bundle: $out holds $(du -sh "$out" | cut -f1), $out.tar.gz $(du -sh "$out.tar.gz" | cut -f1)"
echo "gpu_bundle: it wants CUDA 13 and glibc $glibc or newer"

#!/usr/bin/env bash
# Packs programs, GPU tests and benchmark into one folder, and that into one file, which run on another Linux machine
# with an NVIDIA driver, the CUDA 13 runtime with cuBLAS, and a C library no older than this machine's: no build tools
# are needed there.
#
# There: FOLDER/check.sh runs all of it once, in ten minutes at most, and prints one table; FOLDER/run.sh COMMAND
# runs one program, such as FOLDER/run.sh tessera run deploy/jobs/digits.yaml --set cluster.device=cuda.
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
  //tests/worker/replica:minibatch_steps_test //tests/worker/train:device_training_test)
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
# Runs a program of this bundle: run.sh COMMAND [ARGUMENT]...
# CUDA's runtime and cuBLAS are taken from CUDA_HOME, the loader's own folders, /usr/local/cuda* or Python's packages.
here=$(cd "$(dirname "$0")" && pwd)
folders=$here/lib
for root in ${CUDA_HOME:-} /usr/local/cuda /usr/local/cuda-13*; do
  [[ -e "$root/lib64/libcublas.so.13" ]] && folders+=:$root/lib64
done
if [[ "$folders" == "$here/lib" ]] && ! ldconfig -p 2>/dev/null | grep -q 'libcublas\.so\.13'; then
  for library in /usr/lib/python3*/*-packages /usr/local/lib/python3*/*-packages /opt/*/lib/python3*/site-packages; do
    for found in "$library"/nvidia/*/lib/libcublas.so.13 "$library"/nvidia/*/lib/libcudart.so.13; do
      [[ -e "$found" ]] && folders+=:$(dirname "$found")
    done
  done
fi
export LD_LIBRARY_PATH="$folders${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export PATH="$here/bin:$PATH"
exec "$@"
END
cat >"$out/check.sh" <<'END'
#!/usr/bin/env bash
# All that can be said of this machine's GPU, in one table: the tests, the tests under compute-sanitizer, the
# benchmark with its aims, whole jobs on the GPU and the same on the CPU.
#
#   check.sh [--quick]   without sanitizer and benchmark
#
# One part that fails, or takes too long, stops no other. All of it takes SECONDS_MAX at most, 570 by default:
# what is left then is left out, and the table says so. Logs are in logs/, the table in logs/table.txt; the last
# line is `N passed, N failed, N left out`.
cd "$(dirname "$0")" || exit 1
here=$PWD
quick=${1:-}
end=$((SECONDS + ${SECONDS_MAX:-570}))
rm -rf logs
mkdir -p logs
table=logs/table.txt
passed=0 failed=0 left_out=0
say() { printf '%-34s %-9s %6s  %s\n' "$@" | tee -a "$table"; }
leave_out() {  # name, why
  left_out=$((left_out + 1))
  say "$1" "left out" "" "$2"
}
# step NAME LIMIT NOTE COMMAND...: NOTE is an expression of awk over the log whose output goes into the table.
step() {
  local name=$1 limit=$2 note=$3 log=logs/${1//[^a-z0-9_]/_}.log begin=$SECONDS rc=0
  shift 3
  if ((end - SECONDS < 10)); then
    leave_out "$name" "no time is left"
    return 1
  fi
  ((limit > end - SECONDS)) && limit=$((end - SECONDS))
  # In braces: what bash says of one that had to be killed goes into the log, not into the table.
  { timeout -k 5 "$limit" "$@"; } >"$log" 2>&1 || rc=$?
  note=$(awk "$note" "$log" 2>/dev/null | tail -1)
  if [[ $rc -eq 0 ]]; then
    passed=$((passed + 1))
    say "$name" ok $((SECONDS - begin)) "$note"
    return 0
  fi
  failed=$((failed + 1))
  note="exit code $rc: $(tail -1 "$log" | cut -c1-90)"
  [[ $rc -eq 124 || $rc -eq 137 ]] && note="not done after $limit s"
  say "$name" FAILED $((SECONDS - begin)) "$note"
  return 1
}
finish() {
  # Figures that the table refers to.
  for log in logs/benchmark.log logs/jobs.log; do [[ -s $log ]] && { echo; cat "$log"; } | tee -a "$table"; done
  echo
  echo "$passed passed, $failed failed, $left_out left out" | tee -a "$table"
  [[ $failed -eq 0 && $passed -gt 0 ]]
  exit
}
tests='/test cases|passed|failed/ {line = $0} END {print line}'
nvidia-smi -L 2>/dev/null | tee -a "$table"
say part result seconds note
command -v nvidia-smi >/dev/null || { leave_out "everything" "no NVIDIA driver here"; finish; }
if ./run.sh ldd bin/gpu_bench | grep 'not found' >logs/libraries.log; then
  leave_out "everything" "missing:$(awk '{printf " %s", $1}' logs/libraries.log); say where CUDA 13 is with CUDA_HOME"
  finish
fi

step "battery" 120 "$tests" ./run.sh conformance_test
step "networks" 60 "$tests" ./run.sh device_network_test
step "pieces of minibatches" 60 "$tests" ./run.sh minibatch_steps_test
# Among others: losses of 50 steps within 1e-3 of the CPU's, subnets and traffic the same.
step "training" 120 "$tests" ./run.sh device_training_test

# A job small enough for the CPU, on both: 50 steps in f32.
job() {  # name, limit, overrides...
  local name=$1 limit=$2
  shift 2
  step "job $name" "$limit" '/never/' ./run.sh tessera run deploy/jobs/digits.yaml --quiet \
    --report "$here/logs/$name.json" "$@"
}
small=(--set cluster.workers=2
  --set 'model.layers=[linear: {units: 512, bias: false}, batch_norm: {}, relu: {}, linear: {units: 10}]'
  --set 'train={batch_size: 32, steps: 50, evaluate_every: 0, optimizer: {sgd: {learning_rate: 0.01}}}')
for method in 'data_parallel: {}' 'local_sgd: {local_steps: 5}' 'diloco: {local_steps: 5, overlap: true}' \
  'quant_dp: {}' 'ist: {local_steps: 5}' 'slim_dp: {alpha: 0.3, beta: 0.15, core_every: 10}'; do
  name=${method%%:*}
  job "${name}_on_cpu" 30 "${small[@]}" --set "method={$method}" &&
    job "${name}_on_cuda" 30 "${small[@]}" --set "method={$method}" --set cluster.device=cuda &&
    step "$name as on the CPU" 10 '/train_loss/ {print "train_loss " $2 " and " $3}' \
      ./run.sh gpu_bench --same "logs/${name}_on_cpu.json,logs/${name}_on_cuda.json"
done

aims='/ met$/ {met++} / MISSED$/ {missed++} END {print met + 0 " aims met, " missed + 0 " missed"}'
if [[ "$quick" != "--quick" ]]; then
  step "benchmark" 150 "$aims" ./run.sh gpu_bench --seconds 0.25
fi

hidden='linear: {units: 4096, bias: false}, batch_norm: {}, relu: {}'
wide="model.layers=[$hidden, $hidden, linear: {units: 10, bias: false}, batch_norm: {affine: false}]"
reports=()
large() {  # name, workers, precision, method
  job "$1" 45 --set cluster.device=cuda --set cluster.workers="$2" --set train.precision="$3" --set "method={$4}" \
    --set "$wide" --set 'train.optimizer={sgd: {learning_rate: 0.01}}' --set train.batch_size=128 \
    --set train.epochs=10 --set train.evaluate_every=0 && reports+=("$1=logs/$1.json")
}
for precision in f32 tf32 bf16; do large "local_sgd_$precision" 1 "$precision" 'local_sgd: {local_steps: 20}'; done
# The aim: less than a tenth of the time is waited, with an exchange every two steps. All of this model goes up and
# down then; where GB/s comes near the link's own rate it is the link that is waited for.
large in_turn 1 bf16 'local_sgd: {local_steps: 2}'
large overlap 1 bf16 'local_sgd: {local_steps: 2, overlap: true}'
for workers in 1 4; do
  large "data_parallel_$workers" "$workers" bf16 'data_parallel: {}'
  large "quant_dp_$workers" "$workers" bf16 'quant_dp: {}'
  large "ist_$workers" "$workers" bf16 'ist: {local_steps: 20}'
done
((${#reports[@]} > 0)) && step "jobs" 10 "$aims" ./run.sh gpu_bench --reports "$(IFS=,; echo "${reports[*]}")"

if [[ "$quick" != "--quick" ]]; then
  sanitizer=
  for path in "$(command -v compute-sanitizer)" "${CUDA_HOME:-/usr/local/cuda}"/bin/compute-sanitizer \
    "${CUDA_HOME:-/usr/local/cuda}"/compute-sanitizer/compute-sanitizer /usr/local/cuda-*/bin/compute-sanitizer \
    /usr/local/cuda-*/compute-sanitizer/compute-sanitizer; do
    [[ -z "$sanitizer" && -x "$path" ]] && sanitizer=$path
  done
  errors='/ERROR SUMMARY/ {line = $0} END {print line}'
  for tool in memcheck racecheck; do
    if [[ -z "$sanitizer" ]]; then
      leave_out "$tool" "no compute-sanitizer here"
      continue
    fi
    # The long ones of the battery are about arithmetic, not about memory.
    step "$tool, kernels" 90 "$errors" ./run.sh "$sanitizer" --tool "$tool" --error-exitcode 3 bin/conformance_test \
      '~[optimizer]~[sparse_linear]~[bf16]'
    step "$tool, networks" 60 "$errors" ./run.sh "$sanitizer" --tool "$tool" --error-exitcode 3 bin/device_network_test
  done
fi
finish
END
chmod +x "$out/run.sh" "$out/check.sh"
tar -C "$(dirname "$out")" -czf "$out.tar.gz" "$(basename "$out")"
glibc=$(ldd --version | sed -n '1s/.* //p')
echo "gpu_bundle: $out holds $(du -sh "$out" | cut -f1), $out.tar.gz $(du -sh "$out.tar.gz" | cut -f1)"
echo "gpu_bundle: it wants CUDA 13 and glibc $glibc or newer"

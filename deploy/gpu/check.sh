#!/usr/bin/env bash
# All that can be said of this machine's GPU, in one table: the tests, the benchmark with its aims, the same jobs on
# the GPU and the CPU, large jobs, and kernels under compute-sanitizer.
#
#   check.sh [--quick]      without benchmark and sanitizer
#   check.sh --only PARTS   of tests, benchmark, jobs, large, sanitizer, with commas between
#   check.sh --tiny         small sizes everywhere, to try this script itself
#
# The sanitizer has what time the others leave. So that it has all of it, on a machine that is lent by ten minutes:
#
#   RESULTS=FOLDER check.sh --only tests,benchmark,jobs,large
#   RESULTS=FOLDER check.sh --only sanitizer
#
# One part that fails, or takes too long, stops no other. All of it takes SECONDS_MAX at most, 540 by default:
# what is left then is left out, and the table says so. Once one has hung the next ones have 25 s each, but for the
# benchmark; its time and that of the large jobs is kept for them. Behind the table come the benchmark's and the jobs'
# figures, and what the logs of failed parts say: less than 12,000 characters for each of the two calls above. The last
# line is `N passed, N failed, N left out`.
#
# Logs are in logs/, a job's servers' and workers' in logs/NAME.d, the table in logs/table.txt. Those of an earlier run
# are renamed to logs.1, or the next number that is free. Where RESULTS names a folder, table.txt there follows the
# table, and logs.tgz, which is logs/, is made anew after the battery, the benchmark, the jobs, and at the end.
#
# 0: no part failed, and one passed. That is not that all aims are met: the table says which are. SIGINT and SIGTERM end
# the part that runs, and what was found by then is told: 130 and 143. 2: wrong arguments, or nowhere to write to.
results=${RESULTS:+$(realpath -m "$RESULTS")}
cd "$(dirname "$0")" || exit 1
here=$PWD
parts=tests,benchmark,jobs,large,sanitizer
chosen='' quick='' tiny=''
usage="usage: [SECONDS_MAX=N] [RESULTS=FOLDER] check.sh [--quick] [--only PART,...] [--tiny]; parts: $parts"
refuse() { echo "$usage" >&2; exit 2; }
while (($# > 0)); do
  case $1 in
    --quick) quick=yes ;;
    --tiny) tiny=yes ;;
    --only)
      [[ -n "${2//,/}" ]] || refuse
      for part in ${2//,/ }; do [[ ",$parts," == *",$part,"* ]] || refuse; done
      chosen+=,$2
      shift
      ;;
    --help) echo "$usage"; exit 0 ;;
    *) refuse ;;
  esac
  shift
done
wants() { [[ ",${chosen:-$parts}," == *",$1,"* && ! ( -n "$quick" && "$1" =~ ^(benchmark|sanitizer)$ ) ]]; }
seconds_max=${SECONDS_MAX:-540}
end=$((SECONDS + seconds_max))
. ./steps.sh || exit 2
. ./sanitizer.sh || exit 2

has_driver() {
  command -v nvidia-smi >/dev/null && return
  PATH="$PATH:/sbin:/usr/sbin" ldconfig -p 2>/dev/null | grep -q 'libcuda\.so\.1' && return
  local folder
  for folder in /usr/local/nvidia/lib64 ${LD_LIBRARY_PATH//:/ }; do [[ -e "$folder/libcuda.so.1" ]] && return; done
  return 1
}
ask_gpu() {  # what of it
  command -v nvidia-smi >/dev/null && timeout -k 1 20 nvidia-smi --format=csv,noheader --query-gpu="$1" 2>&1
}
# Without these the benchmark's rates cannot be told from those of a GPU that is hot or held back.
clocks=clocks.sm,clocks.max.sm,clocks.mem,power.draw,power.limit,temperature.gpu
note_clocks() {  # when; reads them
  sed "s/^/sm, max sm, memory clock, power, limit, temperature $1: /" | tee -a "$table"
}
tests='/test cases|passed|failed/ {line = $0} END {print line}'
ask_gpu name,driver_version,memory.total | tee -a "$table"
say part result seconds note
has_driver || { leave_out "everything" "no NVIDIA driver here: no nvidia-smi, and no libcuda.so.1"; finish; }
TESSERA_LIBRARY_PATH=$(unset TESSERA_LIBRARY_PATH; ./run.sh printenv LD_LIBRARY_PATH)
export TESSERA_LIBRARY_PATH
if ./run.sh ldd bin/* 2>&1 | grep 'not found' >logs/libraries.log; then
  # A library, or a version of the C library.
  missing=$(sed -E "s/.*version .([^ ']+)' not found.*/\1/; s/[[:space:]]*([^ ]+) => not found.*/\1/" \
    logs/libraries.log | sort -u)
  hint="say where CUDA 13 is with CUDA_HOME"
  [[ "$missing" == *GLIBC* ]] && hint="this machine's C or C++ library is too old for these programs"
  leave_out "everything" "missing: ${missing//$'\n'/ }; $hint"
  finish
fi

# The large jobs take their share of 540 s; what comes before has the rest.
large_wants=0
wants large && large_wants=$((130 * seconds_max / 540))
kept=$large_wants
wants benchmark && kept=$((kept + 90 * seconds_max / 540))
# After an error CUDA refuses all further work of a process, so that every later case fails: in processes of their own
# the others say what they have to say, and a kernel that is waited for is named.
battery_by_tags() {
  local tag
  export CUDA_LAUNCH_BLOCKING=1
  for tag in "${battery_tags[@]}"; do
    step "battery, $tag" 30 "$tests" ./run.sh conformance_test --durations yes "[$tag]~[bf16]"
  done
  for tag in "${battery_last_tags[@]}"; do
    step "battery, $tag" 30 "$tests" ./run.sh conformance_test --durations yes "[$tag]"
  done
  unset CUDA_LAUNCH_BLOCKING
}
if wants tests; then
  step "battery" 240 "$tests" ./run.sh conformance_test --durations yes ||
    { grep -q 'cuda:[0-9]*: ' "$(log_of battery)" && battery_by_tags; }
  keep_results
fi

kept=$large_wants
aims='/ met$/ {met++} / MISSED$/ {missed++} /^WRONG: / {wrong++} /of the last copy .*MISSED$/ {met--}
  END {print met + 0 " aims met, " missed + 0 " missed" (wrong ? ", " wrong " results wrong" : "")}'
if wants benchmark; then
  ask_gpu "$clocks" | note_clocks before
  # In processes of their own: after an error CUDA refuses all further work of one.
  for part in kernels steps; do
    timeout -k 1 100 nvidia-smi --format=csv,noheader --query-gpu="$clocks" -l 5 >"logs/clocks_$part.log" 2>&1 &
    sampled=$!
    # shellcheck disable=SC2086
    uncapped=yes step "benchmark, $part" 100 "$aims" ./run.sh gpu_bench --part $part --seconds 0.25 ${tiny:+--tiny}
    kill "$sampled" 2>/dev/null
    # Where it had most to do.
    sort -t, -k4 -rn "logs/clocks_$part.log" | head -1 | note_clocks "in $part"
  done
  ask_gpu "$clocks" | note_clocks after
  keep_results
fi

if wants tests; then
  step "networks" 60 "$tests" ./run.sh device_network_test --durations yes
  step "halves of networks" 60 "$tests" ./run.sh device_network_half_test --durations yes
  step "steps by product" 60 "$tests" ./run.sh device_product_step_test --durations yes
  step "pieces of minibatches" 60 "$tests" ./run.sh minibatch_steps_test --durations yes
  # Among others: losses of 50 steps within 1e-3 of the CPU's, subnets and traffic the same.
  step "training" 120 "$tests" ./run.sh device_training_test --durations yes
fi

job() {  # name, limit, overrides...
  local name=$1 limit=$2
  shift 2
  step "job $name" "$limit" '/never/' ./run.sh tessera run deploy/jobs/digits.yaml --quiet \
    --report "$here/logs/$name.json" --logs "$here/logs/$name.d" "$@"
}
same() {  # a job on the CPU, one on the GPU, of which each may have failed
  local name="${2%_on_cuda} as on the CPU" missing=
  [[ -s "logs/$2.json" ]] || missing=$2
  [[ -s "logs/$1.json" ]] || missing=$1
  if [[ -n "$missing" ]]; then
    leave_out "$name" "job $missing has no report"
  else
    step "$name" 10 '/^largest/ {print}' ./run.sh gpu_bench --same "logs/$1.json,logs/$2.json"
  fi
}
optimizer='optimizer: {sgd: {learning_rate: 0.01}}'
# A job small enough for the CPU, on both: 50 steps in f32, and losses after each of five epochs.
small=(--set cluster.workers=2
  --set 'model.layers=[linear: {units: 512, bias: false}, batch_norm: {}, relu: {}, linear: {units: 10}]'
  --set "train={batch_size: 64, steps: 50, evaluate_every: 1, $optimizer}")
if wants jobs; then
  for method in 'data_parallel: {}' 'local_sgd: {local_steps: 5}' 'diloco: {local_steps: 5, overlap: true}' \
    'quant_dp: {}' 'ist: {local_steps: 5}' 'slim_dp: {alpha: 0.3, beta: 0.15, core_every: 10}'; do
    name=${method%%:*}
    job "${name}_on_cpu" 30 "${small[@]}" --set "method={$method}"
    job "${name}_on_cuda" 30 "${small[@]}" --set "method={$method}" --set cluster.device=cuda
    same "${name}_on_cpu" "${name}_on_cuda"
  done
  # Convolutions, which are products in f32; and in tf32, where the second layer's are cuDNN's if it is found.
  images=("${small[@]}" --set model.input=[1,8,8] --set 'method={local_sgd: {local_steps: 5}}' --set 'model.layers=[
    conv2d: {channels: 32, kernel: 3, padding: 1}, batch_norm: {}, relu: {}, max_pool: {kernel: 2},
    conv2d: {channels: 32, kernel: 3, padding: 1}, relu: {}, linear: {units: 10}]')
  job images_on_cpu 30 "${images[@]}"
  job images_on_cuda 30 "${images[@]}" --set cluster.device=cuda
  same images_on_cpu images_on_cuda
  for cudnn in true false; do
    job "images_tf32_cudnn_$cudnn" 60 "${images[@]}" --set train.precision=tf32 --set cluster.device=cuda \
      --set cluster.cudnn=$cudnn
  done
  keep_results
fi

kept=0
units=4096
[[ -n "$tiny" ]] && units=64
hidden="linear: {units: $units, bias: false}, batch_norm: {}, relu: {}"
wide="model.layers=[$hidden, $hidden, linear: {units: 10, bias: false}, batch_norm: {affine: false}]"
reports=()
large() {  # name, workers, precision, steps, method
  local steps=$4
  [[ -n "$tiny" ]] && steps=$((steps / 40))
  job "$1" 45 --set cluster.device=cuda --set cluster.workers="$2" --set "method={$5}" --set "$wide" \
    --set data.directory=../data/optdigits_64 \
    --set "train={batch_size: 128, steps: $steps, evaluate_every: 0, $optimizer, precision: $3}" &&
    reports+=("$1=logs/$1.json")
}
large_jobs() {
  local precision local_steps workers
  # Long enough that what comes first, such as loading cuBLAS and recording the steps as graphs, is a small part of
  # examples/s. Where steps are what a job waits for that is thousands of them, where it is exchanges it is seconds.
  for precision in f32 tf32 bf16; do
    large "local_sgd_$precision" 1 "$precision" 5000 'local_sgd: {local_steps: 500}'
  done
  # The aim: less than a tenth of the time is waited, with an exchange every two steps. All of this model, 68 MB, goes
  # up and down then, which should take a hundred times longer than two steps: whatever overlaps, the rest is waited,
  # and `at best` says how much. Larger networks of linear layers have no better chance, as steps and exchange grow
  # alike. The others show from how many local steps on the aim is reached; they are long, as the last exchange of a
  # job overlaps with nothing. What one step computes is the difference of two of them.
  large in_turn_2 1 bf16 200 'local_sgd: {local_steps: 2}'
  large overlap_2 1 bf16 200 'local_sgd: {local_steps: 2, overlap: true}'
  for local_steps in 200 500 2000; do
    large "overlap_$local_steps" 1 bf16 $((local_steps < 2000 ? 10000 : 20000)) \
      "local_sgd: {local_steps: $local_steps, overlap: true}"
  done
  for workers in 1 4; do
    large "data_parallel_$workers" "$workers" bf16 $((160 / workers)) 'data_parallel: {}'
    large "quant_dp_$workers" "$workers" bf16 $((240 / workers)) 'quant_dp: {}'
    large "ist_$workers" "$workers" bf16 4000 'ist: {local_steps: 20}'
  done
}
if wants large; then
  large_jobs
  if ((${#reports[@]} > 0)); then
    # There is always time for what was found.
    at_end=$end end=$((SECONDS + 15))
    step "jobs" 10 "$aims" ./run.sh gpu_bench --reports "$(IFS=,; echo "${reports[*]}")"
    end=$at_end
  fi
  keep_results
fi

wants sanitizer && sanitize
finish

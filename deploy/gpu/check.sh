#!/usr/bin/env bash
# All that can be said of this machine's GPU, in one table: the tests, the same jobs on the GPU and the CPU, the
# benchmark with its aims, large jobs, and kernels under compute-sanitizer.
#
#   check.sh [--quick]   without sanitizer and benchmark
#   check.sh --tiny      small sizes everywhere, to try this script itself
#
# One part that fails, or takes too long, stops no other. All of it takes SECONDS_MAX at most, 540 by default:
# what is left then is left out, and the table says so. Behind the table come the benchmark's and the jobs' figures,
# and what the logs of failed parts say, altogether less than 12,000 characters; the last line is `N passed, N failed,
# N left out`. Logs are in logs/, the table in logs/table.txt: `tar czf FILE logs` brings them home. Those of an
# earlier run are renamed to logs.1, or the next number that is free. SIGINT and SIGTERM end the part that runs, and
# what was found by then is told: exit codes 130 and 143.
cd "$(dirname "$0")" || exit 1
here=$PWD
quick='' tiny=''
usage="usage: [SECONDS_MAX=N] check.sh [--quick] [--tiny]"
for option in "$@"; do
  case $option in
    --quick) quick=yes ;;
    --tiny) tiny=yes ;;
    --help) echo "$usage"; exit 0 ;;
    *) echo "$usage" >&2; exit 2 ;;
  esac
done
end=$((SECONDS + ${SECONDS_MAX:-540}))
if [[ -e logs ]]; then
  number=1
  while [[ -e "logs.$number" ]]; do number=$((number + 1)); done
  mv logs "logs.$number" 2>/dev/null
fi
if ! mkdir logs 2>/dev/null; then
  echo "check.sh: $here: cannot make logs/ here, want a copy of this folder that may be written to" >&2
  exit 2
fi
table=logs/table.txt
passed=0 failed=0 left_out=0
failures=()  # names
say() { printf '%-34s %-9s %6s  %s\n' "$@" | tee -a "$table"; }
log_of() { echo "logs/${1//[^a-z0-9_]/_}.log"; }
leave_out() {  # name, why
  left_out=$((left_out + 1))
  say "$1" "left out" "" "$2"
}
# A part is a process group of its own, which a terminal's Ctrl-C does not reach: it is told here. A command that is
# waited for in the foreground would hold the trap up until it ends.
interrupted=  # the exit code then
running=
interrupt() {
  interrupted=$1
  [[ -z "$running" ]] || kill "$running" 2>/dev/null
}
trap 'interrupt 130' INT
trap 'interrupt 143' TERM
limited() {  # seconds, command...: the command's exit code, or timeout's
  local rc
  timeout -k 5 "$@" </dev/null &
  running=$!
  [[ -z "$interrupted" ]] || kill "$running"
  wait "$running"
  rc=$?
  # A wait that a signal has ended is followed by another one.
  while [[ -n "$interrupted" ]] && kill -0 "$running" 2>/dev/null; do wait "$running"; done
  running=
  return $rc
}
# step NAME LIMIT NOTE COMMAND...: NOTE is an expression of awk over the log whose output goes into the table. With
# slow=yes one that takes too long is left out.
slow=
step() {
  local name=$1 limit=$2 wanted=$2 note=$3 log begin=$SECONDS rc=0
  log=$(log_of "$name")
  shift 3
  [[ -z "$interrupted" ]] || finish_interrupted "$name"
  if ((end - SECONDS < 10)); then
    leave_out "$name" "no time is left"
    return 1
  fi
  ((limit > end - SECONDS)) && limit=$((end - SECONDS))
  # In braces: what bash says of one that had to be killed goes into the log, not into the table.
  { limited "$limit" "$@"; } >"$log" 2>&1 || rc=$?
  [[ -z "$interrupted" ]] || finish_interrupted "$name"
  if [[ $rc -eq 0 ]]; then
    passed=$((passed + 1))
    say "$name" ok $((SECONDS - begin)) "$(awk "$note" "$log" 2>/dev/null | tail -1)"
    return 0
  fi
  if [[ $rc -eq 124 || $rc -eq 137 ]]; then
    if [[ $limit -lt $wanted ]]; then
      leave_out "$name" "not done in the last $limit s, may take $wanted"
      return 1
    elif [[ -n "$slow" ]] && ! grep -q -E '^=+ +(Invalid|Error|Race|Potential)' "$log"; then
      leave_out "$name" "found nothing in $limit s, and was not done"
      return 1
    fi
  fi
  failed=$((failed + 1))
  failures+=("$name")
  note="exit code $rc: $(told "$log" | tail -1 | cut -c1-90)"
  [[ $rc -eq 124 || $rc -eq 137 ]] && note="not done after $limit s"
  say "$name" FAILED $((SECONDS - begin)) "$note"
  return 1
}
# A log without blank lines, rulers and what a job always says.
told() { grep -v -E '^[-=.~[:space:]]*$|^tessera: logs are in' "$1"; }
# What a log says of a failure: the lines that name it and a few around each, else its end.
reason() {
  local lines
  lines=$(told "$1" | grep -i -E -B 2 -A 4 --no-group-separator \
    'failed:|error|expansion|invalid|hazard|fault|abort|terminate' | head -25)
  [[ -n "$lines" ]] || lines=$(told "$1" | tail -8)
  cut -c1-160 <<<"$lines"
}
finish() {
  local log name last why room share left=$failed
  local -A seen
  # Figures that the table refers to.
  for log in logs/benchmark.log logs/jobs.log; do [[ -s $log ]] && { echo; cat "$log"; } | tee -a "$table"; done
  # Whoever runs this may be shown the last 12,000 characters alone. Those of the first parts say most.
  room=$((11200 - $(wc -c <"$table")))
  for name in "${failures[@]}"; do
    log=$(log_of "$name") last=$(told "$log" | tail -1)
    share=$((room / left > 800 ? room / left : 800))
    ((share > room)) && share=$room
    if ((share < 200)); then
      printf '\nand %s more, in logs/\n' "$left"
      break
    fi
    if [[ -n "$last" && -n "${seen["$last"]}" ]]; then
      why=$(printf '\n%s: as %s' "$name" "${seen["$last"]}")
    else
      why=$(printf '\n%s: %s\n%s' "$name" "$log" "$(reason "$log")")
    fi
    [[ -n "$last" ]] && : "${seen["$last"]:=$name}"
    why=${why:0:share}
    printf '%s\n' "$why"
    room=$((room - ${#why} - 1)) left=$((left - 1))
  done
  echo
  echo "$passed passed, $failed failed, $left_out left out" | tee -a "$table"
  [[ -z "$interrupted" ]] || exit "$interrupted"
  [[ $failed -eq 0 && $passed -gt 0 ]]
  exit
}
finish_interrupted() {  # name of the part that is not done
  leave_out "$1" "interrupted, and so is all that would follow"
  finish
}
has_driver() {
  command -v nvidia-smi >/dev/null && return
  PATH="$PATH:/sbin:/usr/sbin" ldconfig -p 2>/dev/null | grep -q 'libcuda\.so\.1' && return
  local folder
  for folder in /usr/local/nvidia/lib64 ${LD_LIBRARY_PATH//:/ }; do [[ -e "$folder/libcuda.so.1" ]] && return; done
  return 1
}
tests='/test cases|passed|failed/ {line = $0} END {print line}'
command -v nvidia-smi >/dev/null &&
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>&1 | tee -a "$table"
say part result seconds note
has_driver || { leave_out "everything" "no NVIDIA driver here: no nvidia-smi, and no libcuda.so.1"; finish; }
if ./run.sh ldd bin/* 2>&1 | grep 'not found' >logs/libraries.log; then
  # A library, or a version of the C library.
  missing=$(sed -E "s/.*version .([^ ']+)' not found.*/\1/; s/[[:space:]]*([^ ]+) => not found.*/\1/" \
    logs/libraries.log | sort -u)
  hint="say where CUDA 13 is with CUDA_HOME"
  [[ "$missing" == *GLIBC* ]] && hint="this machine's C or C++ library is too old for these programs"
  leave_out "everything" "missing: ${missing//$'\n'/ }; $hint"
  finish
fi

step "battery" 240 "$tests" ./run.sh conformance_test
step "networks" 60 "$tests" ./run.sh device_network_test
step "halves of networks" 60 "$tests" ./run.sh device_network_half_test
step "pieces of minibatches" 60 "$tests" ./run.sh minibatch_steps_test
# Among others: losses of 50 steps within 1e-3 of the CPU's, subnets and traffic the same.
step "training" 120 "$tests" ./run.sh device_training_test

job() {  # name, limit, overrides...
  local name=$1 limit=$2
  shift 2
  step "job $name" "$limit" '/never/' ./run.sh tessera run deploy/jobs/digits.yaml --quiet \
    --report "$here/logs/$name.json" "$@"
}
plain='evaluate_every: 0, optimizer: {sgd: {learning_rate: 0.01}}'
# A job small enough for the CPU, on both: 50 steps in f32.
small=(--set cluster.workers=2
  --set 'model.layers=[linear: {units: 512, bias: false}, batch_norm: {}, relu: {}, linear: {units: 10}]'
  --set "train={batch_size: 32, steps: 50, $plain}")
for method in 'data_parallel: {}' 'local_sgd: {local_steps: 5}' 'diloco: {local_steps: 5, overlap: true}' \
  'quant_dp: {}' 'ist: {local_steps: 5}' 'slim_dp: {alpha: 0.3, beta: 0.15, core_every: 10}'; do
  name=${method%%:*}
  job "${name}_on_cpu" 30 "${small[@]}" --set "method={$method}" &&
    job "${name}_on_cuda" 30 "${small[@]}" --set "method={$method}" --set cluster.device=cuda &&
    step "$name as on the CPU" 10 '/train_loss/ {print "train_loss " $2 " and " $3}' \
      ./run.sh gpu_bench --same "logs/${name}_on_cpu.json,logs/${name}_on_cuda.json"
done
# Convolutions, by cuDNN where it is found and without it. The log of a job on a GPU says which it was.
images=("${small[@]}" --set model.input=[1,8,8] --set 'method={local_sgd: {local_steps: 5}}' --set 'model.layers=[
  conv2d: {channels: 16, kernel: 3, padding: 1}, batch_norm: {}, relu: {}, max_pool: {kernel: 2},
  conv2d: {channels: 32, kernel: 3, padding: 1}, relu: {}, linear: {units: 10}]')
if job images_on_cpu 30 "${images[@]}"; then
  for cudnn in true false; do
    name=images_with_cudnn_$cudnn
    job "$name" 60 "${images[@]}" --set cluster.device=cuda --set cluster.cudnn=$cudnn &&
      step "$name as on the CPU" 10 '/train_loss/ {print "train_loss " $2 " and " $3}' \
        ./run.sh gpu_bench --same "logs/images_on_cpu.json,logs/$name.json"
  done
fi

aims='/ met$/ {met++} / MISSED$/ {missed++} END {print met + 0 " aims met, " missed + 0 " missed"}'
if [[ -z "$quick" ]]; then
  # shellcheck disable=SC2086
  step "benchmark" 150 "$aims" ./run.sh gpu_bench --seconds 0.25 ${tiny:+--tiny}
fi

units=4096
[[ -n "$tiny" ]] && units=64
hidden="linear: {units: $units, bias: false}, batch_norm: {}, relu: {}"
wide="model.layers=[$hidden, $hidden, linear: {units: 10, bias: false}, batch_norm: {affine: false}]"
reports=()
large() {  # name, workers, precision, steps, method
  local steps=$4
  [[ -n "$tiny" ]] && steps=$((steps / 50))
  job "$1" 45 --set cluster.device=cuda --set cluster.workers="$2" --set "method={$5}" --set "$wide" \
    --set data.directory=../data/optdigits_64 --set "train={batch_size: 128, steps: $steps, $plain}" \
    --set train.precision="$3" && reports+=("$1=logs/$1.json")
}
# Long enough that what comes first, such as recording the steps as graphs, is a small part of examples/s.
for precision in f32 tf32 bf16; do
  large "local_sgd_$precision" 1 "$precision" 5000 'local_sgd: {local_steps: 500}'
done
# The aim: less than a tenth of the time is waited, with an exchange every two steps. All of this model, 68 MB, goes
# up and down then, which should take a hundred times longer than two steps: whatever overlaps, the rest is waited,
# and `at best` says how much. Larger networks of linear layers have no better chance, as steps and exchange grow
# alike. The others show from how many local steps on the aim is reached; they are long, as the last exchange of a job
# overlaps with nothing.
large in_turn_2 1 bf16 100 'local_sgd: {local_steps: 2}'
large overlap_2 1 bf16 100 'local_sgd: {local_steps: 2, overlap: true}'
for local_steps in 200 500 2000; do
  large "overlap_$local_steps" 1 bf16 $((local_steps < 2000 ? 10000 : 20000)) \
    "local_sgd: {local_steps: $local_steps, overlap: true}"
done
for workers in 1 4; do
  large "data_parallel_$workers" "$workers" bf16 100 'data_parallel: {}'
  large "quant_dp_$workers" "$workers" bf16 100 'quant_dp: {}'
  large "ist_$workers" "$workers" bf16 400 'ist: {local_steps: 20}'
done
if ((${#reports[@]} > 0)); then
  # There is always time for what was found.
  at_end=$end end=$((SECONDS + 15))
  step "jobs" 10 "$aims" ./run.sh gpu_bench --reports "$(IFS=,; echo "${reports[*]}")"
  end=$at_end
fi

sanitizer=
for path in "$(command -v compute-sanitizer)" "${CUDA_HOME:-/usr/local/cuda}"/bin/compute-sanitizer \
  "${CUDA_HOME:-/usr/local/cuda}"/compute-sanitizer/compute-sanitizer /usr/local/cuda-*/bin/compute-sanitizer \
  /usr/local/cuda-*/compute-sanitizer/compute-sanitizer; do
  [[ -z "$sanitizer" && -x "$path" ]] && sanitizer=$path
done
# memcheck calls it ERROR SUMMARY, racecheck RACECHECK SUMMARY.
errors='/(ERROR|RACECHECK) SUMMARY/ {sub(/^=+ */, ""); line = $0} END {print line ? line : "no summary: was it run?"}'
# Our kernels alone, not cuBLAS's; and the tests ask for more memory than there is, which is no error here.
check_with() {  # tool, command...
  local tool=$1
  shift
  sanitizing=(./run.sh "$sanitizer" --tool "$tool" --error-exitcode 3 --report-api-errors no "${filter[@]}" "$@")
}
# What picks our kernels by their names has had two names. One that no kernel matched would find them all clean, so
# that each is held to a fault that is planted; in the end there is none, and cuBLAS's kernels are looked at, too.
find_filter() {
  local words
  for words in '--kernel-name kns=tessera' '--kernel-regex kns=tessera' ''; do
    read -ra filter <<<"$words"
    ((end - SECONDS < 50)) && return
    check_with memcheck bin/planted_faults memory
    { limited 40 "${sanitizing[@]}"; } >>logs/filter.log 2>&1
    [[ $? -eq 3 || -n "$interrupted" ]] && return
  done
}
declare -A finds
finds_planted() {  # tool, fault
  local name="$1 finds what is planted"
  check_with "$1" bin/planted_faults "$2"
  # shellcheck disable=SC2016
  step "$name" 40 "$errors" bash -c '"$@"; (($? == 3))' bash "${sanitizing[@]}" || return
  check_with "$1" bin/planted_faults none
  step "$1 finds nothing else" 40 "$errors" "${sanitizing[@]}" && finds[$1]=yes
}
unusable=
if [[ -z "$quick" && -n "$sanitizer" ]]; then
  find_filter
  # Some machines' virtual GPUs are none for it.
  if grep -qs 'Device not supported' logs/filter.log; then
    unusable="compute-sanitizer does not support this device here"
    for tool in memcheck racecheck; do leave_out "$tool finds what is planted" "$unusable"; done
  else
    finds_planted memcheck memory
    finds_planted racecheck race
  fi
fi
sanitized() {  # name, limit, command...: under both tools
  local name=$1 limit=$2 tool
  shift 2
  for tool in memcheck racecheck; do
    if [[ -z "$sanitizer" ]]; then
      leave_out "$tool, $name" "no compute-sanitizer here"
    elif [[ -n "$unusable" ]]; then
      leave_out "$tool, $name" "$unusable"
    elif [[ -z "${finds[$tool]}" ]]; then
      leave_out "$tool, $name" "it would say nothing: see what is planted"
    else
      check_with "$tool" "$@"
      slow=yes step "$tool, $name" "$limit" "$errors" "${sanitizing[@]}"
    fi
  done
}
# The long ones of the battery are about arithmetic, not about memory.
[[ -z "$quick" ]] && sanitized "kernels" 150 bin/conformance_test '~[optimizer]~[sparse_linear]~[bf16]'
[[ -z "$quick" ]] && sanitized "networks" 90 bin/device_network_test
finish

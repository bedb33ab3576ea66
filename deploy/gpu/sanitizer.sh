# The part of check.sh that runs the kernels under compute-sanitizer's memcheck and racecheck, each of which is asked
# for planted faults before it is believed. Sourced by it, behind steps.sh.
# shellcheck shell=bash disable=SC2154

# memcheck calls it ERROR SUMMARY, racecheck RACECHECK SUMMARY.
errors='/(ERROR|RACECHECK) SUMMARY/ {sub(/^=+ */, ""); line = $0} END {print line ? line : "no summary: was it run?"}'
find_sanitizer() {
  local path
  for path in "$(command -v compute-sanitizer)" "${CUDA_HOME:-/usr/local/cuda}"/bin/compute-sanitizer \
    "${CUDA_HOME:-/usr/local/cuda}"/compute-sanitizer/compute-sanitizer /usr/local/cuda-*/bin/compute-sanitizer \
    /usr/local/cuda-*/compute-sanitizer/compute-sanitizer; do
    [[ -n "$path" && -x "$path" ]] && sanitizer=$path && return
  done
  return 1
}
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
  uncapped=yes step "$name" 40 "$errors" bash -c '"$@"; (($? == 3))' bash "${sanitizing[@]}" &&
    check_with "$1" bin/planted_faults none &&
    uncapped=yes step "$1 finds nothing else" 40 "$errors" "${sanitizing[@]}" && finds[$1]=yes
  [[ -n "${finds[$1]}" ]] || leave_out "$1, tests" "it would say nothing: see what is planted"
}
sanitized() {  # name, limit, command...: under both tools
  local name=$1 limit=$2 tool
  shift 2
  for tool in memcheck racecheck; do
    [[ -n "${finds[$tool]}" ]] || continue
    check_with "$tool" "$@" --durations yes
    slow=yes step "$tool, $name" "$limit" "$errors" "${sanitizing[@]}"
  done
}
sanitize() {
  local tool tag why=
  if ! find_sanitizer; then
    why="no compute-sanitizer here"
  else
    find_filter
    # Some machines' virtual GPUs are none for it.
    grep -qs 'Device not supported' logs/filter.log && why="compute-sanitizer does not support this device here"
  fi
  if [[ -n "$why" ]]; then
    for tool in memcheck racecheck; do leave_out "$tool" "$why"; done
    return
  fi
  finds_planted memcheck memory
  finds_planted racecheck race
  for tag in "${battery_tags[@]}"; do
    sanitized "$tag" 45 bin/conformance_test "[$tag]~[bf16]"
  done
  sanitized "networks" 60 bin/device_network_test
  sanitized "halves of networks" 60 bin/device_network_half_test
  sanitized "pieces of minibatches" 60 bin/minibatch_steps_test
  for tag in "${battery_last_tags[@]}"; do sanitized "$tag" 60 bin/conformance_test "[$tag]"; done
  sanitized "training" 90 bin/device_training_test
}

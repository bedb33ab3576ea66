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
# On an H200 (CUDA 13.0) racecheck with a filter, any, breaks kernels of cuBLAS and cuDNN that the filter leaves out:
# they read addresses that are none, those of cuBLAS alone as well. Without one it runs them. What it finds then may be
# theirs (a race within one of cuDNN's, there), and is a failure where it names one of ours, or a test does not pass.
# shellcheck disable=SC2016
without_filter='log=$(mktemp)
trap "rm -f $log" EXIT
"$@" 2>&1 | tee "$log"
rc=${PIPESTATUS[0]}
((rc != 0)) && grep -q "Internal Sanitizer Error" "$log" || exit "$rc"
all=()
for word in "$@"; do [[ "$word" == --kernel-* || "$word" == kns=* ]] || all+=("$word"); done
((${#all[@]} < $#)) || exit "$rc"
echo "once more, all kernels, as the choice of some breaks others:"
"${all[@]}" 2>&1 | tee "$log"
rc=${PIPESTATUS[0]}
((rc == 3)) && grep -q "^All tests passed" "$log" || exit "$rc"
grep -v "Host Frame" "$log" | grep -q -E "^=+ .* at .*tessera::" && exit "$rc"
echo "RACECHECK SUMMARY: none in our kernels; the log has what is in others"'
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
    slow=yes step "$tool, $name" "$limit" "$errors" bash -c "$without_filter" bash "${sanitizing[@]}"
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
    local limit=45
    [[ $tag == exchange ]] && limit=120
    sanitized "$tag" "$limit" bin/conformance_test "[$tag]~[bf16]"
  done
  sanitized "networks" 120 bin/device_network_test
  sanitized "halves of networks" 60 bin/device_network_half_test
  sanitized "pieces of minibatches" 60 bin/minibatch_steps_test
  for tag in "${battery_last_tags[@]}"; do sanitized "$tag" 60 bin/conformance_test "[$tag]"; done
  sanitized "training" 90 bin/device_training_test
}

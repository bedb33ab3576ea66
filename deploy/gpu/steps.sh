# How check.sh does a part: as a step with a time limit, a log of its own and a line of the table. Sourced by it, in
# the bundle's folder, with `here`, that folder, `end`, the second of SECONDS at which all must be done, and `results`,
# the folder that what is known is copied to, or nothing. Makes logs/.
# shellcheck shell=bash disable=SC2154

if [[ -e logs ]]; then
  number=1
  while [[ -e "logs.$number" ]]; do number=$((number + 1)); done
  mv logs "logs.$number" 2>/dev/null
fi
if ! mkdir logs 2>/dev/null; then
  echo "check.sh: $here: cannot make logs/ here, want a copy of this folder that may be written to" >&2
  exit 2
fi
if [[ -n "$results" ]] && ! { mkdir -p "$results" && : >"$results/table.txt"; } 2>/dev/null; then
  echo "check.sh: RESULTS=$results: cannot be written to, want a folder that may be" >&2
  exit 2
fi
table=logs/table.txt
# Each case of the battery has one of these tags. Short ones come first: what is not done in its time says less.
battery_tags=(memory activation pooling sequence batch_norm loss exchange vector linear convolution)
battery_last_tags=(attention bf16 embedding group_norm optimizer product_step response_norm sparse_linear)
passed=0 failed=0 left_out=0
failures=()  # names
kept=0       # seconds of what is left that are for other parts
hung=        # a part has: those that follow have less time
cap=25       # seconds
say() {
  printf '%-34s %-9s %6s  %s\n' "$@" | tee -a "$table"
  [[ -z "$results" ]] || cp "$table" "$results/"
}
log_of() { echo "logs/${1//[^a-z0-9_]/_}.log"; }
leave_out() {  # name, why
  left_out=$((left_out + 1))
  say "$1" "left out" "" "$2"
}
keep_results() {
  [[ -n "$results" ]] || return
  cp "$table" "$results/"
  tar czf "$results/logs.tgz.part" logs 2>/dev/null && mv "$results/logs.tgz.part" "$results/logs.tgz"
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

# step NAME LIMIT NOTE COMMAND...: NOTE is an expression of awk over the log whose output goes into the table. After a
# part that hung the others have `cap` seconds at most, but for those with uncapped=yes. With slow=yes one that takes
# too long is left out.
slow='' uncapped=''
step() {
  local name=$1 limit=$2 wanted=$2 note=$3 log begin=$SECONDS rc=0 left=$((end - SECONDS - kept)) why
  log=$(log_of "$name")
  shift 3
  [[ -z "$interrupted" ]] || finish_interrupted "$name"
  if ((left < 10)); then
    leave_out "$name" "no time is left"
    return 1
  fi
  [[ -n "$hung" && -z "$slow$uncapped" ]] && ((limit > cap)) && limit=$cap
  why="not done in $limit s, after one that hung; may take $wanted"
  ((limit > left)) && limit=$left why="not done in the last $limit s, may take $wanted"
  # In braces: what bash says of one that had to be killed goes into the log, not into the table.
  { limited "$limit" "$@"; } >"$log" 2>&1 || rc=$?
  [[ -z "$interrupted" ]] || finish_interrupted "$name"
  if [[ $rc -eq 0 ]]; then
    passed=$((passed + 1))
    say "$name" ok $((SECONDS - begin)) "$(awk "$note" "$log" 2>/dev/null | tail -1)"
    return 0
  fi
  if [[ $rc -eq 124 || $rc -eq 137 ]]; then
    if [[ -n "$slow" ]]; then
      if ! grep -q -E '^=+ +(Invalid|Error|Race|Potential)' "$log"; then
        leave_out "$name" "found nothing in $limit s, and was not done$(cases_done "$log")"
        return 1
      fi
    else
      hung=yes
      if ((limit < wanted)); then
        leave_out "$name" "$why"
        return 1
      fi
    fi
  fi
  failed=$((failed + 1))
  failures+=("$name")
  note="exit code $rc: $(told "$log" | tail -1 | cut -c1-90)"
  [[ $rc -eq 124 || $rc -eq 137 ]] && note="not done after $limit s$(cases_done "$log")"
  say "$name" FAILED $((SECONDS - begin)) "$note"
  return 1
}
# Tests that end, where they are run with --durations yes, say so.
cases_done() {
  local cases
  cases=$(grep -c -E '^[0-9.]+ s: ' "$1")
  ((cases == 0)) || echo ", but for $cases tests"
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
  # Figures that the table refers to, and what else is done than was asked for.
  for log in logs/benchmark*.log logs/jobs.log; do [[ -s $log ]] && { echo; cat "$log"; } | tee -a "$table"; done
  why=$(grep -rhoE '(convolutions by cuBLAS|steps are queued kernel by kernel) .*' logs/*.d 2>/dev/null |
    cut -c1-150 | sort | uniq -c | sort -rn | head -4)
  [[ -z "$why" ]] || printf "\nin workers' logs, so many times:\n%s\n" "$why" | tee -a "$table"
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
  keep_results
  [[ -z "$interrupted" ]] || exit "$interrupted"
  [[ $failed -eq 0 && $passed -gt 0 ]]
  exit
}
finish_interrupted() {  # name of the part that is not done
  leave_out "$1" "interrupted, and so is all that would follow"
  finish
}

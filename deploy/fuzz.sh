#!/usr/bin/env bash
# Builds fuzz targets (tests/fuzz) with libFuzzer, the address sanitizer and the undefined behaviour
# sanitizer, and runs them one after the other. What one finds is written to fuzz/crash-TARGET-*; inputs
# that reach new code are collected in fuzz/TARGET. The kept corpus, tests/fuzz/corpus/TARGET.inputs, is not touched:
# tests/fuzz/corpus.py adds to it.
#
#   deploy/fuzz.sh [TARGET...] [--seconds N] [--jobs N]
#
# TARGET is a name such as `job` or `shard`; none: all. N seconds each, 60 unless said otherwise. The exit
# code is 1 if any of them found something, and 130 if they were interrupted.
set -uo pipefail
cd "$(dirname "$0")/.."
seconds=60
jobs=HOST_CPUS
targets=()
while [[ $# -gt 0 ]]; do
  case "$1" in
    --help) echo "usage: deploy/fuzz.sh [TARGET...] [--seconds N] [--jobs N]"; exit 0 ;;
    --seconds | --jobs)
      [[ $# -gt 1 ]] || { echo "fuzz.sh: $1 wants a number" >&2; exit 2; }
      if [[ "$1" == --seconds ]]; then seconds=$2; else jobs=$2; fi
      shift 2 ;;
    -*) echo "fuzz.sh: unknown argument \"$1\", want TARGET..., --seconds N or --jobs N" >&2; exit 2 ;;
    *) targets+=("$1"); shift ;;
  esac
done
[[ "$seconds" =~ ^[0-9]+$ ]] || { echo "fuzz.sh: --seconds: got \"$seconds\", want a number" >&2; exit 2; }
all=()
for file in tests/fuzz/*_fuzz.cc; do all+=("$(basename "$file" _fuzz.cc)"); done
[[ ${#targets[@]} -gt 0 ]] || targets=("${all[@]}")
labels=()
for target in "${targets[@]}"; do
  if [[ " ${all[*]} " != *" $target "* ]]; then
    echo "fuzz.sh: no target \"$target\", want some of: ${all[*]}" >&2
    exit 2
  fi
  labels+=("//tests/fuzz:${target}_fuzz")
done
if ! command -v clang >/dev/null; then
  echo "fuzz.sh: no clang; install clang and libclang-rt-dev" >&2
  exit 1
fi

scratch=$(mktemp -d) || exit 1
log=$scratch/log
trap 'rm -rf "$scratch"' EXIT
interrupted() {
  echo "fuzz.sh: interrupted" >&2
  exit 130
}
trap interrupted INT
if ! bazel build --config=fuzz --jobs="$jobs" "${labels[@]}" >"$log" 2>&1; then
  grep -v linux-sandbox "$log" | tail -40 >&2
  echo "fuzz.sh: the build failed; its last lines are above" >&2
  exit 1
fi
programs=$(bazel info --config=fuzz bazel-bin 2>/dev/null)/tests/fuzz
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
failed=0
interrupted_code=72  # libFuzzer's own, after SIGINT or SIGTERM
for target in "${targets[@]}"; do
  mkdir -p "fuzz/$target"
  python3 tests/fuzz/corpus.py unpack "$target" "$scratch/$target" || exit 1
  # One input may take 20 s, any allocation 256 MiB and all of them 2 GiB.
  "$programs/${target}_fuzz" -max_total_time="$seconds" -max_len=4096 -timeout=20 \
    -malloc_limit_mb=256 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="fuzz/crash-$target-" "fuzz/$target" "$scratch/$target" >"$log" 2>&1
  rc=$?
  [[ $rc -ne $interrupted_code ]] || interrupted
  if [[ $rc -eq 0 ]]; then
    echo "$target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs in $seconds s, nothing found"
  else
    failed=1
    tail -60 "$log" >&2
    echo "$target: FOUND SOMETHING; the input is in fuzz/, the report above" >&2
  fi
done
exit $failed

#!/usr/bin/env bash
# Installs what is missing, builds everything and runs every test. The last line is `N passed, N failed`.
#
# Tests that need more than the data inside the project read it from TESSERA_DATA (default ../shared/data; its layout:
# docs/testing.md); those whose set is absent there are listed as excluded. So are tests that need a GPU where there is
# none, those that need a CUDA toolkit to be built, where there is none, those that need etcd where that is not
# installed, and those that need clang, clang-format 14, prometheus or promtool, which nothing here installs.
set -uo pipefail
# A relative one is the caller's.
[[ -z "${TESSERA_DATA:-}" ]] || TESSERA_DATA=$(realpath -m "$TESSERA_DATA")
cd "$(dirname "$0")/.."
if [[ "${1:-}" == "--help" ]]; then
  echo "usage: [TESSERA_DATA=DIR] deploy/test.sh [bazel test targets; default //...]"
  exit 0
fi
./deploy/install_deps.sh || exit 1

export TESSERA_DATA=${TESSERA_DATA:-$(realpath -m ../shared/data)}
filters=()
[[ -d "$TESSERA_DATA" ]] || filters+=(-needs_data)
command -v etcd >/dev/null || filters+=(-needs_etcd)
config=()
if command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1 &&
  [[ -x "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" ]]; then
  config=(--config=cuda)
else
  filters+=(-needs_gpu)
fi
filter=$(IFS=,; echo "${filters[*]-}")
targets=("$@")
[[ ${#targets[@]} -gt 0 ]] || targets=(//...)

log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
options=("${config[@]}" --test_env=TESSERA_DATA="$TESSERA_DATA" --test_tag_filters="$filter" --keep_going)
# First all that compiles, a command for each core. What does not is said by the second command, which tries it again.
bazel build "${options[@]}" "${targets[@]}" >"$log" 2>&1
[[ $? -ne 8 ]] || exit 130  # interrupted
# Tests with real processes wait for timers half of their time and more, so that a core has four units of their load
# (tests/e2e/e2e_test.bzl); what they wait for may take twice as long beside others.
options+=(--test_env=TESSERA_TEST_PATIENCE="${TESSERA_TEST_PATIENCE:-2}")
bazel test "${options[@]}" --jobs=HOST_CPUS*8 --local_cpu_resources=HOST_CPUS*4 "${targets[@]}" >"$log" 2>&1
bazel_exit=$?
grep -v -e 'linux-sandbox' -e '^INFO: From ' -e '^Loading' -e '^Analyzing' -e '^\[' "$log"
python3 deploy/count_tests.py "$log" "$bazel_exit" "$filter"

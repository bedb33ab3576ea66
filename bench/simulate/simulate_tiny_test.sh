#!/bin/sh
# The benchmark ends, with both figures for every method that it is given.
set -eu
bench/simulate/simulate --tiny --method async_sgd --method data_parallel | tee "$TEST_TMPDIR/out"
test "$(grep -c '^math .* times the mathematics alone' "$TEST_TMPDIR/out")" = 2
test "$(grep -c '^stub .* pushes/s' "$TEST_TMPDIR/out")" = 2

#!/bin/sh
# The benchmark checks its results and prints a ratio for each rule in both forms.
set -eu
bench/rules/rules --tiny | tee "$TEST_TMPDIR/out"
grep -q '^12 rules checked' "$TEST_TMPDIR/out"
test "$(grep -c ' plain .* apart ' "$TEST_TMPDIR/out")" -eq 24

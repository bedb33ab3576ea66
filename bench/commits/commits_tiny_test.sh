#!/bin/sh
# The benchmark checks that both ways give the same bits, and prints a ratio for each pair.
set -eu
bench/commits/commits --tiny | tee "$TEST_TMPDIR/out"
grep -q '^11 pairs checked' "$TEST_TMPDIR/out"
test "$(grep -c ' times$' "$TEST_TMPDIR/out")" -eq 22

#!/bin/sh
# The benchmark checks each core against a sort and prints a line for each part.
set -eu
bench/slim/slim --tiny | tee "$TEST_TMPDIR/out"
grep -q '^cores checked: the largest of the model' "$TEST_TMPDIR/out"
test "$(grep -c ' passes$' "$TEST_TMPDIR/out")" -eq 27

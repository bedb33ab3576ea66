#!/bin/sh
# The benchmark checks the shard's values and prints a time for each order and number of places.
set -eu
bench/staging/staging --tiny | tee "$TEST_TMPDIR/out"
grep -q '^values checked' "$TEST_TMPDIR/out"
test "$(grep -c ' of one place' "$TEST_TMPDIR/out")" -eq 9

#!/bin/sh
# The benchmark checks its results and prints a ratio for each codec and direction.
set -eu
bench/codecs/codecs --tiny | tee "$TEST_TMPDIR/out"
grep -q '^8 codecs checked' "$TEST_TMPDIR/out"
test "$(grep -c ' GB/s .* plain ' "$TEST_TMPDIR/out")" -eq 31

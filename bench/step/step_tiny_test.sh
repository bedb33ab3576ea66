#!/bin/sh
# The benchmark checks its results and prints a rate for each candidate.
set -eu
bench/step/step --tiny | tee "$TEST_TMPDIR/out"
grep -q '^f32 .* of sgemm' "$TEST_TMPDIR/out"

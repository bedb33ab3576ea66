#!/bin/sh
# The benchmarks check their results and print a rate for each candidate.
set -eu
bench/step/step --tiny | tee "$TEST_TMPDIR/out"
grep -q '^f32 .* of sgemm' "$TEST_TMPDIR/out"
bench/step/convolution --tiny | tee "$TEST_TMPDIR/out"
test "$(grep -c ' of it$' "$TEST_TMPDIR/out")" = 6
bench/step/attention --tiny | tee "$TEST_TMPDIR/out"
test "$(grep -c ' of it$' "$TEST_TMPDIR/out")" = 4
bench/step/text_step --tiny --dropout 0.1 | tee "$TEST_TMPDIR/out"
grep -q '^f32 .* of sgemm' "$TEST_TMPDIR/out"

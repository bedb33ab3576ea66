#!/bin/sh
# The benchmark makes rows of all pictures and prints a rate for each way.
set -eu
bench/pictures/pictures --folder tests/worker/data/picture/testdata --resize 10 --crop 8 --repeats 1 |
  tee "$TEST_TMPDIR/out"
grep -q '^rows .* of the decoder' "$TEST_TMPDIR/out"
grep -q '^training .* of the decoder' "$TEST_TMPDIR/out"

#!/usr/bin/env bash
# The bench runs, in both ways, and prints a share for each size.
set -euo pipefail
bench/client/client --tiny --server server/tessera-server | tee "$TEST_TMPDIR/out"
[[ $(grep -c 'GB/s (' "$TEST_TMPDIR/out") == 2 ]]

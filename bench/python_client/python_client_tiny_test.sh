#!/usr/bin/env bash
# The bench runs, with and without PyTorch, and prints a share for each size.
set -euo pipefail
PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 bench/python_client/exchange.py --tiny --server server/tessera-server |
  tee "$TEST_TMPDIR/out"
[[ $(grep -c 'of it)' "$TEST_TMPDIR/out") == 2 ]]

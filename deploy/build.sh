#!/usr/bin/env bash
# Builds the three programs with Bazel, quietly: prints its output only when it fails.
#   bazel-bin/deploy/cli/tessera  bazel-bin/server/tessera-server  bazel-bin/worker/tessera-worker
set -euo pipefail
cd "$(dirname "$0")/.."
if [[ $# -gt 0 ]]; then
  [[ "$1" == "--help" ]] && { echo "usage: deploy/build.sh"; exit 0; }
  echo "build.sh: takes no arguments, got \"$1\"" >&2
  exit 2
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! bazel build //deploy/cli:tessera //server:tessera-server //worker:tessera-worker >"$log" 2>&1; then
  grep -v 'linux-sandbox' "$log" | tail -60 >&2
  echo "build.sh: the build failed; its last lines are above" >&2
  exit 1
fi

#!/usr/bin/env bash
# From a fresh Debian 12 machine to a trained network: installs packages, builds, trains the digits job
# with two servers and two workers on this machine. Safe to repeat.
set -euo pipefail
cd "$(dirname "$0")/.."
if [[ $# -gt 0 ]]; then
  [[ "$1" == "--help" ]] && { echo "usage: deploy/quickstart.sh"; exit 0; }
  echo "quickstart.sh: takes no arguments, got \"$1\"" >&2
  exit 2
fi
./deploy/install_deps.sh
echo "building (the first time takes some minutes) ..."
./deploy/build.sh
exec ./bazel-bin/deploy/cli/tessera run deploy/jobs/digits.yaml --report report.json

#!/bin/sh
# Runs a Python test with Debian's Python, which has the grpc and protobuf packages, or a part of it where Bazel has
# several (tests/e2e/shards.py). usage: run_python.sh FILE [TEST]...
file=$1
shift
PYTHONPATH="tests/e2e:$(dirname "$file")"
export PYTHONPATH PYTHONDONTWRITEBYTECODE=1
if [ -n "$TEST_TOTAL_SHARDS" ]; then
  exec /usr/bin/python3 tests/e2e/shards.py "$file" -v "$@"
fi
exec /usr/bin/python3 "$file" -v "$@"

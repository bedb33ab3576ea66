#!/bin/sh
# Runs a Python test with Debian's Python, which has the grpc and protobuf packages. usage: run_python.sh FILE [TEST]...
file=$1
shift
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="tests/e2e:$(dirname "$file")" exec /usr/bin/python3 "$file" -v "$@"

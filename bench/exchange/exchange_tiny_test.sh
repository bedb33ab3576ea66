#!/bin/sh
# The benchmark verifies what it times; its small form is a test.
"$1" --tiny && exec "$1" --tiny --tls

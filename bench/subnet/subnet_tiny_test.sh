#!/bin/sh
# The benchmark verifies what it times; its small form is a test.
exec "$1" --tiny

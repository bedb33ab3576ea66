#!/bin/sh
# The benchmark verifies what it times; its small form is a test.
"$1" --tiny && "$1" --tiny --transport tcp && "$1" --tiny --synchronise 4000000 && exec "$1" --tiny --tls

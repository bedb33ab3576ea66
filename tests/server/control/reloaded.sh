#!/bin/sh
# Runs a test of the control plane with a coordinator that is saved and loaded after every event.
# usage: reloaded.sh PROGRAM
export TESSERA_RELOAD=yes
exec "$@"

#!/bin/sh
# The program whose faults shall show that a tool finds such has them, and none when asked for none.
set -u
planted=tests/kernels/cuda/ptx_planted_faults
log=$TEST_TMPDIR/log

told() { # fault, what the PTX machine says of it
  "$planted" "$1" >"$log" 2>&1 && echo "$1: nothing was found" && exit 1
  cat "$log"
  grep -q "$2" "$log" || exit 1
}
"$planted" none || exit 1
told memory 'WriteBehind.*is not allocated'
told race 'Turn.*barrier'
"$planted" >"$log" 2>&1
[ $? -eq 2 ] && grep -q '^usage: ' "$log"

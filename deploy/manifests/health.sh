#!/bin/bash
# Whether the container's process is well: 0, or 1 and why. One with --metrics is asked for /healthz, which it answers
# while it lives; one without, as a worker, is well as long as it is there, and no port tells of it.
set -euo pipefail
readarray -d '' arguments </proc/1/cmdline
address=
for index in "${!arguments[@]}"; do
  [[ ${arguments[index]} != --metrics ]] || address=${arguments[index + 1]:-}
  [[ ${arguments[index]} != --metrics=* ]] || address=${arguments[index]#--metrics=}
done
[[ -n $address ]] || exit 0
host=${address%:*}
# An address that stands for all of the machine's is called as the machine itself.
case $host in 0.0.0.0 | '[::]' | '') host=127.0.0.1 ;; esac
host=${host#[}
exec 3<>"/dev/tcp/${host%]}/${address##*:}"
printf 'GET /healthz HTTP/1.0\r\n\r\n' >&3
# One that is stuck takes the connection and says nothing.
read -r -t 3 _ code _ <&3 || { echo "health.sh: $address/healthz says nothing, want 200 within 3 s" >&2; exit 1; }
[[ $code == 200 ]] || { echo "health.sh: $address/healthz is $code, want 200" >&2; exit 1; }

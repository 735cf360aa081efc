#!/usr/bin/env bash
# COMMAND... -o OBJECT ...: runs the command; what ptxas says of registers and memory goes to OBJECT.ptxas, the rest to
# standard error.
set -uo pipefail
object=""
for ((i = 1; i < $#; ++i)); do
  if [ "${!i}" = -o ]; then next=$((i + 1)); object=${!next}; fi
done
[ -n "$object" ] || exec "$@"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
"$@" 2> "$log"
status=$?
report='^ptxas info|^ *[0-9]+ bytes stack frame'
grep -E "$report" "$log" > "$object.ptxas"
grep -vE "$report" "$log" >&2
exit $status

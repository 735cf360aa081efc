#!/usr/bin/env bash
# make gpu-sanitize: the device tests' reduced set under each tool of compute-sanitizer. scripts/gpu_sanitize.sh [GPU_TEST [ARGUMENTS]]
# racecheck needs a gpu_test of its own, built with -DCANOPY_RACECHECK=ON: RACECHECK=its path, or it is left out.
# synccheck is not among them: it takes warps that meet at one barrier from two instructions, as PTX lets them, for an error.
set -uo pipefail
binary=${1:-build/gpu_test}
shift $(($# > 0))
sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
[ -x "$sanitizer" ] || { echo "compute-sanitizer: not found; it is part of the CUDA toolkit" >&2; exit 2; }
failed=0
for tool in memcheck initcheck racecheck; do
  tested=$binary started=$SECONDS
  if [ $tool = racecheck ]; then
    tested=${RACECHECK:-}
    [ -n "$tested" ] || { echo "racecheck left out: RACECHECK names no gpu_test built with -DCANOPY_RACECHECK=ON"; continue; }
  fi
  log=$("$sanitizer" --tool $tool --error-exitcode 9 --print-limit 20 "$tested" --light "$@" 2>&1)
  status=$?
  printf '%-9s %s in %d s\n' $tool "$([ $status = 0 ] && echo clean || echo "FAILED (exit status $status)")" $((SECONDS - started))
  [ $status = 0 ] || { failed=1; printf '%s\n' "$log" | tail -60; }
done
exit $failed

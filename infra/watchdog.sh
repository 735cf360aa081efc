#!/usr/bin/env bash
# On a pod: sleeps MAX_POD_HOURS (default 6), then stops the pod, so that a forgotten one costs no more.
# infra/watchdog.sh [--detach]   with --detach it checks that it can work, then sleeps in the background
# Prints no secrets: what runpodctl prints is dropped.
set -euo pipefail

# An SSH session lacks the pod's own variables; the first process has them.
from_pod() { { tr '\0' '\n' < "${POD_ENVIRONMENT:-/proc/1/environ}" | sed -n "s/^$1=//p" | head -1; } 2> /dev/null || true; }
hours=${MAX_POD_HOURS:-$(from_pod MAX_POD_HOURS)}
hours=${hours:-6}
pod=${RUNPOD_POD_ID:-$(from_pod RUNPOD_POD_ID)}
seconds=$(awk -v h="$hours" 'BEGIN { if (h !~ /^[0-9]+(\.[0-9]+)?$/ || h <= 0 || h > 24) exit 1; print h * 3600 }') ||
  { echo "watchdog: MAX_POD_HOURS=$hours: expected hours, more than 0 and at most 24" >&2; exit 2; }
[ -n "$pod" ] || { echo "watchdog: no RUNPOD_POD_ID: this is not a pod" >&2; exit 2; }
command -v runpodctl > /dev/null || { echo "watchdog: no runpodctl here, so nothing could stop the pod" >&2; exit 2; }

if [ "${1:-}" = --detach ]; then
  log=${TMPDIR:-/tmp}/canopy-watchdog.log
  setsid nohup "$0" < /dev/null >> "$log" 2>&1 &
  echo "watchdog: $pod will be stopped in $hours h, unless one started earlier stops it before; log $log"
  exit 0
fi

exec 9> "${TMPDIR:-/tmp}/canopy-watchdog.lock"
flock -n 9 || { echo "watchdog: one is running already"; exit 0; }
sleep "$seconds" 9>&-
RUNPOD_API_KEY=${RUNPOD_API_KEY:-$(from_pod RUNPOD_API_KEY)}
[ -z "$RUNPOD_API_KEY" ] || export RUNPOD_API_KEY
for try in $(seq 30); do
  # The older and the newer spelling of one command.
  if runpodctl stop pod "$pod" > /dev/null 2>&1 || runpodctl pod stop "$pod" > /dev/null 2>&1; then
    echo "watchdog: asked to stop $pod"
    exit 0
  fi
  echo "watchdog: stopping $pod failed, try $try of 30" >&2
  sleep "${WATCHDOG_PAUSE:-60}" 9>&-
done
echo "watchdog: $pod could not be stopped: stop it in the console" >&2
exit 1

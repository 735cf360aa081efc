#!/usr/bin/env bash
# Configures a preset and builds it: scripts/build.sh PRESET FOLDER [CMAKE OPTIONS]. Prints little unless it fails.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1 folder=$2
shift 2
mkdir -p "$folder"
log=$folder/build.log
cmake --preset "$preset" -B "$folder" "$@" > "$log" 2>&1 || { cat "$log" >&2; exit 1; }
if [ -t 1 ]; then
  ninja -C "$folder"
else
  ninja -C "$folder" > "$log" 2>&1 || { cat "$log" >&2; exit 1; }
  grep 'warning:' "$log" || true
fi

#!/usr/bin/env bash
# Builds the libFuzzer targets and runs them beside each other for a number of seconds: tests/fuzz/run.sh [SECONDS]
# Seeds are tests/fuzz/corpus/NAME and, for what reads trees, data/trees; what is found new stays in build-fuzz/corpus.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:-20}
scripts/build.sh fuzz build-fuzz

run_target() { # NAME
  local found=build-fuzz/corpus/$1 crashes=build-fuzz/crashes/$1 log=build-fuzz/fuzz_$1.log seeds=()
  mkdir -p "$found" "$crashes"
  [ -d "tests/fuzz/corpus/$1" ] && seeds+=("tests/fuzz/corpus/$1")
  case $1 in *tree*) seeds+=(data/trees) ;; esac
  if "build-fuzz/fuzz_$1" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 -verbosity=0 \
    -artifact_prefix="$crashes/" "$found" "${seeds[@]}" > "$log" 2>&1; then
    echo "fuzz_$1: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs in $seconds s, none failed"
  else
    tail -60 "$log"
    echo "fuzz_$1: FAILED; the input is in $crashes" >&2
    return 1
  fi
}

running=()
for source in tests/fuzz/*.cpp; do
  [ -e "$source" ] || { echo "no fuzz target under tests/fuzz" >&2; exit 1; }
  run_target "$(basename "$source" .cpp)" &
  running+=($!)
done
status=0
for job in "${running[@]}"; do wait "$job" || status=1; done
exit $status

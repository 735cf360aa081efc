#!/usr/bin/env bash
# Builds the libFuzzer targets and runs each for a number of seconds: tests/fuzz/run.sh [SECONDS]
# Seeds are tests/fuzz/corpus/NAME and, for what reads trees, data/trees; what is found new stays in build-fuzz/corpus.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:-20}
scripts/build.sh fuzz build-fuzz
ran=0
for source in tests/fuzz/*.cpp; do
  name=$(basename "$source" .cpp)
  found=build-fuzz/corpus/$name
  mkdir -p "$found" "build-fuzz/crashes/$name"
  seeds=()
  [ -d "tests/fuzz/corpus/$name" ] && seeds+=("tests/fuzz/corpus/$name")
  case $name in *tree*) seeds+=(data/trees) ;; esac
  echo "fuzz_$name: $seconds s"
  "build-fuzz/fuzz_$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 -verbosity=0 \
    -artifact_prefix="build-fuzz/crashes/$name/" "$found" "${seeds[@]}" 2>&1 | grep -v '^INFO' || {
      echo "fuzz_$name: failed; the input is in build-fuzz/crashes/$name" >&2; exit 1; }
  ran=$((ran + 1))
done
[ "$ran" -gt 0 ] || { echo "no fuzz target under tests/fuzz" >&2; exit 1; }

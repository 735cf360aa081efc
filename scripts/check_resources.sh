#!/usr/bin/env bash
# What ptxas said of every CUDA kernel of a build (scripts/check_resources.sh [BUILD]): registers, shared memory, resident
# threads for it, a line a kernel. Fails where one spills, or has more shared memory than a block may, on sm_120; and where
# the library, stripped and compressed as in a wheel, takes more than a wheel may.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
limit=101376  # bytes a block, sm_120
mapfile -t reports < <(find "$build/CMakeFiles/canopy_cuda.dir" -name '*.ptxas' 2> /dev/null | sort)
if [ ${#reports[@]} = 0 ]; then
  echo "no CUDA kernels in $build: nothing to check"
  exit 0
fi
demangle() { if command -v c++filt > /dev/null; then c++filt; else cat; fi; }

cat "${reports[@]}" | demangle | awk -v limit="$limit" '
  /Compiling entry function/ {
    arch = $0; sub(/.* for ./, "", arch); gsub(/[^a-z0-9_]/, "", arch)
    name = $0; sub(/.*entry function ./, "", name); sub(/. for .*/, "", name)
    sub(/^void /, "", name); gsub(/canopy::cuda::|\(anonymous namespace\)::/, "", name); sub(/\(.*/, "", name)
    spill = 0
  }
  /bytes spill stores/ { spill = 0; for (i = 1; i < NF; ++i) if ($(i + 1) == "bytes" && $(i + 2) == "spill") spill += $i }
  /Used [0-9]+ registers/ {
    registers = 0; shared = 0
    for (i = 1; i < NF; ++i) { if ($i == "Used") registers = $(i + 1); if ($(i + 1) == "bytes" && $(i + 2) ~ /^smem/) shared = $i }
    threads = int(65536 / (int((registers + 7) / 8) * 8) / 32) * 32; if (threads > 1536) threads = 1536
    printf "%-8s %4d registers %6d B static shared %5d B spilled  registers allow %4d threads  %s\n", arch, registers, shared, spill, threads, name
    ++kernels
    if (spill > 0 && arch == "sm_120") { print "  SPILLS"; ++bad }
    if (arch == "sm_120" && shared > limit) { print "  MORE SHARED MEMORY THAN " limit; ++bad }
  }
  END { printf "%d kernels, %d bad\n", kernels, bad; exit bad > 0 }'
# Dynamic shared memory is held to the same limit by static_asserts beside the launches.

most=30000000  # bytes, a wheel (scripts/wheel.sh); the tests' build has sm_80 for a sample of the kernels only
[ -e "$build/libcanopy.so" ] || { echo "no $build/libcanopy.so: its size is not checked"; exit 0; }
stripped=$(mktemp)
trap 'rm -f "$stripped"' EXIT
strip -o "$stripped" "$build/libcanopy.so"
size=$(gzip -6 < "$stripped" | wc -c)
echo "libcanopy.so: $(($(stat -c %s "$stripped") / 1024)) KiB stripped, $((size / 1024)) KiB compressed, at most $((most / 1024))"
[ "$size" -le "$most" ] || { echo "libcanopy.so: expected at most $most bytes compressed, got $size; compile fewer instances"; exit 1; }

#!/usr/bin/env bash
# make test: set-up, every test, sanitizers, a short fuzzing. Ends with "N passed, N failed": tests and sections together.
set -uo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C.UTF-8 CTEST_OUTPUT_ON_FAILURE=1
jobs=$(nproc)
started=$SECONDS
logs=$(mktemp -d) || exit 1
counts=$logs/counts # a line a section: tests passed, tests failed, its exit status, its name
trap 'rm -rf "$logs"' EXIT
trap 'cat "$logs/set-up" "$logs/python" 2> /dev/null; kill $(jobs -p) 2> /dev/null; exit 130' INT TERM

# SECTION COMMAND...: runs it under a heading; what ctest, pytest and vitest count in its output is added up.
section() {
  local name=$1 log=$logs/$BASHPID from=$SECONDS status tests broken more bad
  shift
  printf '\n== %s [%d s]\n' "$name" $((SECONDS - started))
  "$@" 2>&1 | tee "$log"
  status=${PIPESTATUS[0]}
  # "98% tests passed, 1 tests failed out of 40"
  read -r broken tests < <(sed -n 's/.*tests passed, \([0-9]*\) tests failed out of \([0-9]*\)$/\1 \2/p' "$log" | awk '{b += $1; t += $2} END {print b + 0, t + 0}')
  # "2 failed, 275 passed, 1 skipped in 12.66s", "Tests  2 failed | 96 passed (98)"
  read -r more bad < <(sed -n -e '/^[0-9].* in [0-9.]*s/p' -e '/^ *Tests  /p' "$log" | awk '{for (i = 2; i <= NF; ++i) {if ($i ~ /^passed/) p += $(i - 1); if ($i ~ /^(failed|error)/) f += $(i - 1)}} END {print p + 0, f + 0}')
  printf '%d %d %d %s\n' $((tests - broken + more)) $((broken + bad)) "$status" "$name" >> "$counts"
  printf '== %s: %s in %d s\n' "$name" "$([ "$status" = 0 ] && echo ok || echo FAILED)" $((SECONDS - from))
  return "$status"
}

run_tests() { ctest --preset "$1" --parallel "$jobs" --no-tests=error; }

# The sanitizers' and the fuzzer's builds compile the library with the same flags, in folders of their own: with -g the
# cache would tell them apart by the folder.
export CCACHE_NOHASHDIR=1

# With nvcc the kernels have to build: AUTO would leave them out with a word in a log.
build_release() { scripts/build.sh default build "-DCANOPY_CUDA=$(command -v nvcc > /dev/null && echo ON || echo OFF)" -DCANOPY_SM80_SAMPLE=ON -DCANOPY_BATCH=8 -DCANOPY_EMULATED=ON -DCANOPY_PROGRAM=ON -DCANOPY_TESTS=ON -DCANOPY_BENCH=ON; }
# The heavy tables are for the release build; under the sanitizers the unit tests reach the same code.
# Without the program: its option parser alone takes longer to build this way than all the rest.
asan() { scripts/build.sh asan build-asan -DCANOPY_TEST_FOLDERS=unit -DCANOPY_PROGRAM=OFF && run_tests asan; }
tsan() { scripts/build.sh tsan build-tsan && run_tests tsan; }
fuzz() { tests/fuzz/run.sh 20; }
# The installed wheel is what is tested, from a folder where the sources cannot stand in for it. Its CUDA kernels were
# compiled in the build above; here they would only be linked again.
python_tests() {
  scripts/wheel.sh CANOPY_CUDA=OFF &&
    build-python/venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall build-python/dist/*.whl &&
    build-python/venv/bin/python -m pytest tests/python
}
# Outside CI a machine that cannot have the packages goes without these.
infra() {
  scripts/setup.sh infra || { [ -z "${CI:-}" ] && echo "infra: SKIPPED: its packages cannot be installed here" && return 0; return 1; }
  build-infra/venv/bin/python -m pytest tests/infra tests/report
}
# Result files, the dispatch tables made of them, and the referee itself on small shapes; after the Python tests, whose
# environment it uses.
bench() {
  python3 bench/schema.py && python3 bench/dispatch.py --check --program build/canopy &&
    build-python/venv/bin/python -m pytest tests/bench
}
page_setup() { scripts/setup.sh page-test && scripts/page.sh build; }
neon() {
  command -v aarch64-linux-gnu-g++ > /dev/null || { echo "no aarch64 compiler here: the NEON kernels are not compiled"; return 0; }
  aarch64-linux-gnu-g++ -std=c++20 -O2 -Wall -Wextra -fno-exceptions -DCANOPY_ISA=baseline -Iinclude -Isrc \
    -c src/cpu/kernels.cpp -o build/kernels-aarch64.o
}

# Two lists of sections beside one another, twice; what the shorter says is shown when both are done. Set-ups wait for
# downloads while the build computes (one list, since apt runs once at a time); Python's tests keep one core busy. The page's
# tests stand alone: they are held to times.
setup_sections() {
  section "set-up of the page" page_setup
  section "set-up of Python" scripts/setup.sh python
}
build_sections() {
  section "build" build_release || return 1
  section "tests" run_tests default
  section "self-test" build/canopy verify --self-test
}
python_sections() {
  section "Python" python_tests
  section "benchmarks" bench
}
other_sections() {
  section "reports are what the results say" python3 bench/report.py --check
  section "renting, reports" infra
  section "NEON kernels compile" neon
  section "CUDA kernels: registers, shared memory" scripts/check_resources.sh build
  section "AddressSanitizer, UndefinedBehaviorSanitizer" asan
  section "ThreadSanitizer" tsan
  section "fuzzing" fuzz
}

if section "set-up" scripts/setup.sh test; then
  setup_sections > "$logs/set-up" 2>&1 &
  build_sections
  built=$?
  wait
  cat "$logs/set-up"
  if [ $built = 0 ]; then
    section "page" scripts/page.sh test
    python_sections > "$logs/python" 2>&1 &
    other_sections
    wait
    cat "$logs/python"
  fi
fi

echo
awk '$3 != 0 {$1 = $2 = $3 = ""; print "failed:" $0}' "$counts" | sed 's/: */: /'
echo "total $((SECONDS - started)) s"
# Tests and sections together. A section that left no line, since it was killed or never begun, has failed.
sections=$(grep -o 'section "[^"]*" ' scripts/test.sh | wc -l)
awk -v sections="$sections" '
  {passed += $1 + ($3 == 0); failed += $2 + ($3 != 0)}
  END {
    if (NR < sections) print "not run to their end: " sections - NR " of " sections " sections"
    failed += sections - NR
    print passed + 0 " passed, " failed + 0 " failed"
    exit failed > 0
  }' "$counts"

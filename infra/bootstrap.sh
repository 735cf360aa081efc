#!/usr/bin/env bash
# On a fresh pod, from clone to the full sweep: bootstrap.sh SOURCE, a git URL or bundle; from elsewhere as in
#   ssh root@IP -p PORT bash -s -- SOURCE < infra/bootstrap.sh
# Starts the watchdog, clones into $WORKSPACE/canopy (default /workspace), tests the kernels on this GPU, runs `make bench`
# and packs what changed. The work goes on when the connection drops; the same command again follows it.
set -euo pipefail
workspace=${WORKSPACE:-/workspace}
clone=$workspace/canopy
run=$workspace/canopy-run

refuse() { echo "bootstrap: $1" >&2; exit 2; }

install_missing() {
  local missing=() program
  for program in git make; do command -v $program > /dev/null || missing+=($program); done
  [ ${#missing[@]} = 0 ] || { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}"; } > /dev/null < /dev/null
}

fetch_sources() { # SOURCE
  if [ -d "$clone/.git" ]; then
    echo "bootstrap: $clone is there, used as it is"
  else
    [ -n "$1" ] || refuse "no sources in $clone; remedy: bootstrap.sh GIT-URL-OR-BUNDLE"
    git -c advice.detachedHead=false clone --quiet "$1" "$clone" < /dev/null || refuse "git cannot clone $1"
  fi
  echo "bootstrap: commit $(git -C "$clone" rev-parse --short=12 HEAD)"
}

gpu() { nvidia-smi --query-gpu="$1" --format=csv,noheader | head -1; }

check_machine() {
  command -v nvidia-smi > /dev/null || refuse "no nvidia-smi: this machine has no GPU"
  command -v nvcc > /dev/null || refuse "no nvcc: take an image with the CUDA toolkit, 12.8 or later"
  local release
  release=$(nvcc --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
  [ "$(printf '12.8\n%s\n' "$release" | sort -V | head -1)" = 12.8 ] || refuse "nvcc $release: sm_120 needs 12.8 or later; take a newer image"
  echo "bootstrap: $(gpu name,driver_version), nvcc $release"
}

# Parity first, then the sweep whatever parity said: every cell carries its own error.
work() {
  cd "$clone"
  local status=0 record
  record=results/gpu-test-$(gpu name | tr 'A-Z ' 'a-z-').txt
  mkdir -p results
  echo "bootstrap: make gpu-test"
  make gpu-test 2>&1 | tee "$record" || { status=1; echo "bootstrap: parity FAILED on this GPU, see $record"; }
  echo "bootstrap: make bench"
  make bench BENCH="--seconds 0" || { status=1; echo "bootstrap: the sweep FAILED"; }
  git ls-files --modified --others --exclude-standard -z | tar -czf "$run-results.tar.gz" --null -T -
  echo "bootstrap: $run-results.tar.gz holds what is new"
  echo "bootstrap: done, status $status"
}

running() { [ -s "$run.pid" ] && tr '\0' ' ' 2> /dev/null < "/proc/$(cat "$run.pid")/cmdline" | grep -q 'bootstrap.sh --work'; }

main() {
  export PATH=$PATH:/usr/local/cuda/bin
  if [ "${1:-}" = --work ]; then
    work
    return
  fi
  mkdir -p "$workspace"
  install_missing
  fetch_sources "${1:-}"
  "$clone/infra/watchdog.sh" --detach || refuse "nothing is run without a watchdog"
  check_machine
  if running; then
    echo "bootstrap: it is running: following it"
  else
    : > "$run.log"  # here, so that tail finds it however slow the child is
    setsid nohup "$clone/infra/bootstrap.sh" --work >> "$run.log" 2>&1 < /dev/null &
    echo $! > "$run.pid"
  fi
  tail -n +1 -f -s 0.2 --pid="$(cat "$run.pid")" "$run.log"
  grep -q '^bootstrap: done, status 0$' "$run.log"
}

# Last: read from standard input, the script is complete before anything in it runs.
main "$@"

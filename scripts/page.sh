#!/usr/bin/env bash
# The demo page: scripts/page.sh build|test|serve|screenshots [FOLDER]. Prints little unless something fails.
set -euo pipefail
cd "$(dirname "$0")/.."
log=build-wasm/build.log
# npm trusts what the system trusts.
certificates=/etc/ssl/certs/ca-certificates.crt
[ ! -e $certificates ] || export NODE_EXTRA_CA_CERTS=${NODE_EXTRA_CA_CERTS:-$certificates}

quietly() { "$@" > "$log" 2>&1 || { cat "$log" >&2; exit 1; }; }

build() {
  mkdir -p build-wasm
  quietly cmake -G Ninja -S bindings/wasm -B build-wasm -DCMAKE_TOOLCHAIN_FILE="$PWD/cmake/wasm.cmake" -DCMAKE_BUILD_TYPE=Release
  quietly ninja -C build-wasm
  # The packages as package-lock.json pins them, again when it has changed.
  if ! cmp -s web/package-lock.json web/node_modules/.installed-lock; then
    quietly npm --prefix web ci --no-audit --no-fund --loglevel=error
    cp web/package-lock.json web/node_modules/.installed-lock
  fi
  quietly npm --prefix web run --silent build
  echo "web/dist: $(du -sh web/dist | cut -f1)"
}

case "${1:-}" in
  build) build ;;
  test) build && NO_COLOR=1 npm --prefix web run --silent test ;;
  serve) npm --prefix web run --silent serve ;;
  screenshots) npm --prefix web run --silent screenshots -- "$(realpath -m "${2:-out/page}")" ;;
  *) echo "usage: scripts/page.sh build|test|serve|screenshots [FOLDER]" >&2; exit 2 ;;
esac

#!/usr/bin/env bash
# Installs what is missing on Debian or Ubuntu, and nothing that is there:
# scripts/setup.sh demo|test|plot|gpu|python|infra|page|page-test
# Elsewhere, without root and sudo, or without a network, it says what is missing and stops.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C DEBIAN_FRONTEND=noninteractive

case "${1:-}" in
  demo | test | plot | gpu | python | infra | page | page-test) set_name=$1 ;;
  *) echo "usage: scripts/setup.sh demo|test|plot|gpu|python|infra|page|page-test" >&2; exit 2 ;;
esac

program() { command -v "$1" > /dev/null 2>&1; }
installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2> /dev/null)" = installed ]; }
header() { program g++ && printf '#if !__has_include(<%s>)\n#error\n#endif\n' "$1" | g++ -std=c++20 -E -x c++ - > /dev/null 2>&1; }
library() { program g++ && echo 'int main() {}' | g++ -x c++ - -o /dev/null "-l$1" > /dev/null 2>&1; }

python_has() { python3 -c "import $1" > /dev/null 2>&1; }
pip_works() { python3 -m pip --version > /dev/null 2>&1; }

missing=()
need() { # PACKAGE PROBE ARGUMENT: by the probe, so that a compiler or library from elsewhere is left alone
  "$2" "$3" || missing+=("$1")
}

# The compiler-rt and OpenMP runtime of a clang carry its major version in their names.
clang_major() { clang -dumpversion | cut -d. -f1; }
clang_links() { # FLAGS: whether a program with this runtime links
  printf 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }\n%s\n' "$2" |
    clang++ -x c++ - -o /dev/null $1 > /dev/null 2>&1
}

probe_demo() {
  need g++ program g++
  need cmake program cmake
  need ninja-build program ninja
  need ccache program ccache
  need pkg-config program pkg-config
  need libcli11-dev header CLI/CLI.hpp
  need libfmt-dev header fmt/format.h
  need nlohmann-json3-dev header nlohmann/json.hpp
}

probe_test() {
  need libgtest-dev header gtest/gtest.h
  need libbenchmark-dev header benchmark/benchmark.h
  need librapidcheck-dev header rapidcheck.h
  need liblapack-dev library lapack
  need clang program clang++
  need python3 program python3
}

probe_plot() {
  need python3-matplotlib python_has matplotlib
}

probe_python() {
  need python3 program python3
  need python3-venv python_has "ensurepip, venv"
}

probe_page() {
  need clang program clang++
  need lld program wasm-ld
  need nodejs program node
  need npm program npm
}

probe_page_test() {
  need chromium program chromium
  need fonts-inter installed fonts-inter
  need fonts-dejavu-core installed fonts-dejavu-core
}

# Second pass, as below: the runtime that C++ needs in WebAssembly.
wasm_links() {
  printf '#include <string>\nint main(int n, char**) { return std::to_string(n / 3.0).size() + (__int128(n) * n >> 7); }\n' |
    clang++ --target=wasm32-wasi -std=c++20 -fno-exceptions -x c++ - -o /dev/null > /dev/null 2>&1
}
probe_wasm() {
  local n
  n=$(clang_major)
  wasm_links || missing+=(wasi-libc "libc++-$n-dev-wasm32" "libc++abi-$n-dev-wasm32" "libclang-rt-$n-dev-wasm32")
}

# Second pass, when clang is there and tells its version.
probe_clang() {
  local n
  n=$(clang_major)
  clang_links -fsanitize=fuzzer,address '' || missing+=("libclang-rt-$n-dev")
  clang_links '-fopenmp -fsanitize=thread' 'int main() {}' || missing+=("libomp-$n-dev")
}

run_as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

give_up() {
  echo "setup: $1" >&2
  echo "setup: missing: ${missing[*]}" >&2
  echo "setup: remedy: $2" >&2
  exit 2
}

updated=no
install_missing() {
  [ ${#missing[@]} -gt 0 ] || return 0
  program apt-get || give_up "this is not Debian or Ubuntu (no apt-get)" \
    "install the equivalents of these Debian packages with your package manager, then run make again"
  [ "$(id -u)" = 0 ] || program sudo || give_up "neither root nor sudo" \
    "as root: apt-get update && apt-get install --no-install-recommends ${missing[*]}"
  echo "setup: installing ${missing[*]}"
  local log
  log=$(mktemp)
  if [ $updated = no ]; then
    run_as_root apt-get update -qq > "$log" 2>&1 || { tail -5 "$log" >&2; rm -f "$log"
      give_up "apt-get update failed (offline?)" "connect the machine or install the packages by hand"; }
    updated=yes
  fi
  run_as_root env LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" \
    > "$log" 2>&1 || { tail -15 "$log" >&2; rm -f "$log"
      give_up "apt-get install failed" "see the messages above; apt-get install ${missing[*]}"; }
  rm -f "$log"
  missing=()
}

# Packages that make one check possible and are not worth failing for.
install_optional() { # PACKAGE WHAT
  installed "$1" && return 0
  missing=("$1")
  if program apt-get && { [ "$(id -u)" = 0 ] || program sudo; }; then
    if [ $updated = no ]; then run_as_root apt-get update -qq > /dev/null 2>&1 || true; updated=yes; fi
    if [ -n "$(apt-cache madison "$1" 2> /dev/null)" ]; then install_missing; return 0; fi
  fi
  echo "setup: no package $1 here: $2"
  missing=()
}

probe_rest() {
  case $set_name in
    test) probe_test ;;
    plot) probe_plot ;;
    python | infra) probe_python ;;
    page) probe_page ;;
    page-test) probe_page; probe_page_test ;;
  esac
}

probe_demo
probe_rest
install_missing
# g++ itself may have been missing when the headers were looked for: look again, now it can tell.
probe_demo
probe_rest
install_missing
if [ "$set_name" = test ]; then
  probe_clang
  install_missing
  program aarch64-linux-gnu-g++ || install_optional g++-aarch64-linux-gnu "the NEON kernels are not compiled"
fi

if [[ $set_name == page* ]]; then
  probe_wasm
  install_missing
fi
# nginx without its service: a test wants the program, not a server that starts with the machine.
if [ "$set_name" = page-test ] && ! program nginx && [ ! -x /usr/sbin/nginx ] && [ ! -x build-nginx/usr/sbin/nginx ]; then
  missing=(nginx)
  program apt-get || give_up "this is not Debian or Ubuntu (no apt-get)" "install nginx, then run make again"
  echo "setup: unpacking nginx into build-nginx"
  mkdir -p build-nginx
  (cd build-nginx && apt-get download -qq nginx nginx-common > /dev/null 2>&1 && for package in ./*.deb; do dpkg -x "$package" .; done) ||
    give_up "apt-get download nginx failed" "connect the machine, or apt-get install nginx"
  missing=()
fi

# Where CUDA kernels will be compiled: the headers with CuTe's instruction atoms, pinned, beside the build folders.
cutlass=4.2.0.0
compiles_kernels() { program nvcc && { [[ $set_name =~ ^(test|gpu|python)$ ]] || ls /dev/nvidia[0-9]* > /dev/null 2>&1; }; }
if compiles_kernels && [ ! -e build-cutlass/nvidia_cutlass-$cutlass.dist-info ]; then
  need python3-pip pip_works ""
  install_missing
  echo "setup: installing nvidia-cutlass $cutlass into build-cutlass"
  rm -rf build-cutlass
  python3 -m pip install --quiet --no-deps --disable-pip-version-check --no-compile --root-user-action=ignore \
    --target build-cutlass "nvidia-cutlass==$cutlass" ||
    echo "setup: nvidia-cutlass $cutlass could not be installed: the CUDA kernels are not built"
fi

pip_install() { # FOLDER ARGUMENTS: into FOLDER/venv
  "$1/venv/bin/python" -m pip install --quiet --disable-pip-version-check --root-user-action=ignore "${@:2}" 2>&1 |
    { grep -v 'is ignored: it is neither a file nor a directory' || true; }
  return "${PIPESTATUS[0]}"
}

# What infra/pod.py and its tests need: build-infra/venv, pinned.
requirements=infra/requirements.txt
if [ "$set_name" = infra ] && ! cmp -s $requirements build-infra/venv/installed; then
  echo "setup: installing what infra/pod.py needs into build-infra/venv"
  mkdir -p build-infra
  rm -rf build-infra/venv
  python3 -m venv build-infra/venv
  missing=("what $requirements lists, from Python's package registry")
  pip_install build-infra -r $requirements || give_up "pip install failed" "see the messages above"
  missing=()
  cp $requirements build-infra/venv/installed
fi

# The Python environment of the wheel and its tests: build-python/venv, pinned. A PyTorch of 2.10 or newer that python3
# already has is used as it is.
torch=2.13.0
requirements=tests/python/requirements.txt
if [ "$set_name" = python ] && ! cmp -s $requirements build-python/venv/installed; then
  has_torch() { "$1" -c 'import torch, sys; sys.exit(tuple(map(int, torch.__version__.split(".")[:2])) < (2, 10))' > /dev/null 2>&1; }
  echo "setup: installing the Python packages of the tests into build-python/venv"
  mkdir -p build-python
  rm -rf build-python/venv
  python3 -m venv $(has_torch python3 && echo --system-site-packages) build-python/venv
  has_torch build-python/venv/bin/python || pip_install build-python "torch==$torch" ||
    echo "setup: torch $torch could not be installed: the operators are not built, their tests are skipped"
  missing=("what $requirements lists, from Python's package registry")
  pip_install build-python -r $requirements || give_up "pip install failed" "see the messages above"
  missing=()
  cp $requirements build-python/venv/installed
fi

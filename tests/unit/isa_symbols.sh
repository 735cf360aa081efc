#!/usr/bin/env bash
# isa_symbols.sh NM LIBRARY: in the objects that are compiled once per instruction set, every weak (shareable) symbol must
# belong to the namespace of its set. Otherwise the linker may hand the AVX-512 copy of an inline function to the rest
# of the program, which then dies on an older processor.
set -euo pipefail
stray=$("$1" -A -C "$2" 2>/dev/null | grep 'kernels.cpp' | grep -E ' [WVu] ' | grep -vE 'canopy::cpu::(baseline|avx2|avx512)::' || true)
objects=$("$1" -A -C "$2" 2>/dev/null | grep 'kernels.cpp' | grep -cE 'canopy::cpu::kernels_(baseline|avx2|avx512)$' || true)
if [ "$objects" -lt 1 ]; then
  echo "no object of src/cpu/kernels.cpp found in $2"
  exit 1
fi
if [ -n "$stray" ]; then
  printf 'shared symbols outside the namespace of their instruction set:\n%s\n' "$stray"
  exit 1
fi
echo "$objects objects, no stray symbol"

#!/usr/bin/env bash
# Builds the wheel into build-python/dist, prints its size, installs it into a clean environment and tries it there.
# scripts/wheel.sh [CMAKE DEFINE...] as in CANOPY_CUDA=OFF
set -euo pipefail
cd "$(dirname "$0")/.."
folder=build-python
log=$folder/wheel.log
export SKBUILD_CMAKE_DEFINE  # what --config-settings would say, which old pips do not know
SKBUILD_CMAKE_DEFINE=$(IFS=';' && echo "$*")

rm -rf $folder/dist
$folder/venv/bin/python -m pip wheel . --no-deps --no-build-isolation --disable-pip-version-check -w $folder/dist \
  -v > "$log" 2>&1 || { tail -40 "$log" >&2; exit 1; }
# What the build left out, and why.
sed -n 's/^ *-- \(.*: CPU only\|.*without PyTorch operators\)$/\1/p' "$log"
wheel=$(ls $folder/dist/*.whl)
size=$(stat -c %s "$wheel")
echo "$wheel: $((size / 1024)) KiB"
[ "$size" -le 30000000 ] || { echo "$wheel: expected at most 30 MB, got $size bytes; compile fewer instances" >&2; exit 1; }

rm -rf $folder/clean
python3 -m venv $folder/clean
$folder/clean/bin/python -m pip install --quiet --disable-pip-version-check "$wheel"
# In a folder of its own, so that nothing but the installed package can be found.
cd $folder/clean
bin/python -I - <<'EOF'
import sys

import canopy_gdn
import numpy as np

tree = canopy_gdn.Tree.from_choices([[0], [1], [0, 0]])
parents, count = canopy_gdn.batch([tree])
draw = np.random.default_rng(0).standard_normal
f = lambda *shape: draw(shape).astype(np.float32)
arguments = dict(q=f(1, 4, 1, 16), k=f(1, 4, 1, 16) / 4, v=f(1, 4, 2, 16), g=-abs(f(1, 4, 2)), beta=np.full((1, 4, 2), 0.5, np.float32),
                 state=f(1, 2, 16, 16), parents=parents, count=count)
error = abs(canopy_gdn.verify(**arguments) - canopy_gdn.oracle(**arguments)[0]).max()
assert error < 1e-5 and "torch" not in sys.modules, error
print(f"clean environment: canopy-gdn {canopy_gdn.__version__} verifies a tree of {len(tree)} nodes, largest error {error:.1e}")
EOF

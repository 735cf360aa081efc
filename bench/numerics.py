"""Errors of every implementation and precision by depth and by how alike the keys are: python3 bench/numerics.py [--quick].

Nothing is forgotten (gates 0, beta 1), which is where series lose their digits; and natural inputs beside it. Against the fp64 oracle.
Writes accuracy.jsonl into out/bench/MACHINE. The study of the solvers alone, in fp32 and fp64, is `canopy study` (docs/numerics.md).
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import command
from runner import Request
from shapes import of_family

NATURAL: dict[str, Any] = {"keys": "random", "gates": "natural", "betas": "natural"}
HARD: dict[str, Any] = {"gates": "zero", "betas": "one"}
KEYS: tuple[dict[str, Any], ...] = (
    {"keys": "random"}, {"keys": "similar", "cosine": 0.5}, {"keys": "similar", "cosine": 0.9}, {"keys": "similar", "cosine": 0.99},
    {"keys": "equal"})  # fmt: skip
TREES = (("chain", 8), ("chain", 16), ("chain", 32), ("chain", 64), ("chain", 128), ("chain", 256), ("best-first-4", 256))


def requests(device: str, quick: bool) -> list[Request]:
    """A few heads are enough, and the oracle takes most of the time."""
    inputs = [NATURAL, *(HARD | keys for keys in KEYS)]
    trees = [tree for tree in TREES if not quick or tree[1] in (16, 64, 256)]
    more = {"measure": "accuracy", "contenders": "all", "H": 2, "HV": 4}
    return [of_family(device, label, nodes, 1, **more, **chosen) for label, nodes in trees for chosen in inputs]


def run(chosen: argparse.Namespace) -> list[str]:
    return command.measure(chosen, "accuracy", requests(chosen.device, chosen.quick))


if __name__ == "__main__":
    sys.exit(command.main(run, __doc__))

"""Times of every contender on every shape (bench/shapes.py): python3 bench/sweep.py [--quick] [--device cpu|cuda] [--base COMMIT].

Writes sweep.jsonl, and peers.jsonl where PyTorch and Triton can measure on a GPU, into out/bench/MACHINE; again after an interruption, it
asks only what is missing. --base COMMIT builds that commit too, asks both in turn and says what became faster and slower; it keeps nothing.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import base
import command
import contenders
import shapes
from runner import Program, Request, name_of

WORKER = [sys.executable, str(Path(__file__).with_name("torch_worker.py"))]


def requests_of(chosen: argparse.Namespace, keep: Callable[[Request], bool] = lambda request: True) -> list[Request]:
    trees = shapes.published_trees(chosen.program)
    return [request for request in shapes.sweep(chosen.device, trees, chosen.quick, chosen.threads) if keep(request)]


def torch_has_a_gpu() -> bool:
    """Asked in a process of its own: this one never loads PyTorch."""
    if not contenders.torch_contenders():
        return False
    asked = "import sys, torch; sys.exit(not torch.cuda.is_available())"
    return subprocess.run([sys.executable, "-c", asked], capture_output=True).returncode == 0


def run(chosen: argparse.Namespace) -> list[str]:
    requests = requests_of(chosen, lambda request: chosen.only in name_of(request))
    failures = command.measure(chosen, "sweep", requests)
    if chosen.device == "cuda" and torch_has_a_gpu():
        # The worker's contenders take one state type and one shape of layer; their serial kernels keep 4 GiB of snapshots at the most.
        peers = [r for r in requests if r.get("measure", "time") == "time" and r["state"] == "f32" and r["HV"] == 32 and r["B"] * r["T"] <= 2048]
        failures += command.measure(chosen, "peers", peers, Program(WORKER), python=True)
    return failures


def options() -> argparse.ArgumentParser:
    parser = command.options(__doc__)
    parser.add_argument("--only", default="", metavar="FAMILY", help="only the families whose name holds this")
    parser.add_argument("--base", metavar="COMMIT", help="compare this checkout with another commit")
    return parser


def main(arguments: list[str] | None = None) -> int:
    chosen = command.parse(options(), arguments)
    if chosen.base:
        requests = requests_of(chosen, lambda request: chosen.only in name_of(request))
        return base.compare(chosen.base, chosen.program, requests)
    failures = run(chosen)
    for failure in failures:
        print(f"failed: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

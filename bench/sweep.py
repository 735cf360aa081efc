"""Times of every contender on every shape (bench/shapes.py): python3 bench/sweep.py [--quick] [--device cpu|cuda] [--base COMMIT].

Writes sweep.jsonl, and peers.jsonl where PyTorch and Triton can measure on a GPU, into out/bench/MACHINE; again after an interruption or
when the time of --seconds is over, it asks only what is missing. --base COMMIT builds that commit too, asks both in turn and says what became faster and slower; it keeps nothing.
"""

from __future__ import annotations

import argparse
import functools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import base
import command
import contenders
import records
import shapes
from runner import Program, Request, name_of

NEEDED = "cuda_fused,cuda_serial_resident,cuda_serial_snapshot,plan,floor"
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


def core(chosen: argparse.Namespace) -> list[str]:
    """What most tables are made of, on a GPU. A shape that some contender spoilt is asked once more of those that no table can lack."""
    requests = requests_of(chosen, lambda r: shapes.in_core(r) and chosen.only in name_of(r))
    failures = command.measure(chosen, "sweep", requests)
    if failures and not chosen.cut:
        failures += command.measure(chosen, "sweep", [request | {"contenders": NEEDED} for request in requests])
    return failures


def rest(chosen: argparse.Namespace) -> list[str]:
    """All other shapes: after a core, of those contenders that it left in the running for trees of half to twice the nodes."""
    requests = requests_of(chosen, lambda r: not shapes.in_core(r) and chosen.only in name_of(r))
    if chosen.folder and chosen.device == "cuda" and not chosen.quick:
        cells = [record for record in records.read(chosen.folder / "sweep.jsonl") if record["type"] == "cell"]

        @functools.cache
        def running(T: int, stash: bool) -> list[str]:
            found = contenders.contending([cell for cell in cells if T <= 2 * cell["T"] <= 4 * T], stash=stash)
            return [*found, *([] if stash else ["floor"])] if found else []

        named = [running(r["T"], r.get("stash", False)) for r in requests]
        requests = [r | {"contenders": ",".join(names)} if names else r for r, names in zip(requests, named, strict=True)]
    return command.measure(chosen, "sweep", requests)


def peers(chosen: argparse.Namespace) -> list[str]:
    """Chains and best-first trees of the core, those of the tables first, in at most an eighth of the time: shapes may want kernels compiled."""
    if chosen.device != "cuda" or not torch_has_a_gpu():
        return []

    def keep(r: Request) -> bool:
        timed = r.get("measure", "time") == "time" and (r["HV"], r["state"]) == (32, "f32")  # the layer that the worker's contenders take
        return timed and name_of(r) in shapes.PLAIN and chosen.only in name_of(r) and (chosen.quick or shapes.in_core(r))

    requests = sorted(requests_of(chosen, keep), key=lambda r: r["T"] not in (16, 64, 128, 256))
    worker = Program(WORKER, patience=max(60.0, chosen.seconds / 6) if chosen.seconds else 900.0)
    return command.measure(chosen, "peers", requests, worker, python=True, share=0.125)


def run(chosen: argparse.Namespace) -> list[str]:
    return [*core(chosen), *rest(chosen), *peers(chosen)]


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

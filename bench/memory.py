"""Peak transient memory, measured: snapshots, stash and resolve, for one layer and for 24: python3 bench/memory.py [--quick].

On a GPU it is what the device's free memory falls by, on a CPU the growth of the process's resident pages (cli/bench_memory.cpp).
Writes memory.jsonl into out/bench/MACHINE.
"""

from __future__ import annotations

import argparse
import sys

import command
from runner import Request
from shapes import of_family

LAYERS = (1, 24)


def requests(device: str, quick: bool) -> list[Request]:
    batches = (1,) if quick or device == "cpu" else (1, 4, 16)
    nodes = (128,) if quick else (8, 32, 64, 100, 128, 200, 256)
    return [of_family(device, "best-first-4", n, batch, measure="memory", layers=layers) for batch in batches for n in nodes for layers in LAYERS]


def run(chosen: argparse.Namespace) -> list[str]:
    return command.measure(chosen, "memory", requests(chosen.device, chosen.quick))


if __name__ == "__main__":
    sys.exit(command.main(run, __doc__))

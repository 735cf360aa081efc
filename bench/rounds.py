"""Drift: rounds of verify and commit beside an fp64 model that takes the same path: python3 bench/rounds.py [--quick].

100 and 500 rounds, natural inputs and inputs that forget nothing; error of state and outputs, and how often the best of 256 projections of
o is another one than the model's. Writes rounds.jsonl into out/bench/MACHINE.
"""

from __future__ import annotations

import argparse
import sys

import command
from runner import Request
from shapes import of_family


def requests(device: str, quick: bool) -> list[Request]:
    layer = {"H": 2, "HV": 4} if quick or device == "cpu" else {}
    common = {"measure": "rounds", "contenders": "all" if device == "cuda" else "fast"} | layer
    natural = [of_family(device, "best-first-4", 16, 1, rounds=rounds, **common) for rounds in ((100,) if quick else (100, 500))]
    hard = of_family(device, "best-first-4", 16, 1, rounds=100, gates="zero", betas="one", **common)
    return [*natural, hard, of_family(device, "best-first-4", 16, 1, rounds=100, state="bf16", **common)]


def run(chosen: argparse.Namespace) -> list[str]:
    return command.measure(chosen, "rounds", requests(chosen.device, chosen.quick))


if __name__ == "__main__":
    sys.exit(command.main(run, __doc__))

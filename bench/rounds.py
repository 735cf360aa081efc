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
    common = {"measure": "rounds", "contenders": "all" if device == "cuda" else "fast", "H": 2, "HV": 4}
    lengths = (100,) if quick else (500,) if device == "cuda" else (100, 500)  # records of 500 rounds say how it stood after 100
    natural = [of_family(device, "best-first-4", 16, 1, rounds=rounds, **common) for rounds in lengths]
    hard = of_family(device, "best-first-4", 16, 1, rounds=100, gates="zero", betas="one", **common)
    return [*natural, hard, of_family(device, "best-first-4", 16, 1, rounds=100, state="bf16", **common)]


def run(chosen: argparse.Namespace) -> list[str]:
    return command.measure(chosen, "rounds", requests(chosen.device, chosen.quick))


if __name__ == "__main__":
    sys.exit(command.main(run, __doc__))

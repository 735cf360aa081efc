"""The environment record of a run: python3 bench/env.py [--device cpu|cuda].

What the program says of machine, build and GPU (clocks, temperature and power now), the versions of the Python packages that measure,
the day, and an id that the cells carry.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import sys
from pathlib import Path

import records
from records import Record
from runner import Program

PACKAGES = ("torch", "triton", "flash-linear-attention", "fla-core", "sglang", "canopy-gdn",  # fla-core holds its kernels
            "nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12")  # the CUDA runtime of PyTorch  # fmt: skip


def packages() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def environment(program: Program, device: str, threads: int = 1, python: bool = False) -> Record:
    """`python`: the packages too, where Python measures."""
    request = {"measure": "environment", "device": device} | ({"threads": threads} if device == "cpu" else {})
    record = program.ask(request)[0]
    if python:
        record["packages"] = packages()
    return records.tidy_environment(record, datetime.date.today().isoformat())


def close_file(path: Path, program: Program, device: str) -> None:
    """Clocks, temperature and power after a run, into the environment record of its file."""
    if device == "cpu":
        return
    after = environment(program, device)["gpu"]["before"]
    held = records.read(path)
    held[0]["gpu"]["after"] = after
    records.write(path, held)


if __name__ == "__main__":
    import command  # which needs this module

    chosen = command.parse(command.options(__doc__))
    json.dump(environment(command.serve(chosen.program), chosen.device, chosen.threads, python=True), sys.stdout, indent=2)
    print()

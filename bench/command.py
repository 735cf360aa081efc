"""What every measuring command shares: its options, where it writes, and one result file filled."""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import env
import records
from runner import Program, Request, fill

PROGRAM = str(records.ROOT / "build/canopy")


def serve(program: str) -> Program:
    return Program([program, "bench", "--requests", "-"])


def default_device(program: str) -> str:
    """cuda where the program has CUDA implementations that this machine can run."""
    said = json.loads(subprocess.run([program, "env", "--json"], capture_output=True, text=True, check=True).stdout)
    usable = any(entry["usable"] and entry["name"].startswith("cuda_") for entry in said["implementations"])
    return "cuda" if usable else "cpu"


def options(text: str | None) -> argparse.ArgumentParser:
    """What every measuring command takes."""
    parser = argparse.ArgumentParser(description=(text or "").partition("\n")[0])
    parser.add_argument("--program", default=PROGRAM, help="the built program (build/canopy)")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda where it can run")
    parser.add_argument("--threads", type=int, default=1, help="OpenMP threads (CPU)")
    parser.add_argument("--quick", action="store_true", help="the ends of every axis: within five minutes of GPU time")
    parser.add_argument("--seconds", type=float, help="ask nothing more after so long, 0: no limit (on a GPU 480, with --quick 300)")
    parser.add_argument("--out", type=Path, help="the folder to write to (out/bench/MACHINE)")
    return parser


def parse(parser: argparse.ArgumentParser, arguments: list[str] | None = None) -> argparse.Namespace:
    chosen = parser.parse_args(arguments)
    if not Path(chosen.program).exists():
        parser.error(f"--program {chosen.program}: no such file; make build makes it")
    if chosen.seconds is not None and not 0 <= chosen.seconds < math.inf:
        parser.error(f"--seconds {chosen.seconds:g}: expected 0 (no limit) or more")
    chosen.device = chosen.device or default_device(chosen.program)
    if chosen.seconds is None:
        chosen.seconds = 0 if chosen.device == "cpu" else 300 if chosen.quick else 480
    chosen.folder = None  # known once something was measured
    chosen.cut = 0  # requests that the time did not suffice for
    chosen.until = time.monotonic() + chosen.seconds if chosen.seconds > 0 else math.inf
    return chosen


def folder(chosen: argparse.Namespace, environment: records.Record) -> Path:
    """Where a run writes until it is published: quick ones apart from whole ones."""
    return chosen.out or records.ROOT / "out/bench" / (records.machine_id(environment) + ("-quick" if chosen.quick else ""))


def measure(
    chosen: argparse.Namespace, name: str, requests: list[Request], program: Program | None = None, python: bool = False, share: float = 1
) -> list[str]:
    """Fills NAME.jsonl of this machine; what failed, in words. `program` answers in place of `canopy bench --requests`; `share` of all the
    time that was given is the most that it takes."""
    if not requests:
        return []
    own = serve(chosen.program)
    try:
        environment = env.environment(own, chosen.device, chosen.threads, python)
        chosen.folder = folder(chosen, environment)
        path = chosen.folder / f"{name}.jsonl"
        until = min(chosen.until, time.monotonic() + share * chosen.seconds) if chosen.seconds else math.inf
        asked = program or own
        failures, cut = fill(path, environment, requests, asked.ask, until, *([asked.announce] if chosen.device == "cuda" else []))
        chosen.cut += cut
        env.close_file(path, own, chosen.device)
        return failures
    finally:
        own.close()
        if program:
            program.close()


def main(run: Callable[[argparse.Namespace], list[str]], text: str | None, arguments: list[str] | None = None) -> int:
    """A measuring module's own command; 1 if anything failed."""
    failures = run(parse(options(text), arguments))
    for failure in failures:
        print(f"failed: {failure}", file=sys.stderr)
    return 1 if failures else 0

"""Everything, with one command: python3 bench/referee.py [--quick] (`make bench`). Again after an interruption, it goes on where it stopped.

Sweep, peers, memory, errors and drift into out/bench/MACHINE; then, unless --quick, the folder is published as results/MACHINE and the
dispatch tables and the tables of the documents are made from it. docs/benchmarks.md says what to commit.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

import command
import dispatch
import env
import memory
import numerics
import report
import rounds
import schema
import sweep
from records import ROOT, machine_id

NAMES = ("sweep", "peers", "memory", "accuracy", "rounds")


def publish(measured: Path, machine: str, results: Path) -> Path:
    """Files of this run in place of the machine's older ones; a part that was not run keeps its older file."""
    folder = results / machine
    folder.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        source = measured / f"{name}.jsonl"
        if source.exists():
            shutil.copyfile(source, folder / source.name)
    return folder


def build_again(program: str) -> None:
    """The dispatch tables are compiled in. Only the build folder of the Makefile is known how to be built."""
    if Path(program).resolve() == (ROOT / "build/canopy").resolve():
        subprocess.run(["ninja", "-C", str(ROOT / "build"), "--quiet", "canopy"], check=False)


def measure(chosen: argparse.Namespace) -> list[str]:
    failures: list[str] = []
    for part in (sweep, memory, numerics, rounds):
        failures += [f"{part.__name__}: {failure}" for failure in part.run(chosen)]
    return failures


def main(arguments: list[str] | None = None) -> int:
    parser = command.options(__doc__)
    parser.add_argument("--results", type=Path, default=ROOT / "results", help=argparse.SUPPRESS)  # tests publish elsewhere
    chosen = command.parse(parser, arguments)
    chosen.only = ""
    own = command.serve(chosen.program)
    environment = env.environment(own, chosen.device, chosen.threads)
    own.close()
    measured, machine = command.folder(chosen, environment), machine_id(environment)
    print(f"{machine}: {'quick' if chosen.quick else 'whole'} run of commit {environment['commit']} into {measured}", file=sys.stderr)
    failures = measure(chosen)
    status = schema.main([str(path) for path in sorted(measured.glob("*.jsonl"))])
    for failure in failures:
        print(f"failed: {failure}", file=sys.stderr)
    if chosen.quick or status:
        return 1 if failures or status else 0
    folder = publish(measured, machine, chosen.results)
    print(f"published in {folder}; docs/benchmarks.md says what to commit")
    if chosen.results == ROOT / "results":
        try:
            status |= dispatch.main(["--program", chosen.program])
            build_again(chosen.program)
        except SystemExit as why:  # the table breaks its rule on some cell: the results are kept, the older table too
            print(why, file=sys.stderr)
            status = 1
        status |= report.main([])
    return 1 if failures or status else 0


if __name__ == "__main__":
    sys.exit(main())

"""Everything, with one command: python3 bench/referee.py [--quick] (`make bench`). Again, after an interruption or when the time of
--seconds was over, it goes on where it stopped.

The core of the sweep, memory, errors, drift, the tree convolution, peers and the rest of the sweep, so that what most hangs on comes first, into
out/bench/MACHINE; then, unless --quick, the folder is published as results/MACHINE and the dispatch tables and the tables of the documents
are made from it. docs/benchmarks.md says what to commit.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

import command
import conv
import dispatch
import env
import memory
import numerics
import records
import report
import rounds
import schema
import sweep
from records import ROOT, machine_id

NAMES = ("sweep", "peers", "memory", "accuracy", "rounds", "conv")


def publish(measured: Path, machine: str, results: Path) -> Path:
    """Files of this run in place of the machine's older ones; a part that gave nothing keeps its older file."""
    folder = results / machine
    folder.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        source = measured / f"{name}.jsonl"
        if any(record["type"] != "environment" for record in records.read(source)):
            shutil.copyfile(source, folder / source.name)
    return folder


def build_again(program: str) -> None:
    """The dispatch tables are compiled in. Only the build folder of the Makefile is known how to be built."""
    if Path(program).resolve() == (ROOT / "build/canopy").resolve():
        subprocess.run(["ninja", "-C", str(ROOT / "build"), "--quiet", "canopy"], check=False)


def measure(chosen: argparse.Namespace) -> list[str]:
    failures: list[str] = []
    parts = (sweep.core, memory.run, numerics.run, rounds.run, conv.run, sweep.peers, sweep.rest)
    for part in parts:
        failures += [f"{part.__module__}: {failure}" for failure in part(chosen)]
    return failures


def main(arguments: list[str] | None = None) -> int:
    parser = command.options(__doc__)
    parser.add_argument("--results", type=Path, default=ROOT / "results", help=argparse.SUPPRESS)  # tests publish elsewhere
    parser.add_argument("--publish", action="store_true", help="publish what there is, though the time did not suffice for all")
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
    if chosen.cut:
        print(f"the time did not suffice for {chosen.cut} requests: the same command again goes on with them", file=sys.stderr)
    if chosen.quick or status or (chosen.cut and not chosen.publish):
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

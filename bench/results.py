"""The result files as tables see them, and numbers as tables write them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import records
from records import Record

ONE_SOLVE = {"cpu": "cpu_closed_form", "cuda": "cuda_fused"}
SERIAL = ("serial_resident", "serial_snapshot")
NOT_MEASURED = "not measured"


class Missing(Exception):
    """A text asks for what no result file holds."""


class Results:
    """Records by machine: results/MACHINE.jsonl, or all files of results/MACHINE/. Studies and papers' numbers belong to none."""

    def __init__(self, folder: Path) -> None:
        self.cells: dict[str, list[Record]] = {}
        self.machines: dict[str, Record] = {}  # the environment of most of the cells
        self.commits: dict[str, Counter[str]] = {}  # of the cells
        self.last: Record = {}
        self.others: dict[tuple[str, str], list[Record]] = {}  # by type and machine: memory, rounds, accuracy
        self.study: list[Record] = []
        self.published: list[Record] = []
        for path in records.all_files(folder):
            machine = path.relative_to(folder).parts[0].removesuffix(".jsonl")
            for record in records.read(path):
                self.add(machine, record)

    def add(self, machine: str, record: Record) -> None:
        kind = record.get("type")
        if kind == "cell":
            self.cells.setdefault(machine, []).append(record)
            commits, commit = self.commits.setdefault(machine, Counter()), self.last.get("commit", "unknown")
            commits[commit] += 1
            if commits[commit] > commits[self.machines.setdefault(machine, self.last).get("commit", "unknown")]:
                self.machines[machine] = self.last
        elif kind == "environment":
            self.last = record
        elif kind == "published":
            self.published.append(record)
        elif kind == "study":
            self.study.append(record)
        else:
            self.others.setdefault((str(kind), machine), []).append(record)

    def device(self, machine: str) -> str:
        return self.cells[machine][0]["device"]

    def cache(self, machine: str) -> str:
        """What is compared: cold where it was measured, as a layer finds its state in a step of a model."""
        return "cold" if any(cell["cache"] == "cold" for cell in self.cells[machine]) else "warm"

    def hardware(self, machine: str) -> str:
        """The machine in words."""
        environment = self.machines.get(machine, {})
        gpu = environment.get("gpu")
        return gpu["name"] if isinstance(gpu, dict) else f"{environment.get('cpu', machine)}, {environment.get('threads', '?')} thread"

    def name(self, machine: str) -> str:
        """The machine, and the commit that most of its cells are of."""
        return f"{self.hardware(machine)} (commit {self.machines.get(machine, {}).get('commit', 'unknown')})"

    def find(self, machine: str, **wanted: Any) -> list[Record]:
        """The cells with these fields; H16 HV32, an fp32 state and o alone unless asked otherwise."""
        wanted = {"HV": 32, "state": "f32", "stash": None} | wanted
        return [cell for cell in self.cells.get(machine, []) if all(cell.get(name) == value for name, value in wanted.items())]

    def best_first(self, machine: str, T: int, **wanted: Any) -> list[Record]:
        """Bole's shapes: top-4, at most 8 deep. Files name the family with and without its top-k."""
        return [cell for family in ("best-first", "best-first-4") for cell in self.find(machine, T=T, family=family, **wanted) if cell["depth"] <= 8]

    def times(self, cells: Iterable[Record]) -> dict[str, float]:
        """Median by contender."""
        return {cell["contender"]: cell["median_us"] for cell in cells}

    def of_type(self, kind: str) -> dict[str, list[Record]]:
        return {machine: found for (of, machine), found in self.others.items() if of == kind}


def us(value: float) -> str:
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def error(value: float | None) -> str:
    return "overflow" if value is None else f"{value:.1e}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")


def size(count: float) -> str:
    kib = 1 << 10
    return f"{count / kib**3:.2f} GiB" if count >= kib**3 else f"{count / kib**2:.1f} MiB" if count >= kib**2 else f"{count / kib:.0f} KiB"


def table(head: Iterable[Any], rows: Iterable[Iterable[Any]]) -> str:
    head = list(head)
    lines = ["| " + " | ".join(map(str, head)) + " |", "|---|" + "---:|" * (len(head) - 1)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows])


def ordered(values: Iterable[Any]) -> str:
    return ", ".join(map(str, sorted(values, key=lambda v: (isinstance(v, str), v))))

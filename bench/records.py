"""Result files: read, written, told apart. Plain dictionaries, one a line (bench/schema.json)."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results"
Record = dict[str, Any]


def read(path: Path) -> list[Record]:
    """The records of a file; a last line that was cut off (a killed run) is left out."""
    records = []
    lines = path.read_text().splitlines() if path.exists() else []
    for number, line in enumerate(lines, 1):
        try:
            records.append(json.loads(line))
        except ValueError:
            if number < len(lines):
                raise ValueError(f"{path}:{number}: not JSON; expected a record a line") from None
    return records


def write(path: Path, records: Iterable[Record]) -> None:
    """Through a neighbour, so that a failure leaves the old file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    neighbour = path.with_name(path.name + ".new")
    neighbour.write_text("".join(line(record) for record in records))
    os.replace(neighbour, path)


def line(record: Record) -> str:
    return json.dumps(record, separators=(",", ":"), allow_nan=False) + "\n"


def all_files(results: Path = RESULTS) -> list[Path]:
    return sorted(results.rglob("*.jsonl"))


def environment_id(environment: Record) -> str:
    """Eight digits of the record's hash, without what changes from run to run on one machine and commit."""
    gpu = environment.get("gpu")
    same = {name: value for name, value in environment.items() if name not in ("id", "gpu", "peak_flops", "date", "schema")}
    same["gpu"] = {k: v for k, v in gpu.items() if k not in ("before", "after")} if isinstance(gpu, dict) else gpu
    return hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()[:8]


def tidy_environment(environment: Record, date: str | None = None) -> Record:
    """As it is kept: the kernel's version without its builder's suffix, an id, the day."""
    tidy = dict(environment)
    tidy["schema"] = 1
    if "system" in tidy:
        tidy["system"] = re.sub(r"^(\S+ \d+\.\d+)\S*", r"\1", tidy["system"])
    if date:
        tidy["date"] = date
    tidy["id"] = environment_id(tidy)
    return tidy


def attach(record: Record, environment: Record) -> Record:
    """A record of a run, with the commit and the environment that it belongs to."""
    return {**record, "commit": environment["commit"], "environment": environment["id"]}


def error_of(record: Record) -> str:
    """What a record's error is of. Files from before that was said: o as it was timed, in f32 on a CPU, in the type of the inputs on a GPU."""
    return str(record.get("error_of") or f"o in {'f32' if record['device'] == 'cpu' else record.get('input', 'bf16')}")


def machine_id(environment: Record) -> str:
    """"gpu-h200", "cpu-amd-epyc": the name of its files."""
    gpu = environment.get("gpu")
    name = re.sub(r"^NVIDIA (GeForce )?", "", gpu["name"]) if isinstance(gpu, dict) else environment["cpu"]
    name = re.sub(r"\(R\)|\(TM\)|\bCPU\b|\bProcessor\b|@.*", " ", name)
    return ("gpu-" if isinstance(gpu, dict) else "cpu-") + re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def quantile(values: list[float], q: float) -> float:
    """The value of the nearest rank, as the program's (cli/measure.cpp)."""
    return sorted(values)[int(q * (len(values) - 1) + 0.5)]


def four_digits(value: float) -> float:
    """As the program rounds what it records (cli/bench_record.cpp)."""
    return float(f"{value:.4g}")

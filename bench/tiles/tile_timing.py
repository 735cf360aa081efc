"""Variants timed by the built program, what was measured kept in a file, the best chosen; standard library alone."""

from __future__ import annotations

import json
import math
import os
import select
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tile_rows import SIZES, architecture_of, find_row, shapes_of, with_cta

BETTER = 0.01  # by how much a variant has to be faster to be taken
SILENCE = 60.0  # seconds after which a variant is said to hang


def read_state(folder: Path, missing_ok: bool = False) -> dict[str, Any]:
    path = folder / "tiles.json"
    if not path.exists():
        if missing_ok:
            return {}
        raise SystemExit(f"tune-tiles: {path} is missing: `tune_tiles.py build --arch ARCHITECTURE -o {folder}` first")
    return json.loads(path.read_text())


def read_times(folder: Path) -> list[dict[str, Any]]:
    path = folder / "times.jsonl"
    records = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            records.append(json.loads(line))
        except ValueError:  # cut off
            continue
    return records


class Recorded:
    """What has been measured; of the same thing the last counts."""

    def __init__(self, records: list[dict[str, Any]]):
        self.failed: dict[str, str] = {}
        self.times: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.gpus = {record["gpu"] for record in records if "gpu" in record}
        for record in records:
            if "failed" in record:
                self.failed[record["variant"]] = record["failed"]
            elif "us" in record:
                self.times[record["variant"], record["shape"], record["cache"]] = record

    def left(self, family: str, variants: list[str]) -> list[str]:
        """Shapes that someone who can still win has no times of."""
        alive = [name for name in variants if name not in self.failed]
        return [
            shape
            for shape in shapes_of(family)
            if any((name, shape, cache) not in self.times for name in alive for cache in ("cold", "warm"))
        ]

    def ratio(self, name: str, present: str, family: str) -> tuple[float, float]:
        """Geometric mean and the largest of its times over the present one's."""
        each = [
            self.times[name, shape, cache]["us"] / self.times[present, shape, cache]["us"]
            for shape in shapes_of(family)
            for cache in ("cold", "warm")
        ]
        return math.exp(sum(map(math.log, each)) / len(each)), max(each)


def lines_of(process: subprocess.Popen[str]) -> Iterator[dict[str, Any] | None]:
    """What the program says, then None if it fell silent and was stopped."""
    assert process.stdout is not None
    held, limit = b"", 10 * SILENCE  # until its first line: a driver that wakes up
    while True:
        ready, _, _ = select.select([process.stdout], [], [], limit)
        if not ready:
            process.kill()
            yield None
            return
        more = os.read(process.stdout.fileno(), 65536)
        if not more:
            return
        limit = SILENCE
        *lines, held = (held + more).split(b"\n")
        for line in lines:
            yield json.loads(line)


def time_family(folder: Path, family: str, state: dict[str, Any], share: float) -> None:
    variants = [v for v in state["variants"] if v["family"] == family and not v["dropped"]]
    names = [v["name"] for v in variants]
    while True:
        recorded = Recorded(read_times(folder))
        left = recorded.left(family, names)
        alive = [v for v in variants if v["name"] not in recorded.failed]
        if not left or not alive:
            return
        seconds, all_shapes = left_seconds(left, len(alive), share), len(shapes_of(family))
        print(
            f"{family}: {len(alive)} variants, {len(left)} of {all_shapes} shapes left, some {seconds:.0f} s",
            flush=True,
        )
        command = [
            str((folder / "tile_times").resolve()),
            *(f"{v['name']}={folder / v['file']}" for v in alive),
            *left,
            str(share),
        ]
        trying, gpu, silent = None, "", False
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process, (folder / "times.jsonl").open("a") as to:
            for line in lines_of(process):
                if line is None:
                    silent = True
                    break
                gpu = line.get("gpu", gpu)
                if "gpu" in line and architecture_of(f"sm_{line['architecture']}") != state["architecture"]:
                    process.kill()
                    raise SystemExit(
                        f"tune-tiles: {folder} was built for {state['target']}, "
                        f"this is a {gpu} of {line['architecture']}"
                    )
                trying = None if "timing" in line else line.get("trying", trying)
                if "variant" in line:
                    to.write(json.dumps(line | {"gpu": gpu}) + "\n")
                    to.flush()
        if process.returncode == 0:
            continue
        if trying is None:
            raise SystemExit(f"tune-tiles: {command[0]} failed (status {process.returncode})")
        if trying in Recorded(read_times(folder)).failed:
            continue
        why = "does not end" if silent else f"stops the program (status {process.returncode})"
        print(f"  {trying}: {why}; left out", flush=True)
        with (folder / "times.jsonl").open("a") as to:
            to.write(json.dumps({"variant": trying, "failed": why}) + "\n")


def left_seconds(shapes: list[str], variants: int, share: float) -> float:
    """Problem, oracle and copies, then two states of the caches."""
    return sum(1.0 + 0.1 * int(shape.split(",")[4]) + 2 * variants * (share + 0.02) for shape in shapes)


def choose(state: dict[str, Any], recorded: Recorded) -> dict[str, str]:
    """By family the best variant's name: the present one unless another is faster by BETTER."""
    best = {}
    for family in dict.fromkeys(v["family"] for v in state["variants"]):
        usable = [
            v
            for v in state["variants"]
            if v["family"] == family and not v["dropped"] and v["name"] not in recorded.failed
        ]
        present = next((v["name"] for v in usable if v["present"]), None)
        if present is None or recorded.left(family, [v["name"] for v in usable]):
            continue
        fastest = min(usable, key=lambda v: recorded.ratio(v["name"], present, family)[0])["name"]
        best[family] = fastest if recorded.ratio(fastest, present, family)[0] <= 1 - BETTER else present
    return best


def best_row(state: dict[str, Any], best: dict[str, str]) -> str:
    row = state["row"]
    for variant in state["variants"]:
        if best.get(variant["family"]) == variant["name"]:
            row = with_cta(row, variant["family"], tuple(variant["cta"]))
    return row


def show(state: dict[str, Any], recorded: Recorded, best: dict[str, str]) -> None:
    for family in dict.fromkeys(v["family"] for v in state["variants"]):
        variants = [v for v in state["variants"] if v["family"] == family]
        present = next(v["name"] for v in variants if v["present"])
        width = max(len(v["name"]) for v in variants) + 2
        batch, _ = SIZES[family]
        shapes = shapes_of(family)
        heads = [f"{shape.split(',')[0][:5]} {shape.split(',')[3]}" for shape in shapes]
        print(f"\n{family}, B={batch}: us cold / warm, and all of them beside the present CTA")
        print(" " * width + "".join(f"{head:>14}" for head in heads))
        for variant in variants:
            name = variant["name"]
            why = variant["dropped"] or recorded.failed.get(name, "")
            if why:
                print(f"{name:<{width}}  {why}")
                continue
            cells = [
                [recorded.times.get((name, shape, cache), {}).get("us") for cache in ("cold", "warm")]
                for shape in shapes
            ]
            text = "".join(f"{'-' if None in cell else f'{cell[0]:.2f}/{cell[1]:.2f}':>14}" for cell in cells)
            note = ""
            if family in best:
                mean, largest = recorded.ratio(name, present, family)
                note = f"  {mean:.3f}" + (f", at most {largest:.2f}" if largest > 1.02 else "")
                note += "  present" if variant["present"] else ""
                note += "  best" if best[family] == name else ""
            print(f"{name:<{width}}{text}{note}")
        if family not in best:
            left = recorded.left(family, [v["name"] for v in variants if not v["dropped"]])
            print(f"  left: {len(left)} of {len(shapes)} shapes")


def write_row(state: dict[str, Any], row: str, table: Path) -> None:
    if not table.exists():
        raise SystemExit(
            f"tune-tiles: {table} is missing: --write from a checkout, scripts/tune_tiles.py time FOLDER --write"
        )
    text = table.read_text()
    start, end = find_row(text, state["architecture"])
    if text[start:end] != state["row"]:
        raise SystemExit(
            f"tune-tiles: the row of {state['architecture']} in {table} is no longer what was built; build again"
        )
    table.write_text(text[:start] + row + text[end:])


def time_all(folder: Path, families: list[str] | None, share: float, table: Path | None) -> None:
    """`table`: where the best row is to be written, if it is."""
    state = read_state(folder)
    if not all("dropped" in v for v in state["variants"]):
        raise SystemExit("tune-tiles: the build was stopped; it goes on where it was")
    families = families or list(dict.fromkeys(v["family"] for v in state["variants"]))
    try:
        for family in families:
            time_family(folder, family, state, share)
    except KeyboardInterrupt:
        print("stopped; the same command goes on from here")
    recorded = Recorded(read_times(folder))
    if len(recorded.gpus) > 1:
        gpus = " and of ".join(sorted(recorded.gpus))
        raise SystemExit(f"tune-tiles: times of {gpus} in {folder}: remove times.jsonl and time again")
    best = choose(state, recorded)
    show(state, recorded, best)
    row = best_row(state, best)
    if row == state["row"]:
        print(f"\nthe present row of {state['architecture']} stands" if best else "\nnothing is complete yet")
        return
    print(f"\nfor src/cuda/tuning.hpp, measured on {' '.join(recorded.gpus)}:\n\n    {row}")
    if table:
        write_row(state, row, table)
        print(f"written to {table}; build, and run the parity tests (make gpu-test) before it is kept")

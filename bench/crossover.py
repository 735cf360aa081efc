"""Where one solve stops winning: maps of serial time over one solve, from the result files: python3 bench/crossover.py [MACHINE...].

Two maps against both serial kernels: depth by width (spines whose levels all have as many nodes) and T by batch (chains and best-first
trees). Above 1 one solve is faster. `crossover` is the table of all trees; the dispatcher's own answer is made by bench/dispatch.py.
"""

from __future__ import annotations

import collections
import sys
from collections.abc import Iterator
from typing import Any

import records
from records import Record
from results import ONE_SOLVE, SERIAL, Results, table

MAPPED = {"chain": ("chain",), "best-first, top-4, depth 8": ("best-first", "best-first-4")}


def ratios(results: Results, machine: str, cells: list[Record]) -> tuple[float, ...]:
    """Time of the resident and of the snapshot kernel over that of one solve; empty where one of them is missing."""
    times, device = results.times(cells), results.device(machine)
    names = [ONE_SOLVE[device], *(f"{device}_{kind}" for kind in SERIAL)]
    return tuple(times[name] / times[names[0]] for name in names[1:]) if all(name in times for name in names) else ()


def entry(pair: tuple[float, ...]) -> str:
    return " / ".join(f"{ratio:.2f}" if ratio < 9.995 else f"{ratio:.0f}" for ratio in pair)


def depth_by_width(results: Results, machine: str, B: int) -> dict[tuple[int, int], tuple[float, ...]]:
    """(levels, width) -> ratios, of trees whose levels all have `width` nodes but the root's."""
    groups = collections.defaultdict(list)
    for cell in results.find(machine, B=B, cache=results.cache(machine)):
        levels = cell["depth"] + 1
        if cell["family"] == "spine" and cell["T"] % levels == 0 or cell["family"] == "chain":
            groups[levels, cell["T"] // levels].append(cell)
    found = {at: ratios(results, machine, cells) for at, cells in groups.items()}
    return {at: pair for at, pair in found.items() if pair}


def nodes_by_batch(results: Results, machine: str, families: tuple[str, ...]) -> dict[tuple[int, int], tuple[float, ...]]:
    """(T, B) -> ratios."""
    groups = collections.defaultdict(list)
    for cell in results.find(machine, cache=results.cache(machine)):
        if cell["family"] in families and (cell["family"] == "chain" or cell["depth"] <= 8):
            groups[cell["T"], cell["B"]].append(cell)
    found = {at: ratios(results, machine, cells) for at, cells in groups.items()}
    return {at: pair for at, pair in found.items() if pair}


def grid(corner: str, found: dict[tuple[int, int], tuple[float, ...]], across: str) -> str:
    rows, columns = (sorted({at[axis] for at in found}) for axis in (0, 1))
    return table([corner, *(f"{across} {column}" for column in columns)],
                 [[row, *(entry(found.get((row, column), ())) for column in columns)] for row in rows])  # fmt: skip


def maps(results: Results) -> str:
    """Every map that the files allow, each with its heading."""
    parts = []
    for machine in results.cells:
        for words, families in MAPPED.items():
            found = nodes_by_batch(results, machine, families)
            if found:
                parts.append(f"{results.name(machine)}, {words}, {results.cache(machine)}:\n\n" + grid("T", found, "B ="))
        for B in sorted({cell["B"] for cell in results.cells[machine]}):
            found = depth_by_width(results, machine, B)
            if len({width for _, width in found}) > 1:
                title = f"{results.name(machine)}, B = {B}, levels by nodes a level, {results.cache(machine)}"
                parts.append(f"{title}:\n\n" + grid("levels", found, "width"))
    return "\n\n".join(parts)


def by_tree(results: Results, machine: str) -> Iterator[tuple[tuple[int, int, str], str, dict[tuple[Any, ...], float]]]:
    """(B, HV, state), serial kernel, {(T, family, depth): serial time / one solve}."""
    device, cache = results.device(machine), results.cache(machine)
    groups: dict[Any, Any] = collections.defaultdict(lambda: collections.defaultdict(dict))
    for cell in results.cells[machine]:
        if cell["cache"] == cache and cell.get("keys", "random") == "random" and not (cell.get("raw_gates") or cell.get("stash")):
            groups[cell["B"], cell["HV"], cell["state"]][cell["T"], cell["family"], cell["depth"]][cell["contender"]] = cell["median_us"]
    for key, trees in sorted(groups.items()):
        for kind in SERIAL:
            serial, one = f"{device}_{kind}", ONE_SOLVE[device]
            pairs = {tree: times[serial] / times[one] for tree, times in sorted(trees.items()) if {serial, one} <= times.keys()}
            if pairs:
                yield key, kind, pairs


def crossover(results: Results) -> str:
    """Where one solve is slower than a serial kernel, and from which T on it never is, over all families of a batch."""
    rows = []
    for machine in results.cells:
        for (B, HV, state), kind, pairs in by_tree(results, machine):
            lost = {tree: ratio for tree, ratio in pairs.items() if ratio < 1}
            most = max((T for T, *_ in lost), default=0)
            since = [T for T, *_ in pairs if T > most]
            where = ", ".join(f"{family} T={T} ({ratio:.{3 if ratio > 0.99 else 2}f}x)" for (T, family, _), ratio in list(lost.items())[:8])
            where += f" and {len(lost) - 8} more" if len(lost) > 8 else ""
            rows.append([f"{machine}, HV {HV}, state {state}", B, results.cache(machine), kind.replace("_", " "), len(pairs),
                         f"{min(pairs.values()):.2f} to {max(pairs.values()):.1f}x", where or "nowhere", f"T={min(since)}" if since else "no T"])  # fmt: skip
    return table(["file", "batch", "cache", "against", "trees", "serial time / one solve", "one solve is slower", "never slower from"], rows)


if __name__ == "__main__":
    wanted = sys.argv[1:]
    results = Results(records.RESULTS)
    if wanted:
        results.cells = {machine: cells for machine, cells in results.cells.items() if machine in wanted}
    print(crossover(results) + "\n\n" + maps(results))

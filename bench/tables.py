"""The tables of FINAL_REPORT.md, post/draft.md, README.md and docs/benchmarks.md, each a function of the results (bench/report.py)."""

from __future__ import annotations

import collections
from typing import Any

from crossover import crossover, maps
from records import ROOT, Record, error_of
from results import NOT_MEASURED, ONE_SOLVE, SERIAL, Missing, Results, error, ordered, size, table, us
from strategies import as_called, compressed, dispatch, peers, peers_elsewhere, solver_depths, solver_times, stash

# What the benchmark rules ask of a GPU, to say what is missing.
ASKED: dict[str, list[Any]] = {"B": [1, 2, 4, 8, 16], "T": [3, 8, 16, 32, 64, 100, 128, 200, 256], "HV": [32, 48], "state": ["f32", "bf16"], "cache": ["warm", "cold"]}


def study(results: Results, memory: str, precision: str, keys: str, solver: str) -> Record:
    for record in results.study:
        if (record["memory"], record["precision"], record["keys"], record["solver"]) == (memory, precision, keys, solver):
            return record
    raise Missing(f"results hold no study of {solver} on {keys} keys, {memory}, {precision}")


def kept(way: str, nodes: int, layers: int) -> int:
    """Bytes kept from verification until commit, HV 32, K = V = 128, fp32: a state a node, or u and l of every node."""
    return layers * nodes * 32 * 4 * {"snapshots": 128 * 128, "stash": 128 + 1}[way]


def parity(results: Results) -> str:
    """Largest error of every contender that has one, by precision, state and what the error is of."""
    rows = []
    for machine in results.cells:
        groups = collections.defaultdict(list)
        for cell in results.cells[machine]:
            precision = cell.get("precision", "default") + (", u stored" if cell.get("stash") else "")
            for what, off in ((error_of(cell), cell.get("relative")), ("u in f32", cell.get("relative_u"))):
                if off is not None and off >= 0:
                    groups[cell["contender"], precision, cell["state"], what].append((off, cell))
        for (contender, precision, state, what), cells in sorted(groups.items()):
            off, worst = max(cells, key=lambda pair: pair[0])
            failed = sum(cell.get("passed") is False for _, cell in cells)
            rows.append([f"`{contender}`", precision, state, machine, len(cells), what, error(off),
                         f"{worst['family']}, T={worst['T']}, B={worst['B']}", failed or "none"])
    return table(["kernel", "precision", "state", "file", "cells", "error of", "largest", "where", "out of tolerance"], rows)


def bole_shape(results: Results) -> str:
    """Times at T = 128, depth <= 8, top-4."""
    rows = []
    for machine in results.cells:
        for B in sorted({cell["B"] for cell in results.best_first(machine, 128)}):
            for cache in ("warm", "cold"):
                times = results.times(results.best_first(machine, 128, B=B, cache=cache))
                device = results.device(machine)
                one = times.get(ONE_SOLVE[device])
                if one is None:
                    continue
                row = [results.name(machine), B, cache, us(one)]
                for kind in SERIAL:
                    other = times.get(f"{device}_{kind}")
                    row += [us(other), f"{other / one:.1f}x"] if other else [NOT_MEASURED, ""]
                rows.append(row + [us(times["floor"]) if "floor" in times else ""])
    return table(["machine", "batch", "cache", "one solve, us", "serial resident, us", "", "serial snapshot, us", "", "floor, us"], rows)


def bole_published(results: Results) -> str:
    rows = [[r["gpu"], r["B"], us(r["median_us"]), us(r["serial_us"]), f"{r['speed_up_low']}x"] for r in results.published if r["work"] == "Bole"]
    return table(["Bole (arXiv 2608.01651), different GPU and baseline", "batch", "Bole, us", "its serial kernel, us", "speed-up"], rows)


def solvers(results: Results) -> str:
    """The study: what each solver loses, nothing forgotten, fp32."""
    rows = []
    for name, solver in (("substitution", "path_blocked"), ("Neumann", "neumann"), ("squaring", "squaring")):
        for keys in ("random", "cosine 0.9", "cosine 0.99", "equal"):
            record = study(results, "full", "fp32", keys, solver)
            chain = [error(record["relative"][record["nodes"].index(n)]) for n in (8, 16, 32, 64, 256)]
            rows.append([name, keys, *chain, error(record["tree_depth8"]["relative"])])
    return table(["solver", "keys", "chain 8", "16", "32", "64", "256", "depth-8 tree of 256"], rows)


def contenders(results: Results) -> str:
    """Every verifying contender of every file on best-first trees, so that a new one shows up by itself."""
    rows = []
    for machine in results.cells:
        for B in (1, 16) if results.device(machine) == "cuda" else (1,):
            cache = "cold" if results.device(machine) == "cuda" else "warm"
            at_128 = results.best_first(machine, 128, B=B, cache=cache)
            for name, precision in sorted({(cell["contender"], cell.get("precision", "default")) for cell in at_128}):
                found = [results.best_first(machine, T, B=B, cache=cache, contender=name) for T in (8, 16, 32, 64, 128, 256)]
                times = [[cell["median_us"] for cell in cells if cell.get("precision", "default") == precision] for cells in found]
                rows.append([f"`{name}`", precision, machine, B, cache, *(us(min(t)) if t else NOT_MEASURED for t in times)])
    return table(["contender", "precision", "file", "batch", "cache", *(f"T={T}" for T in (8, 16, 32, 64, 128, 256))], rows)


def short_times(results: Results) -> str:
    """The H200's times on best-first trees, cold: what the post shows."""
    rows = []
    for B in (1, 16):
        for T in (8, 32, 128):
            times = results.times(results.best_first("gpu-h200", T, B=B, cache="cold"))
            one = times["cuda_fused"]
            serial = [times[f"cuda_{kind}"] for kind in SERIAL]
            rows.append([f"{B}", T, us(one), *(f"{us(other)} ({other / one:.1f}x)" for other in serial), us(times["floor"])])
    return table(["batch", "nodes", "one solve, us", "serial, state in registers", "serial, snapshots", "floor"], rows)


def trees_of(cells: list[Record]) -> str:
    """Families by name; SpecLA's trees and those of data/trees counted."""
    names = {cell["family"] for cell in cells}
    stems = {path.stem for path in (ROOT / "data/trees").glob("*.json")}
    published = {name for name in names if {name, name.rpartition(" ")[0]} & stems}
    specla = {name for name in names if name.startswith("specla-")}
    words = [ordered(names - published - specla)]
    words += [f"{len(found)} {whose}" for found, whose in ((specla, "of SpecLA's kinds"), (published, "published")) if found]
    return ", ".join(words)


def coverage(results: Results) -> str:
    """What each file measured, and what the benchmark rules ask that it did not."""
    rows = []
    for machine in results.cells:
        cells = results.cells[machine]
        have = {name: {cell.get(name) for cell in cells} for name in ASKED}
        missing = [f"{name} {ordered(set(asked) - have[name])}" for name, asked in ASKED.items() if set(asked) - have[name]]
        others = "".join(f", {count} of commit {commit}" for commit, count in results.commits[machine].most_common()[1:])
        rows.append([f"{machine}: {results.name(machine)}", f"{len(cells)}{others}", ordered({cell["contender"] for cell in cells}),
                     trees_of(cells), "; ".join(missing) if results.device(machine) == "cuda" else "(rules are for GPUs)"])
    capabilities = {m["gpu"]["compute_capability"] for m in results.machines.values() if isinstance(m.get("gpu"), dict)}
    if 120 not in capabilities:
        rows.append(["RTX 5090 (sm_120)", 0, "none", "none", "everything: no such card was at hand"])
    return table(["file", "cells", "contenders", "trees", "asked for and not measured"], rows)


def memory(results: Results) -> str:
    """Bytes at T = 128, B = 1: counted from the shapes, and what runs took where that was recorded."""
    rows = [[f"kept, {words} (counted)", size(kept(way, 128, 1)), size(kept(way, 128, 24)), f"{kept('snapshots', 128, 1) / kept(way, 128, 1):.0f}x less"]
            for way, words in (("snapshots", "snapshots"), ("stash", "commit by stash"))]
    rows[0][-1] = ""
    rows.append(["kept, commit by resolve (counted)", "0", "0", ""])
    for machine, found in results.of_type("memory").items():
        peak = {(r["way"], r["layers"]): r["peak_bytes"] for r in found if r["T"] == 128 and r["B"] == 1}
        for way in ("snapshots", "stash", "resolve"):
            if (way, 24) in peak:
                less = f"{peak['snapshots', 24] / peak[way, 24]:.0f}x less" if way != "snapshots" and ("snapshots", 24) in peak and peak[way, 24] else ""
                rows.append([f"peak, {way} (measured, {machine})", size(peak[way, 1]), size(peak[way, 24]), less])
    for machine in results.cells:
        for cell in results.best_first(machine, 128, B=1, cache="warm"):
            if cell.get("touched_bytes"):
                words = f"touched by `{cell['contender']}` (measured, {machine})"
                rows.append([words, size(cell["touched_bytes"]), "one workspace for all layers", ""])
    return table(["T=128, B=1, HV 32, K=V=128, fp32 state", "a layer", "24 layers", ""], rows)


def drift(results: Results) -> str:
    """Rounds of verify and commit beside the fp64 model."""
    rows = []
    for machine, found in results.of_type("rounds").items():
        for r in found:
            inputs = "forgets nothing" if r.get("gates") == "zero" else "natural"
            words = r["argmax"]
            rows.append([f"`{r['contender']}`", machine, r["state"], inputs, r["rounds"][-1], error(r["state_error"][-1]),
                         error(r["output_error"][-1]), f"{words['flips']} of {words['nodes']:,}"])  # fmt: skip
    head = ["contender", "file", "state", "inputs", "rounds", "error of the state", "error of o", "argmax differs"]
    return table(head, rows or [[NOT_MEASURED] + [""] * 7])


def accuracy(results: Results) -> str:
    """Worst error of each implementation and precision over chains and a bushy tree, by how alike the keys are."""
    kinds = ("natural", "random", "0.5", "0.9", "0.99", "equal")
    groups: dict[tuple[str, str, str, str], dict[str, list[Record]]] = collections.defaultdict(lambda: collections.defaultdict(list))
    for machine, found in results.of_type("accuracy").items():
        for r in found:
            kind = "natural" if r.get("gates", "natural") == "natural" else str(r["cosine"]) if r["keys"] == "similar" else r["keys"]
            groups[r["contender"], r["precision"], machine, error_of(r)][kind].append(r)

    def worst(cells: list[Record]) -> str:
        if not cells:
            return NOT_MEASURED
        values = [cell["relative"] for cell in cells]
        failed = sum(not cell["passed"] for cell in cells)
        return error(None if None in values else max(values)) + (f" ({failed} of {len(cells)} out of tolerance)" if failed else "")

    rows = [[f"`{name}`", *of, *(worst(by_kind[kind]) for kind in kinds)] for (name, *of), by_kind in sorted(groups.items())]
    head = ["contender", "precision", "file", "error of", "natural inputs", "keys random", "cosine 0.5", "cosine 0.9", "cosine 0.99", "keys equal"]
    return table(head, rows or [[NOT_MEASURED] + [""] * 9])


# Bytes a second of a device-to-device copy that is large, by GPU.
COPIED = {"NVIDIA H200": 4.3e12}


def conv(results: Results) -> str:
    """The tree convolution and the commit of its windows beside a device copy of as many elements and the time that its bytes take."""
    rows = []
    for machine, found in results.of_type("conv").items():
        gpu = results.machines.get(machine, {}).get("gpu")
        speed = COPIED.get(gpu["name"]) if isinstance(gpu, dict) else None
        groups: dict[Any, dict[tuple[str, str], Record]] = collections.defaultdict(dict)
        for r in found:
            groups[r["layers"], r["B"], r["T"]][r["contender"], r["cache"]] = r
        for (layers, B, T), at in sorted(groups.items()):
            for name in sorted({contender for contender, _ in at} - {"copy"}):
                both = [at.get((name, cache)) for cache in ("warm", "cold")]
                copies = [at.get(("copy", cache)) for cache in ("warm", "cold")]
                cold = both[1]
                some = next(r for r in both if r)
                ideal = 1e6 * some["bytes"] / speed if speed else None
                rows.append([f"`{name}`" + (f", {layers} layers" if layers > 1 else ""), machine, B, T, size(some["bytes"]), us(ideal) if ideal else "",
                             *(us(r["median_us"]) if r else NOT_MEASURED for r in both), f"{cold['bytes'] / cold['median_us'] * 1e-3:,.0f}" if cold else "",
                             f"{cold['median_us'] / ideal:.2f}x" if cold and ideal else "", *(us(r["median_us"]) if r else NOT_MEASURED for r in copies),
                             f"{cold['median_us'] / copies[1]['median_us']:.2f}x" if cold and copies[1] else "",
                             (error(some["relative"]) if some["relative"] else "exact") + ("" if all(r["passed"] for r in both if r) else " (out of tolerance)")])  # fmt: skip
    head = ["kernel", "file", "batch", "T", "bytes", "at the GPU's copy speed, us", "warm, us", "cold, us", "cold, GB/s", "cold / bytes", "copy warm, us",
            "copy cold, us", "cold / copy", "error"]  # fmt: skip
    return table(head, rows or [[NOT_MEASURED] + [""] * (len(head) - 1)])


def specla(results: Results) -> str:
    """SpecLA's shapes here, and what the paper reports."""
    rows = []
    for machine in results.cells:
        device, cache = results.device(machine), results.cache(machine)
        for B in (1, 16):
            groups = collections.defaultdict(list)
            for cell in results.find(machine, B=B, cache=cache):
                if cell["family"].startswith("specla"):
                    groups[cell["family"], cell["T"], cell["depth"]].append(cell)
            for (family, T, depth), cells in sorted(groups.items()):
                times = results.times(cells)
                one = times.get(ONE_SOLVE[device])
                if one is not None:
                    ratios = (times.get(f"{device}_{kind}") for kind in SERIAL)
                    words = (f"{other / one:.2f}x" if other else NOT_MEASURED for other in ratios)
                    rows.append([results.hardware(machine), family, T, depth, B, us(one), *words])
    head = ["machine", "tree", "T", "depth", "batch", "one solve, us", "resident / one solve", "snapshot / one solve"]
    return table(head, rows or [[NOT_MEASURED] + [""] * 7])


def readme(results: Results) -> str:
    """A machine a line at Bole's shape; commit, memory and what is missing are in docs/benchmarks.md."""
    rows = []
    for machine in results.cells:
        cache, device = results.cache(machine), results.device(machine)
        for B in (1, 16) if device == "cuda" else (1,):
            times = results.times(results.best_first(machine, 128, B=B, cache=cache))
            one = times.get(ONE_SOLVE[device])
            if one is not None:
                others = (times.get(f"{device}_{kind}") for kind in SERIAL)
                words = (f"{us(other)} ({other / one:.1f}x)" if other else NOT_MEASURED for other in others)
                rows.append([results.hardware(machine), B, us(one), *words, us(times["floor"]) if "floor" in times else ""])
    if not any("RTX 5090" in results.hardware(machine) for machine in results.cells):
        rows.append(["RTX 5090 (the target)", "", NOT_MEASURED, NOT_MEASURED, NOT_MEASURED, ""])
    return table(["machine", "batch", "one solve, us", "serial, state resident", "serial, a snapshot a node", "memory floor"], rows)


BLOCKS = {"parity": parity, "bole-shape": bole_shape, "bole-published": bole_published, "solvers": solvers, "contenders": contenders,
          "crossover": crossover, "maps": maps, "memory": memory, "short-times": short_times, "coverage": coverage, "drift": drift,
          "accuracy": accuracy, "specla": specla, "readme": readme, "compressed": compressed, "solver-times": solver_times, "solver-depths": solver_depths, "peers": peers,
          "peers-elsewhere": peers_elsewhere, "as-called": as_called, "dispatch": dispatch, "stash": stash, "conv": conv}  # fmt: skip

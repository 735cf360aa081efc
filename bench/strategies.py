"""Tables of one form against another: solvers, compressed and dense, peers, and what the dispatcher makes of it."""

from __future__ import annotations

import re

from records import ROOT, error_of
from results import NOT_MEASURED, Results, error, table, us

SHAPES = (("chain", 16), ("chain", 64), ("chain", 256), ("best-first", 64), ("best-first", 128), ("best-first", 256))
STASH_NODES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
NODES = (4, 8, 16, 32, 64, 128, 256)
SOLVERS = {"substitution, compressed": ("fused", "closed_form"), "substitution, dense": ("dense",), "substitution, two launches": ("split",),
           "Neumann": ("neumann",), "squaring": ("squaring",), "chains side by side": ("hybrid",)}  # fmt: skip


def cells_at(results: Results, machine: str, family: str, T: int, B: int) -> dict[str, float]:
    cache = results.cache(machine)
    if family == "best-first":
        return results.times(results.best_first(machine, T, B=B, cache=cache))
    return results.times(results.find(machine, family=family, T=T, B=B, cache=cache))


def best_of(times: dict[str, float], strategies: tuple[str, ...]) -> float | None:
    """The default precision of a strategy: the contender without a second word."""
    found = [value for name, value in times.items() if name.partition("_")[2] in strategies]
    return min(found, default=None)


def solver_times(results: Results) -> str:
    """Time of each way to solve, by depth: on chains the depth is T - 1, on best-first trees at most 8."""
    rows = []
    for machine in results.cells:
        for B in (1, 16) if results.device(machine) == "cuda" else (1,):
            for words, strategies in SOLVERS.items():
                times = [best_of(cells_at(results, machine, family, T, B), strategies) for family, T in SHAPES]
                if any(times) or results.device(machine) == "cuda":
                    rows.append([words, machine, B, *(us(time) if time else NOT_MEASURED for time in times)])
    return table(["solver", "file", "batch", *(f"{family} {T}" for family, T in SHAPES)], rows)


DEPTHS = (1, 3, 7, 15, 31, 63, 127, 255)
SERIES = {"substitution": ("fused", "closed_form"), "Neumann": ("neumann",), "squaring": ("squaring",)}


def solver_depths(results: Results) -> str:
    """Time and error of substitution and of the two series on chains, by depth, with random keys and with keys that are alike."""
    rows = []
    for machine in results.cells:
        for B in (1, 16) if results.device(machine) == "cuda" else ():
            for keys, family in (("random", "chain"), ("cosine 0.9", "chain, keys alike")):
                for words, strategies in SERIES.items():
                    entries, of = [], set()
                    for depth in DEPTHS:
                        cells = results.find(machine, family=family, T=depth + 1, B=B, cache=results.cache(machine), precision="default")
                        own = [cell for cell in cells if cell["contender"].partition("_")[2] in strategies]
                        of |= {error_of(cell) for cell in own[:1]}
                        entries.append(f"{us(own[0]['median_us'])} ({error(own[0]['relative'])})" if own else NOT_MEASURED)
                    if set(entries) != {NOT_MEASURED}:
                        rows.append([words, machine, B, keys, " or ".join(sorted(of)), *entries])
    head = ["solver", "file", "batch", "keys", "error of", *(f"depth {depth}" for depth in DEPTHS)]
    return table(head, rows or [[NOT_MEASURED] + [""] * (len(head) - 1)])


def compressed(results: Results) -> str:
    """Path-compressed against dense substitution."""
    rows = []
    for machine in results.cells:
        for B in (1, 16) if results.device(machine) == "cuda" else ():
            for family, T in SHAPES:
                times = cells_at(results, machine, family, T, B)
                fused, dense = times.get("cuda_fused"), times.get("cuda_dense")
                if fused and dense:
                    rows.append([machine, B, f"{family} {T}", us(fused), us(dense), f"{dense / fused:.2f}x"])
    return table(["file", "batch", "tree", "compressed, us", "dense, us", ""], rows or [[NOT_MEASURED] + [""] * 5])


def peers(results: Results) -> str:
    """Triton's forms, FLA and SGLang in the process that timed them, beside what the dispatcher picks through PyTorch."""
    rows = []
    for machine in results.cells:
        for B in (1, 16):
            names = sorted({cell["contender"] for cell in results.cells[machine] if re.match("triton_|fla_|sglang_|dispatched", cell["contender"])})
            for name in names:
                times = [cells_at(results, machine, family, T, B).get(name) for family, T in SHAPES]
                rows.append([f"`{name}`", machine, B, *(us(time) if time else NOT_MEASURED for time in times)])
    return table(["contender", "file", "batch", *(f"{family} {T}" for family, T in SHAPES)], rows or [[NOT_MEASURED] + [""] * 8])


def peers_elsewhere(results: Results) -> str:
    """Peers that another run timed, which wrote no cells."""
    rows = []
    for record in results.published:
        if "us" not in record:
            continue
        times = dict(zip(record["T"], record["us"], strict=True))
        row = (us(times[T]) if times.get(T) else "" for T in NODES)
        rows.append([record["work"], record["gpu"], record["B"], record["tree"], *row])
    return table(["kernel", "GPU", "batch", "tree", *(f"T={T}" for T in NODES)], rows or [[NOT_MEASURED] + [""] * 10])


def as_called(results: Results) -> str:
    """The fused kernel on raw gates and unnormalised keys, as models call the layer, beside the same with both given."""
    rows = []
    for machine in results.cells:
        for B in (1, 16) if results.device(machine) == "cuda" else ():
            for T in (16, 64, 128):
                for cache in ("warm", "cold"):
                    times = [results.find(machine, family=family, T=T, B=B, cache=cache, contender="cuda_fused")
                             for family in ("best-first-4", "best-first-4, raw gates and norm")]  # fmt: skip
                    given, raw = (cells[0]["median_us"] if cells else None for cells in times)
                    if given and raw:
                        rows.append([machine, B, T, cache, us(given), us(raw), f"{raw - given:+.2f}"])
    return table(["file", "batch", "T", "caches", "given, us", "raw gates and norm, us", ""], rows or [[NOT_MEASURED] + [""] * 6])


def stash(results: Results) -> str:
    """The fused kernel on o alone, and on o and u beside what else stores both."""
    rows = []
    storing = ("cuda_fused", "cuda_serial_resident", "cuda_split")
    for machine in results.cells:
        stored = [cell for cell in results.cells[machine] if cell.get("stash")]
        for B in (1, 16) if stored else ():
            for family in ("chain", "best-first-4"):
                asked = {"B": B, "cache": results.cache(machine), "precision": "default"}
                for words, kind, more in (("o alone", family, {}), ("o and u", f"{family}, u stored", {"stash": True})):
                    for contender in storing if more else storing[:1]:
                        times = [results.find(machine, family=kind, T=T, contender=contender, **asked, **more) for T in STASH_NODES]
                        rows.append([machine, B, family, words, f"`{contender}`", *(us(cells[0]["median_us"]) if cells else NOT_MEASURED for cells in times)])
    head = ["file", "batch", "tree", "outputs", "contender", *(f"T={T}" for T in STASH_NODES)]
    return table(head, rows or [[NOT_MEASURED] + [""] * (len(head) - 1)])


def dispatch(results: Results) -> str:
    """The generated tables of src/dispatch: rows from the top, the first that holds wins."""
    rows = []
    for path in sorted((ROOT / "src/dispatch").glob("*.inc")):
        text = path.read_text()
        title = re.match(r"// (.*), verification\. Generated", text)
        if not title:
            continue
        worst = re.search(r"the table's choice (takes at most [\d.]+ times the best|is the fastest everywhere)", text)
        unnamed = re.search(r"; [\d.]+ where the caller names no depth", text)
        for number, (conditions, name) in enumerate(re.findall(r'^\{(.*?)\.implementation = "(\w+)"\},$', text, re.M)):
            words = re.sub(r"\.max_(\w+) = (\d+), ", r"\1 <= \2 and ", conditions)
            words = re.sub(r"\.min_(\w+) = (\d+), ", r"\1 >= \2 and ", words)
            words = re.sub(r"\.precision = CANOPY_PRECISION_(\w+), ", r"precision \1 and ", words).replace(".stash = true, ", "stash and ")
            first = (title[1], (worst[1] if worst else "") + (unnamed[0] if unnamed else "")) if number == 0 else ("", "")
            rows.append([first[0], words.removesuffix(" and ") or "always", f"`{name}`", first[1]])
    return table(["table", "condition", "implementation", "on every measured cell its choice"], rows)

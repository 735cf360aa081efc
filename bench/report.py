"""Fills what is measured into FINAL_REPORT.md and post/draft.md, from results/*.jsonl and the documents (`make report`).

    python3 bench/report.py            rewrites the files
    python3 bench/report.py --check    changes nothing; fails where a file is not what this would write

Three kinds of places are filled; the rest of both texts is written by hand:

    <!-- begin: NAME --> ... <!-- end -->     a table, by the function of that name below
    10.8<!-- = PATH -->                       a number before the comment, by value(); a PATH as in
                                              gpu-h200/us/cuda_fused/B1/best-first/T128/cold     a median time
                                              gpu-h200/ratio/cuda_serial_snapshot:cuda_fused/B1/best-first/T128/cold
                                              numerics/full/fp32/equal/neumann/64                an error on a chain of 64
                                              published/Bole/A100/B1/median_us                   a paper's number
                                              kept/snapshots/128/24                              bytes kept, T = 128, 24 layers
    17 failed<!-- NOTES.md: 5,217 checks, 17 failed -->
                                              checked only: that file holds these words, and they hold the one before the comment
"""

import argparse
import collections
import json
import math
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILES = ["FINAL_REPORT.md", "post/draft.md"]
BLOCK = re.compile(r"(<!-- begin: ([\w-]+) -->\n)((?:(?!<!-- begin).)*?)(<!-- end -->)", re.S)
NUMBER = re.compile(r"([\d.,]+(?:e-?\d+)?(?: [KMG]iB)?)(<!-- = (\S+) -->)")
QUOTE = re.compile(r"([\w.,%-]+)<!-- ([\w./-]+\.md): (.*?) -->", re.S)
ONE_SOLVE = {"cpu": "cpu_closed_form", "cuda": "cuda_fused"}
SERIAL = ["serial_resident", "serial_snapshot"]
NOT_MEASURED = "not measured"
# What the benchmark rules ask of a GPU, to say what is missing.
ASKED = {"B": [1, 2, 4, 8, 16], "T": [3, 8, 16, 32, 64, 100, 128, 200, 256], "HV": [32, 48], "state": ["f32", "bf16"], "cache": ["warm", "cold"]}


class Missing(Exception):
    """A text asks for what no result file holds."""


class Results:
    """Cells by file (the name without .jsonl), environments, the solver study, what papers report."""

    def __init__(self, folder):
        self.cells, self.machines, self.study, self.published = {}, {}, [], []
        for path in sorted(folder.glob("*.jsonl")):
            for line in filter(str.strip, path.read_text().splitlines()):
                record = json.loads(line)
                kind = record.get("type")
                if kind == "cell" and record.get("median_us") is not None:
                    self.cells.setdefault(path.stem, []).append(record)
                elif kind == "environment":
                    self.machines[path.stem] = record
                elif kind == "published":
                    self.published.append(record)
                elif kind == "study":
                    self.study.append(record)

    def device(self, file):
        return self.cells[file][0]["device"]

    def name(self, file):
        """The machine in words, and the commit that ran."""
        machine = self.machines.get(file, {})
        gpu = machine.get("gpu")
        words = gpu["name"] if self.device(file) == "cuda" and isinstance(gpu, dict) else f"{machine.get('cpu', file)}, {machine.get('threads', '?')} thread"
        return f"{words} (commit {machine.get('commit', 'unknown')})"

    def find(self, file, **wanted):
        """The cells with these fields; H16 HV32 and an fp32 state unless asked otherwise."""
        wanted = {"HV": 32, "state": "f32"} | wanted
        return [cell for cell in self.cells.get(file, []) if all(cell.get(name) == value for name, value in wanted.items())]

    def best_first(self, file, T, **wanted):
        """Bole's shapes: top-4, at most 8 deep. Files name the family with and without its top-k."""
        return [cell for family in ("best-first", "best-first-4") for cell in self.find(file, T=T, family=family, **wanted) if cell["depth"] <= 8]


def us(value):
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def error(value):
    return "overflow" if value is None else f"{value:.1e}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows])


def ordered(values):
    return ", ".join(map(str, sorted(values, key=lambda v: (isinstance(v, str), v))))


# The blocks.


def parity(results):
    """Largest error of every contender that has one, by precision and state."""
    rows = []
    for file in results.cells:
        groups = collections.defaultdict(list)
        for cell in results.cells[file]:
            if cell.get("relative") is not None and cell["relative"] >= 0:
                groups[cell["contender"], cell.get("precision", "default"), cell["state"]].append(cell)
        for (contender, precision, state), cells in sorted(groups.items()):
            worst = max(cells, key=lambda cell: cell["relative"])
            failed = sum(cell.get("passed") is False for cell in cells)
            rows.append([f"`{contender}`", precision, state, file, len(cells), error(worst["relative"]),
                         f"{worst['family']}, T={worst['T']}, B={worst['B']}", failed or "none"])
    return table(["kernel", "precision", "state", "file", "cells", "largest relative error of o", "where", "out of tolerance"], rows)


def bole_shape(results):
    """Times at T = 128, depth <= 8, top-4."""
    rows = []
    for file in results.cells:
        for B in sorted({cell["B"] for cell in results.best_first(file, 128)}):
            for cache in ("warm", "cold"):
                times = {cell["contender"]: cell["median_us"] for cell in results.best_first(file, 128, B=B, cache=cache)}
                device = results.device(file)
                one = times.get(ONE_SOLVE[device])
                if one is None:
                    continue
                row = [results.name(file), B, cache, us(one)]
                for kind in SERIAL:
                    other = times.get(f"{device}_{kind}")
                    row += [us(other), f"{other / one:.1f}x"] if other else [NOT_MEASURED, ""]
                rows.append(row + [us(times["floor"]) if "floor" in times else ""])
    return table(["machine", "batch", "cache", "one solve, us", "serial resident, us", "", "serial snapshot, us", "", "floor, us"], rows)


def bole_published(results):
    rows = [[r["gpu"], r["B"], us(r["median_us"]), us(r["serial_us"]), f"{r['speed_up_low']}x"] for r in results.published if r["work"] == "Bole"]
    return table(["Bole (arXiv 2608.01651), different GPU and baseline", "batch", "Bole, us", "its serial kernel, us", "speed-up"], rows)


def solvers(results):
    """The study: what each solver loses, nothing forgotten, fp32."""
    rows = []
    for name, solver in (("substitution", "path_blocked"), ("Neumann", "neumann"), ("squaring", "squaring")):
        for keys in ("random", "cosine 0.9", "cosine 0.99", "equal"):
            record = study(results, "full", "fp32", keys, solver)
            chain = [error(record["relative"][record["nodes"].index(n)]) for n in (8, 16, 32, 64, 256)]
            rows.append([name, keys, *chain, error(record["tree_depth8"]["relative"])])
    return table(["solver", "keys", "chain 8", "16", "32", "64", "256", "depth-8 tree of 256"], rows)


def study(results, memory, precision, keys, solver):
    for record in results.study:
        if (record["memory"], record["precision"], record["keys"], record["solver"]) == (memory, precision, keys, solver):
            return record
    raise Missing(f"results hold no study of {solver} on {keys} keys, {memory}, {precision}")


def contenders(results):
    """Every verifying contender of every file on best-first trees, so that a new one shows up by itself."""
    rows = []
    for file in results.cells:
        for B in (1, 16) if results.device(file) == "cuda" else (1,):
            cache = "cold" if results.device(file) == "cuda" else "warm"
            names = sorted({(cell["contender"], cell.get("precision", "default")) for cell in results.best_first(file, 128, B=B, cache=cache)})
            for name, precision in names:
                times = [[c["median_us"] for c in results.best_first(file, T, B=B, cache=cache, contender=name) if c.get("precision", "default") == precision]
                         for T in (8, 16, 32, 64, 128, 256)]
                rows.append([f"`{name}`", precision, file, B, cache, *(us(min(t)) if t else NOT_MEASURED for t in times)])
    return table(["contender", "precision", "file", "batch", "cache", *(f"T={T}" for T in (8, 16, 32, 64, 128, 256))], rows)


def crossover(results):
    """Where one solve is slower than a serial kernel, and from which T on it never is, over all families of a batch."""
    rows = []
    for file in results.cells:
        device = results.device(file)
        cache = "cold" if any(cell["cache"] == "cold" for cell in results.cells[file]) else "warm"
        groups = collections.defaultdict(lambda: collections.defaultdict(dict))
        for cell in results.cells[file]:
            if cell["cache"] == cache:
                groups[cell["B"], cell["HV"], cell["state"]][cell["T"], cell["family"], cell["depth"]][cell["contender"]] = cell["median_us"]
        for (B, HV, state), trees in sorted(groups.items()):
            for kind in SERIAL:
                pairs = [(tree, times[f"{device}_{kind}"] / times[ONE_SOLVE[device]]) for tree, times in sorted(trees.items())
                         if {f"{device}_{kind}", ONE_SOLVE[device]} <= times.keys()]
                if not pairs:
                    continue
                lost = [(tree, ratio) for tree, ratio in pairs if ratio < 1]
                since = [tree[0] for tree, _ in pairs if tree[0] > max((tree[0] for tree, _ in lost), default=0)]
                where = ", ".join(f"{family} T={T} ({ratio:.{3 if ratio > 0.99 else 2}f}x)" for (T, family, _), ratio in lost[:8]) + (f" and {len(lost) - 8} more" if len(lost) > 8 else "")
                rows.append([f"{file}, HV {HV}, state {state}", B, cache, kind.replace("_", " "), len(pairs),
                             f"{min(r for _, r in pairs):.2f} to {max(r for _, r in pairs):.1f}x", where or "nowhere", f"T={min(since)}" if since else "no T"])
    return table(["file", "batch", "cache", "against", "trees", "serial time / one solve", "one solve is slower", "never slower from"], rows)


def size(count):
    kib = 1 << 10
    return f"{count / kib**3:.2f} GiB" if count >= kib**3 else f"{count / kib**2:.1f} MiB" if count >= kib**2 else f"{count / kib:.0f} KiB"


def kept(way, nodes, layers):
    """Bytes kept from verification until commit, HV 32, K = V = 128, fp32: a state a node, or u and l of every node."""
    return layers * nodes * 32 * 4 * {"snapshots": 128 * 128, "stash": 128 + 1}[way]


def memory(results):
    """Bytes at T = 128: counted from the shapes, and what a run touched where that was recorded."""
    rows = [[f"kept, {words} (counted)", size(kept(way, 128, 1)), size(kept(way, 128, 24)), f"{kept('snapshots', 128, 1) / kept(way, 128, 1):.0f}x less"]
            for way, words in (("snapshots", "snapshots"), ("stash", "commit by stash"))]
    rows[0][-1] = ""
    rows.append(["kept, commit by resolve (counted)", "0", "0", ""])
    for file in results.cells:
        for cell in results.best_first(file, 128, B=1, cache="warm"):
            if cell.get("touched_bytes"):
                rows.append([f"touched by `{cell['contender']}` (measured, {file})", size(cell["touched_bytes"]), "one workspace for all layers", ""])
    return table(["T=128, B=1, HV 32, K=V=128, fp32 state", "a layer", "24 layers", ""], rows)


def short_times(results):
    """The H200's times on best-first trees, cold: what the post shows."""
    rows = []
    for B in (1, 16):
        for T in (8, 32, 128):
            times = {cell["contender"]: cell["median_us"] for cell in results.best_first("gpu-h200", T, B=B, cache="cold")}
            one = times["cuda_fused"]
            rows.append([f"{B}", T, us(one), *(f"{us(times['cuda_' + kind])} ({times['cuda_' + kind] / one:.1f}x)" for kind in SERIAL), us(times["floor"])])
    return table(["batch", "nodes", "one solve, us", "serial, state in registers", "serial, snapshots", "floor"], rows)


def coverage(results):
    """What each file measured, and what the benchmark rules ask that it did not."""
    rows = []
    for file in results.cells:
        cells = results.cells[file]
        have = {name: {cell.get(name) for cell in cells} for name in ASKED}
        missing = [f"{name} {ordered(set(asked) - have[name])}" for name, asked in ASKED.items() if set(asked) - have[name]]
        rows.append([f"{file}: {results.name(file)}", len(cells), ordered({cell["contender"] for cell in cells}),
                     ordered({cell["family"] for cell in cells}), "; ".join(missing) if results.device(file) == "cuda" else "(rules are for GPUs)"])
    capabilities = {m["gpu"]["compute_capability"] for m in results.machines.values() if isinstance(m.get("gpu"), dict)}
    if 120 not in capabilities:
        rows.append(["RTX 5090 (sm_120)", 0, "none", "none", "everything: no such card was at hand"])
    return table(["file", "cells", "contenders", "trees", "asked for and not measured"], rows)


def choices(notes):
    """The section of NOTES.md, as it stands."""
    found = re.search(r"^## Choices the papers leave open\n\n(.*?)(?=^## )", notes, re.M | re.S)
    if not found:
        raise Missing("NOTES.md has no section 'Choices the papers leave open'")
    return found[1].strip()


BLOCKS = {"parity": parity, "bole-shape": bole_shape, "bole-published": bole_published, "solvers": solvers, "contenders": contenders,
          "crossover": crossover, "memory": memory, "short-times": short_times, "coverage": coverage}


def value(results, path):
    """The number that a path names, as text."""
    head, *rest = path.split("/")
    if head == "numerics":
        memory_kind, precision, keys, solver, nodes = rest
        record = study(results, memory_kind, precision, keys.replace("_", " "), solver)
        number = record["tree_depth8"]["relative"] if nodes == "tree" else record["relative"][record["nodes"].index(int(nodes))]
        if number is None:
            raise Missing(f"{path}: it overflowed")
        return f"{number:.0e}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")
    if head == "published":
        work, gpu, batch, field = rest
        for record in results.published:
            if re.sub(r"\W+", "_", record["work"]) == work and record["gpu"].split()[0] == gpu and f"B{record.get('B', '-')}" == batch and field in record:
                return us(record[field])
        raise Missing(f"{path}: no such published number")
    if head == "kept":
        way, nodes, layers = rest
        return size(kept(way, int(nodes), int(layers)))
    kind, contender, batch, family, nodes, cache = rest

    def median(name):
        cells = [c for c in results.find(head, contender=name, B=int(batch[1:]), family=family, T=int(nodes[1:]), cache=cache)]
        if len(cells) != 1:
            raise Missing(f"{path}: {len(cells)} cells of {name} in results/{head}.jsonl")
        return cells[0]

    if kind == "us":
        return us(median(contender)["median_us"])
    if kind == "ratio":
        slow, fast = (median(name)["median_us"] for name in contender.split(":"))
        return f"{slow / fast:.1f}"
    if kind == "error":
        return error(median(contender)["relative"])
    raise Missing(f"{path}: {kind} is not us, ratio or error")


def fill(text, results, documents):
    """The text with blocks and numbers as the files say, and what is wrong with its quotes."""
    wrong = []

    def attempt(make, old):
        try:
            return make()
        except (Missing, ValueError, KeyError) as problem:
            wrong.append(str(problem) or type(problem).__name__)
            return old

    def block(match):
        make = (lambda: choices(documents("NOTES.md"))) if match[2] == "choices" else lambda: BLOCKS[match[2]](results)
        return match[1] + attempt(lambda: make() + "\n", match[3]) + match[4]

    def quote(match):
        plain = " ".join(match[3].split())
        if plain not in " ".join(documents(match[2]).split()):
            wrong.append(f"{match[2]} does not say: {plain}")
        elif match[1].strip(",.") not in plain:
            wrong.append(f"{match[1]} is not in what it quotes: {plain}")

    if not text.count("<!-- begin") == text.count("<!-- end") == len(BLOCK.findall(text)):
        return text, ["a <!-- begin: NAME --> or an <!-- end --> stands alone"]
    text = BLOCK.sub(block, text)
    text = NUMBER.sub(lambda match: attempt(lambda: value(results, match[3]), match[1]) + match[2], text)
    for match in QUOTE.finditer(text):
        quote(match)
    return text, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--check", action="store_true", help="change nothing, fail where a file is out of date")
    parser.add_argument("--root", type=Path, default=ROOT)
    options = parser.parse_args()
    results = Results(options.root / "results")
    documents = lambda name: (options.root / name).read_text()  # noqa: E731
    failed = False
    for name in FILES:
        path = options.root / name
        old = path.read_text()
        new, wrong = fill(old, results, documents)
        for problem in wrong:
            print(f"{name}: {problem}", file=sys.stderr)
        failed |= bool(wrong)
        if new != old and options.check:
            stale = [a for a, b in zip(old.splitlines(), new.splitlines()) if a != b]
            print(f"{name} is not what the result files say; remedy: make report. First: {stale[0][:160] if stale else 'its length'}", file=sys.stderr)
            failed = True
        elif new != old:
            path.write_text(new)
            print(f"{name}: rewritten")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

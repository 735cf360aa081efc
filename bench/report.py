"""Fills what is measured into README.md, docs/benchmarks.md, FINAL_REPORT.md and post/draft.md, from results/ (`make report`).

    python3 bench/report.py            rewrites the files
    python3 bench/report.py --check    changes nothing; fails where a file is not what this would write

Three kinds of places are filled; the rest of the texts is written by hand:

    <!-- begin: NAME --> ... <!-- end -->     a table, by the function of that name (bench/tables.py)
    10.8<!-- = PATH -->                       a number before the comment, by value(); a PATH as in
                                              gpu-h200/us/cuda_fused/B1/best-first/T128/cold     a median time
                                              gpu-h200/error/cuda_fused/B1/best-first/T128/cold  its error; rounded: of o as it was timed
                                              gpu-h200/ratio/cuda_serial_snapshot:cuda_fused/B1/best-first/T128/cold
                                              numerics/full/fp32/equal/neumann/64                an error on a chain of 64
                                              published/Bole/A100/B1/median_us                   a paper's number
                                              kept/snapshots/128/24                              bytes kept, T = 128, 24 layers
    17 failed<!-- NOTES.md: 5,217 checks, 17 failed -->
                                              checked only: that file holds these words, and they hold the one before the comment
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path

import records
from records import error_of
from results import Missing, Results, error, size, us
from tables import BLOCKS, kept, study

ROOT = Path(__file__).resolve().parent.parent
FILES = ["README.md", "docs/benchmarks.md", "FINAL_REPORT.md", "post/draft.md"]
BLOCK = re.compile(r"(<!-- begin: ([\w-]+) -->\n)((?:(?!<!-- begin).)*?)(<!-- end -->)", re.S)
NUMBER = re.compile(r"([\d.,]+(?:e-?\d+)?(?: [KMG]iB)?)(<!-- = (\S+) -->)")
QUOTE = re.compile(r"([\w.,%-]+)<!-- ([\w./-]+\.md): (.*?) -->", re.S)


def choices(notes: str) -> str:
    """The section of NOTES.md, as it stands."""
    found = re.search(r"^## Choices the papers leave open\n\n(.*?)(?=^## )", notes, re.M | re.S)
    if not found:
        raise Missing("NOTES.md has no section 'Choices the papers leave open'")
    return found[1].strip()


def value(results: Results, path: str) -> str:
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

    families = ("best-first", "best-first-4") if family == "best-first" else (family,)

    def median(name: str) -> records.Record:
        cells = [c for one in families for c in results.find(head, contender=name, B=int(batch[1:]), family=one, T=int(nodes[1:]), cache=cache)]
        if len(cells) != 1:
            raise Missing(f"{path}: {len(cells)} cells of {name} in results/{head}")
        return cells[0]

    if kind == "us":
        return us(median(contender)["median_us"])
    if kind == "ratio":
        slow, fast = (median(name)["median_us"] for name in contender.split(":"))
        return f"{slow / fast:.1f}"
    if kind == "error":
        return error(median(contender)["relative"])
    if kind == "rounded":
        cell = median(contender)
        if cell.get("relative_timed") is None and error_of(cell) == "o in f32":
            raise Missing(f"{path}: its o was not rounded")
        return error(cell.get("relative_timed", cell["relative"]))
    raise Missing(f"{path}: {kind} is not us, ratio, error or rounded")


def fill(text: str, results: Results, documents: Callable[[str], str]) -> tuple[str, list[str]]:
    """The text with blocks and numbers as the files say, and what is wrong with its quotes."""
    wrong = []

    def attempt(make: Callable[[], str], old: str) -> str:
        try:
            return make()
        except (Missing, ValueError, KeyError) as problem:
            wrong.append(str(problem) or type(problem).__name__)
            return old

    def block(match: re.Match[str]) -> str:
        make = (lambda: choices(documents("NOTES.md"))) if match[2] == "choices" else lambda: BLOCKS[match[2]](results)
        return match[1] + attempt(lambda: make() + "\n", match[3]) + match[4]

    def quote(match: re.Match[str]) -> None:
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


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--check", action="store_true", help="change nothing, fail where a file is out of date")
    parser.add_argument("--root", type=Path, default=ROOT)
    options = parser.parse_args(arguments)
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

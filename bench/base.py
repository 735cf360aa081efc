"""Two commits side by side: both programs are asked for the same shapes in turn, and what differs by more than the noise is shown."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import command
from records import ROOT, Record
from runner import Failed, Progress, Request, words


@dataclass(frozen=True)
class Pair:
    """A cell of both commits."""

    where: str
    before: Record
    after: Record

    @property
    def ratio(self) -> float:
        """Time now over time before: below 1 is faster."""
        return self.after["median_us"] / self.before["median_us"]

    @property
    def certain(self) -> bool:
        """More than 2% apart, and the middle 80% of the runs do not overlap."""
        apart = self.after["p10_us"] > self.before["p90_us"] or self.after["p90_us"] < self.before["p10_us"]
        return apart and abs(self.ratio - 1) > 0.02


def build(commit: str) -> str:
    """The program of a commit, built in out/base/COMMIT."""
    found = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short=12", f"{commit}^{{commit}}"], capture_output=True, text=True)
    if found.returncode:
        raise SystemExit(f"--base {commit}: not a commit of this repository; expected a hash, a branch or a tag")
    folder = ROOT / "out/base" / found.stdout.strip()
    if not folder.exists():
        subprocess.run(["git", "-C", str(ROOT), "worktree", "add", "--quiet", "--detach", str(folder), found.stdout.strip()], check=True)
    print(f"building {folder.name}", file=sys.stderr)
    cuda = "AUTO" if any(Path("/dev").glob("nvidia[0-9]*")) else "OFF"
    options = ["-DCANOPY_TESTS=OFF", "-DCANOPY_BENCH=OFF", f"-DCANOPY_CUDA={cuda}"]
    subprocess.run([str(folder / "scripts/build.sh"), "default", "build", *options], check=True)
    return str(folder / "build/canopy")


def pairs(before: Iterable[Record], after: Iterable[Record], where: str) -> list[Pair]:
    """The cells that both have."""
    key = lambda record: (record["contender"], record["cache"])
    old = {key(record): record for record in before}
    return [Pair(f"{record['contender']} {where} {record['cache']}", old[key(record)], record) for record in after if key(record) in old]


def both_times(first: list[Record], second: list[Record]) -> list[Record]:
    """Two answers to one request as one: the geometric mean of the medians, and all that lay between the percentiles of either."""
    return [one | {"median_us": math.sqrt(one["median_us"] * two["median_us"]), "p10_us": min(one["p10_us"], two["p10_us"]),
                   "p90_us": max(one["p90_us"], two["p90_us"])} for one, two in zip(first, second, strict=True)]  # fmt: skip


def ask_both(old: Callable[[Request], list[Record]], new: Callable[[Request], list[Record]], requests: list[Request]) -> list[Pair]:
    found: list[Pair] = []
    progress = Progress("base", len(requests))
    for done, request in enumerate(requests):
        progress.step(done, words(request))
        try:
            # Old, new, new, old: a machine that slows down meanwhile favours neither, and what it does shows as a wide range.
            first, new_first, new_second, second = (ask(request) for ask in (old, new, new, old))
            before, after = both_times(first, second), both_times(new_first, new_second)
        except Failed as why:
            print(f"{words(request)}: {why}", file=sys.stderr)
            continue
        found += pairs(before, after, words(request))
    progress.close(f"base: {len(found)} cells of both")
    return found


def report(found: list[Pair]) -> str:
    """What changed, by contender and cell by cell."""
    lines = []
    for name in sorted({pair.after["contender"] for pair in found}):
        own = [pair for pair in found if pair.after["contender"] == name]
        mean = math.exp(sum(math.log(pair.ratio) for pair in own) / len(own))
        slower, faster = (sum(pair.certain and (pair.ratio > 1) == slow for pair in own) for slow in (True, False))
        lines.append(f"{name:28} {mean:6.3f} times the time (geometric mean of {len(own)} cells), {faster} faster, {slower} slower")
    for pair in sorted((pair for pair in found if pair.certain), key=lambda pair: -pair.ratio):
        lines.append(f"  {pair.ratio:6.3f}  {pair.before['median_us']:>10.4g} -> {pair.after['median_us']:>10.4g} us  {pair.where}")
    return "\n".join(lines) or "no cell of both commits"


def compare(commit: str, program: str, requests: list[Request]) -> int:
    old, new = command.serve(build(commit)), command.serve(program)
    try:
        old.ask({"measure": "environment", "device": "cpu"})
    except Failed as why:
        raise SystemExit(f"--base {commit}: its program does not answer requests ({why}); expected a commit that has `canopy bench --requests`") from None
    found = ask_both(old.ask, new.ask, [request for request in requests if request.get("measure", "time") == "time"])
    old.close()
    new.close()
    print(report(found))
    return 0 if found else 1

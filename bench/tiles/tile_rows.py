"""Rows of the table of tile choices (src/cuda/tuning.hpp), and what is tried in their place."""

from __future__ import annotations

import re
from typing import Any

# By the row's architecture: what nvcc is told, bytes of shared memory of a block and of an SM. The row of 80 also
# serves sm_86 and sm_89.
TARGETS = {80: ("sm_80", 101376, 102400), 90: ("sm_90a", 232448, 233472), 120: ("sm_120", 101376, 102400)}
# CtaTuning: columns, prep warps, depth, CTAs an SM, registers of a prep and of a solver thread. After the present one,
# the likeliest first; by the shared memory of a block.
VARIANTS: dict[str, dict[str, tuple[tuple[int, ...], ...]]] = {
    "large": {
        "narrow": ((64, 4, 2), (32, 5, 2), (16, 8, 1), (32, 6, 1), (32, 4, 2)),
        "few": ((64, 4, 2), (128, 4, 2), (128, 2, 4), (64, 2, 4), (128, 3, 2)),
        "wide": ((64, 2, 2, 2), (128, 1, 5, 2), (128, 4, 2), (128, 1, 4, 2)),
        "pair": ((64, 4, 2), (64, 3, 2), (64, 2, 4), (64, 4, 1)),
    },
    "small": {
        "narrow": ((16, 4, 1), (32, 2, 1), (16, 2, 2), (16, 3, 1), (32, 1, 3), (16, 2, 1)),
        "few": ((128, 2, 2), (64, 4, 1), (128, 3, 1), (64, 2, 2), (64, 3, 1)),
        "wide": ((128, 2, 2), (64, 4, 1), (64, 1, 1, 2), (128, 3, 1), (64, 2, 2), (128, 2, 1)),
        "pair": ((64, 3, 1), (64, 1, 3), (32, 3, 1), (64, 1, 2), (32, 2, 1)),
    },
}  # fmt: skip
DEFAULTS = (0, 0, 0, 1, 0, 0)  # of CtaTuning; the first three have to be said
# Of the benchmark's core (bench/shapes.py), where each family is used: B and T; family, top-k and depth of trees.
SIZES = {
    "narrow": (1, (32, 64, 128, 256)),
    "few": (2, (32, 64, 128, 256)),
    "wide": (16, (32, 64, 128)),
    "pair": (16, (128, 256)),
}
TREES = {"chain": (1, 255), "best-first": (4, 8)}


def shapes_of(family: str) -> list[str]:
    batch, sizes = SIZES[family]
    return [f"{tree},{k},{min(depth, n - 1)},{n},{batch}" for tree, (k, depth) in TREES.items() for n in sizes]


def architecture_of(text: str) -> int:
    """90 of "90a", "sm_90", "9.0": the row that serves it."""
    digits = re.fullmatch(r"(?:sm_?)?(\d+)\.?(\d)[a-z]?", text.strip())
    number = int(digits[1] + digits[2]) if digits else 0
    if not (80 <= number < 100 or 120 <= number < 130):
        raise SystemExit(
            f"tune-tiles: expected an architecture of 80, 90a, 120 or those that their rows serve, got {text!r}"
        )
    return max(row for row in TARGETS if row <= number)


def find_row(table: str, architecture: int) -> tuple[int, int]:
    start = table.find(f"{{.architecture = {architecture},")
    if start < 0:
        raise SystemExit(f"tune-tiles: no row {{.architecture = {architecture}, ...}} in the table")
    depth = 0
    for at in range(start, len(table)):
        depth += {"{": 1, "}": -1}.get(table[at], 0)
        if depth == 0:
            return start, at + 1
    raise SystemExit(f"tune-tiles: the row of {architecture} has no end")


def cta_of(row: str, family: str) -> tuple[int, ...]:
    found = re.search(rf"\.{family} = \{{([\d, ]*)\}}", row)
    if not found:
        raise SystemExit(f"tune-tiles: the row has no .{family} = {{...}}")
    given = tuple(int(number) for number in found[1].split(","))
    return given + DEFAULTS[len(given) :]


def short(cta: tuple[int, ...]) -> tuple[int, ...]:
    """Without the defaults at its end."""
    last = max([3] + [i + 1 for i in range(3, len(cta)) if cta[i] != DEFAULTS[i]])
    return cta[:last]


def with_cta(row: str, family: str, cta: tuple[int, ...]) -> str:
    return re.sub(rf"\.{family} = \{{[\d, ]*\}}", f".{family} = {{{', '.join(map(str, short(cta)))}}}", row, count=1)


def name_of(family: str, cta: tuple[int, ...]) -> str:
    return f"{family}-" + "x".join(map(str, short(cta)))


def variants_of(row: str, architecture: int, families: list[str], most: int) -> list[dict[str, Any]]:
    """The present CTA of each family, and what is tried beside it."""
    lists = VARIANTS["large" if TARGETS[architecture][1] > 200000 else "small"]
    found = []
    for family in families:
        present = cta_of(row, family)
        others = [cta + DEFAULTS[len(cta) :] for cta in lists[family]]
        chosen = [present] + [cta for cta in others if cta != present]
        for cta in chosen[: max(2, most // len(families))]:
            found.append({"name": name_of(family, cta), "family": family, "cta": list(cta), "present": cta == present})
    return found

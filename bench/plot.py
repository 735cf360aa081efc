"""Draws docs/crossover.svg from the result files: serial time over one solve against T, a line a batch (matplotlib): python3 bench/plot.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import crossover
import records
from results import SERIAL, Results

PLOT = records.ROOT / "docs/crossover.svg"
LINES = {"chain": ":", "best-first, top-4, depth 8": "-"}


def draw(results: Results) -> Any:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams |= {"svg.hashsalt": "canopy", "svg.fonttype": "none"}  # the same small file from the same results
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator, NullFormatter

    machines = list(results.cells)
    figure, axes = plt.subplots(len(machines), 2, figsize=(9, 3.4 * len(machines)), squeeze=False, sharex=True)
    for row, machine in enumerate(machines):
        for column, kind in enumerate(SERIAL):
            axis = axes[row][column]
            for words, families in crossover.MAPPED.items():
                found = crossover.nodes_by_batch(results, machine, families)
                for color, batch in enumerate(sorted({B for _, B in found})):
                    points = sorted((T, pair[column]) for (T, B), pair in found.items() if B == batch)
                    label = f"B = {batch}" if words != "chain" else None
                    axis.plot(*zip(*points, strict=True), LINES[words], color=f"C{color}", marker=".", label=label)
            axis.axhline(1, color="gray", linewidth=0.8)
            axis.set_title(f"{results.hardware(machine)}, against {kind.replace('_', ' ')}", fontsize=10)
            axis.set(xlabel="nodes T", yscale="log")
            axis.set_xscale("log", base=2)
            least, most = axis.get_ylim()
            axis.yaxis.set_major_locator(LogLocator(subs=(1, 1.2, 1.5, 2, 3, 5, 7) if most < 10 * least else (1, 2, 5)))
            axis.yaxis.set_minor_formatter(NullFormatter())
            for ticks in (axis.xaxis, axis.yaxis):
                ticks.set_major_formatter("{x:g}")
        axes[row][0].set_ylabel("serial time / one solve")
        axes[row][0].legend(title="solid: best-first\ndotted: chains", fontsize=8, title_fontsize=8)
    figure.tight_layout()
    return figure


def main(path: Path = PLOT) -> int:
    draw(Results(records.RESULTS)).savefig(path, metadata={"Date": None})
    print(f"{path} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())

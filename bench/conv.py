"""The tree convolution and the commit of its windows, beside a device copy of as many elements: python3 bench/conv.py [--quick].

One layer's channels of a model of 9 billion parameters, W = 4, bf16, SiLU, no bias, the plan at hand (cli/bench_conv.cpp). On a GPU only.
Writes conv.jsonl into out/bench/MACHINE.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import command
from runner import Request
from shapes import CORE, EFFORT

BATCHES, NODES = (1, 4, 16, 32), (8, 64, 256)
COMMIT_NODES, LAYERS = 64, 24
CHANNELS: dict[str, Any] = {"channels": 8192, "width": 4, "input": "bf16", "silu": True}
# As the core of the sweep: replays long beside what one costs.
REPLAYS = {name: value for name, value in (EFFORT["cuda"] | CORE).items() if name != "contenders"}


def one(nodes: int, batch: int, **more: Any) -> Request:
    trees = {"family": "best-first", "name": "best-first-4", "top_k": 4, "depth": min(8, nodes - 1), "seed": 0}
    return {"device": "cuda", "measure": "conv", "T": nodes, "B": batch, "layers": 1} | trees | CHANNELS | more | REPLAYS


def requests(device: str, quick: bool) -> list[Request]:
    if device != "cuda":
        return []
    batches, sizes = ((1, 16), (64,)) if quick else (BATCHES, NODES)
    verify = [one(nodes, batch) for batch in batches for nodes in sizes]
    return verify + [one(COMMIT_NODES, batch, measure="conv_commit", layers=LAYERS) for batch in batches]


def run(chosen: argparse.Namespace) -> list[str]:
    return command.measure(chosen, "conv", requests(chosen.device, chosen.quick))


if __name__ == "__main__":
    sys.exit(command.main(run, __doc__))

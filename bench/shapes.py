"""What is measured: the shapes of the benchmark, as requests of `canopy bench --requests`.

    families   trees of T nodes of nine families at batch 1 to 16, between the two on a GPU in four sizes but for two of the families
    edge       one to four nodes, where walking a tree wins if anywhere
    large      batch 32 and 64
    heads      48 value heads, bf16 states
    specla     SpecLA's trees: top-2 and top-4, depth 4, 12, 24, 16 and 32 nodes
    real       the published trees of data/trees
    grid       depth by width: spines whose levels all have the same number of nodes
    as called  raw gates and the L2 norm inside the kernel, beside gates and normalised keys that are given (GPU)
    stash      o and the u of every node, which a commit by stash reads: small trees and large at every batch (GPU)
    alike      chains whose keys lean on one vector, beside those of random keys: what a series loses by depth (GPU)
    commit     the state after the accepted path, all layers in one launch (GPU)

On a GPU the core, which most tables are made of, is measured first, by every contender in every precision and with longer replays; with a
stash by every contender in default precision. The
rest is asked of the contenders that came near the best somewhere in the core (bench/sweep.py) and in the order of its weight, so that a
run that was cut off lacks what matters least.
"""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Iterator
from typing import Any

from records import ROOT
from runner import Request, name_of

NODES = {"cpu": (4, 8, 16, 32, 64, 128, 256), "cuda": (3, 8, 16, 32, 64, 100, 128, 200, 256)}
BATCHES = {"cpu": (1, 2, 4), "cuda": (1, 2, 4, 8, 16)}
# Label, family, top-k; depth by the number of nodes.
FAMILIES: tuple[tuple[str, str, int, Any], ...] = (
    ("chain", "chain", 1, lambda n: n), ("balanced-2", "balanced", 2, lambda n: n), ("balanced-4", "balanced", 4, lambda n: n),
    ("best-first-4", "best-first", 4, lambda n: 8), ("skewed", "skewed", 4, lambda n: max(1, n // 2)), ("star", "star", 1, lambda n: 1),
    ("caterpillar", "caterpillar", 1, lambda n: n), ("spine", "spine", 4, lambda n: max(1, n // 2)), ("random", "random", 4, lambda n: n))  # fmt: skip
EFFORT: dict[str, dict[str, Any]] = {
    "cpu": {"caches": ["warm"], "contenders": "fast", "threads": 1, "repeat": 21, "warm_ups": 1, "most_seconds": 4.0},
    "cuda": {"caches": ["warm", "cold"], "contenders": "fast", "repeat": 200, "warm_ups": 25, "least": 20, "checked": 2,
             "replay_seconds": 1.3e-4, "share": 0.031},
}  # fmt: skip
CORE: dict[str, Any] = {"contenders": "all", "replay_seconds": 1e-3, "share": 0.05}
QUICK: dict[str, dict[str, Any]] = {"cpu": {"repeat": 5, "most_seconds": 0.3}, "cuda": {}}
CORE_TREES = {"chain": (2, 4, 8, 16, 32, 64, 128, 256), "best-first-4": (3, 8, 16, 32, 64, 128, 256), "balanced-2": (64, 128, 256)}
PLAIN = ("chain", "best-first-4")
ENDS = (1, 16)  # batches of what tables compare on a GPU
# With a stash: of half the time of the others, in replays long beside what one costs.
STASH: dict[str, Any] = {"replay_seconds": 4e-4, "share": 0.012}
STASH_TREES = {"chain": (1, 2, 4, 8, 16, 32, 64, 128, 256), "best-first-4": (4, 8, 16, 32, 64, 128, 256)}
STASH_FEW = (4, 16, 64, 256)  # of 48 value heads
ALIKE: dict[str, Any] = {"keys": "similar", "cosine": 0.9}
AS_CALLED: dict[str, Any] = {"raw_gates": True, "l2norm": True}  # as a model calls the layer
LEVELS, WIDTHS = (2, 4, 8, 16, 32, 64, 128), (1, 2, 4, 8, 16, 32, 64, 128)


def shape(device: str, family: str, nodes: int, batch: int = 1, **more: Any) -> Request:
    """A request with every field that its records are told apart by."""
    return {"device": device, "family": family, "T": nodes, "B": batch, "depth": 8, "top_k": 4, "seed": 0, "H": 16, "HV": 32, "K": 128,
            "V": 128, "input": "bf16", "state": "f32"} | more  # fmt: skip


def of_family(device: str, label: str, nodes: int, batch: int, **more: Any) -> Request:
    for name, family, top_k, depth in FAMILIES:
        if name == label:
            return shape(device, family, nodes, batch, name=label, top_k=top_k, depth=min(depth(nodes), max(nodes - 1, 0)), **more)
    raise ValueError(f"family {label!r}: expected one of {', '.join(name for name, *_ in FAMILIES)}")


def published_trees(program: str) -> list[tuple[str, list[int]]]:
    """Name and parents of every tree in data/trees."""
    found = []
    for path in sorted((ROOT / "data/trees").glob("*.json")):
        text = subprocess.run([program, "tree", str(path), "--json"], capture_output=True, text=True, check=True).stdout
        shown = json.loads(text)
        trees = shown["trees"] if "trees" in shown else [shown]
        for index, tree in enumerate(trees):
            found.append((path.stem + (f" {index + 1}" if len(trees) > 1 else ""), tree["parents"]))
    return found


def grid(device: str, batch: int) -> Iterator[Request]:
    for levels in LEVELS:
        for width in WIDTHS:
            if levels * width <= 256:
                yield shape(device, "spine", levels * width, batch, name="spine", depth=levels - 1)


def specla(device: str, batch: int) -> Iterator[Request]:
    for top_k in (2, 4):
        for depth in (4, 12, 24):
            for nodes in (16, 32):
                if top_k ** (depth + 1) - 1 >= nodes * (top_k - 1):  # the tree has room for them
                    yield shape(device, "specla", nodes, batch, name=f"specla-{top_k} depth {depth}", top_k=top_k, depth=depth)


def real(device: str, batch: int, trees: list[tuple[str, list[int]]]) -> Iterator[Request]:
    for name, parents in trees:
        yield shape(device, "published", len(parents), batch, name=name, trees=[parents])


def core(batch: int) -> Iterator[Request]:
    """What the tables of docs/benchmarks.md compare, on a GPU."""
    for label, sizes in CORE_TREES.items():
        yield from (of_family("cuda", label, nodes, batch) for nodes in sizes)
    for nodes in CORE_TREES["chain"]:
        yield of_family("cuda", "chain", nodes, batch) | ALIKE | {"name": "chain, keys alike"}
    for nodes in (16, 64, 128):
        yield of_family("cuda", "best-first-4", nodes, batch) | AS_CALLED | {"name": "best-first-4, raw gates and norm"}


def stash(batch: int, sizes: tuple[int, ...] = (), **more: Any) -> Iterator[Request]:
    """Calls that store u, of all sizes or of these."""
    for label, all_sizes in STASH_TREES.items():
        for nodes in sizes or all_sizes:
            yield of_family("cuda", label, nodes, batch, stash=True, **more) | {"name": f"{label}, u stored"}


def weight(request: Request) -> int:
    """How much of the tables hangs on a shape that is not in the core: the smaller, the more."""
    usual, ends = request["HV"] == 32 and request["state"] == "f32", request["B"] in ENDS
    plain = name_of(request) in PLAIN or request.get("stash", False)
    if usual and ends:
        return 1
    if plain and request["B"] <= 16 and (request["HV"] == 32 or request["state"] == "f32"):
        return 2
    return 3 if usual and request["B"] <= 16 else 4


def everything(device: str, trees: list[tuple[str, list[int]]]) -> Iterator[Request]:
    cuda = device == "cuda"
    for batch in ENDS if cuda else ():
        yield from core(batch)
        yield from stash(batch)
    for batch in BATCHES[device]:
        for nodes in NODES[device]:
            few_trees = cuda and batch not in ENDS and nodes not in (8, 32, 128, 256)
            yield from (of_family(device, label, nodes, batch) for label, *_ in FAMILIES if not few_trees or label in PLAIN)
    ends = ENDS if cuda else (1,)
    for batch in ends:
        yield from grid(device, batch)
        yield from specla(device, batch)
        yield from real(device, batch, trees)
    if not cuda:
        yield from (of_family(device, "chain", nodes, 1) for nodes in (1, 2, 3))
        return
    for batch in BATCHES[device]:
        yield from (of_family(device, "chain", nodes, batch) for nodes in (1, 2, 4))
    for batch in (32, 64):
        yield from (of_family(device, label, nodes, batch) for nodes in NODES[device] for label in PLAIN)
    for heads_v, state in ((48, "f32"), (32, "bf16"), (48, "bf16")):
        for batch in ends if heads_v == 48 and state == "bf16" else BATCHES[device]:
            for nodes in NODES[device]:
                yield from (of_family(device, label, nodes, batch, HV=heads_v, state=state) for label in PLAIN)
    for batch in BATCHES[device]:
        yield from stash(batch)
    for batch in ends:
        yield from stash(batch, STASH_FEW, HV=48)
    yield from (commit(batch) for batch in ends)


def few(device: str, trees: list[tuple[str, list[int]]]) -> Iterator[Request]:
    """Five minutes of a GPU: the ends of every axis."""
    cuda = device == "cuda"
    for batch in ENDS if cuda else (1,):
        for nodes in (3, 16, 64, 128, 256):
            yield from (of_family(device, label, nodes, batch) for label in PLAIN)
    yield from real(device, 1, trees)
    if cuda:
        yield of_family(device, "best-first-4", 128, 1, HV=48)
        yield of_family(device, "best-first-4", 128, 1, state="bf16")
        yield from (request for batch in ENDS for request in stash(batch, (16,)))
        yield commit(1)


def commit(batch: int) -> Request:
    return shape("cuda", "best-first", 64, batch, measure="commit", name="commit, 24 layers", layers=24)


def in_core(request: Request) -> bool:
    """Asked first; who is asked of the rest hangs on its answers."""
    return bool(request["contenders"] == "all") or bool(request.get("stash") and request["B"] in ENDS and request["HV"] == 32)


def sweep(device: str, trees: list[tuple[str, list[int]]], quick: bool = False, threads: int = 1) -> list[Request]:
    """The requests of the sweep, each once. Shuffled: the time left is a fair guess, and a GPU that grows hot is no effect of size. On a
    GPU by weight, the core first."""
    effort = EFFORT[device] | (QUICK[device] if quick else {}) | ({"threads": threads} if device == "cpu" else {})
    chosen = {json.dumps(request): request for request in (few if quick else everything)(device, trees)}
    by_weight = device == "cuda" and not quick
    first = {json.dumps(request) for batch in ENDS for request in (*core(batch), commit(batch))} if by_weight else set()
    own = lambda text, request: CORE if text in first else STASH if request.get("stash") else {}
    requests = [request | effort | own(text, request) for text, request in chosen.items()]
    random.Random(0).shuffle(requests)
    if by_weight:
        requests.sort(key=lambda request: 0 if in_core(request) else weight(request))
    return requests

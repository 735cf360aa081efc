"""The Triton contenders on a GPU: parity at their tolerances, commit, times beside the CUDA kernels."""

from __future__ import annotations

from typing import Any

import canopy_gdn
import canopy_gdn.triton as ct
import numpy as np
import torch
from canopy_gdn import Tree
from common import best_first, case, check, exact, failure, microseconds, on_host, record, relative, say, within

# docs/math.md, tolerances: fp32, split operands, TF32. Relative, of o before rounding.
LIMITS = {"fp32": 1e-5, "precise": 2e-5, "fast": 1e-2}
PRECISE = [(strategy, "precise") for strategy in ct.STRATEGIES]
VARIANTS = [*PRECISE, ("fused", "fast"), ("split", "fast")]
# What times() asks: sequences, what the trees are called, the trees.
SHAPES = [*((1, str(nodes), best_first(nodes)) for nodes in (16, 64, 128)), (1, "chain 16", [Tree.family("chain", 16)]),
          *((16, str(nodes), best_first(nodes, 16)) for nodes in (16, 64, 128))]  # fmt: skip


def split_arguments(arguments):
    trees = {n: arguments[n] for n in ("parents", "count")}
    return ct.plan(trees["parents"], trees["count"]), {n: v for n, v in arguments.items() if n not in trees}


def jobs() -> list[tuple[str, int]]:
    """What ahead.py compiles: the slowest first. A tuned kernel has four to six configurations."""
    return [(f"triton:{strategy}:{precision}", 2 if strategy == "split" else 3) for strategy, precision in VARIANTS]


def warm(strategy: str, precision: str) -> None:
    """Every call of parity() and times() of a variant once: the forms that its kernels are compiled in."""
    for options, dtype in ((cases(strategy), torch.float32), ([(trees, {}) for _, _, trees in SHAPES], torch.bfloat16)):
        for trees, more in options:
            if not kept_snapshots(strategy, trees):
                continue
            heads = (2, 4) if dtype == torch.float32 else (16, 32)
            arguments = case(trees, heads, **more)
            plan, rest = split_arguments(arguments)
            o = torch.zeros(*arguments["v"].shape, device="cuda", dtype=dtype)
            ct.verify(**rest, plan=plan, strategy=strategy, precision=precision, o=o)
            torch.cuda.synchronize()
    if (strategy, precision) == VARIANTS[0]:
        commit()
        hostile()


def cases(strategy: str) -> list[tuple[list[Tree], dict[str, Any]]]:
    """Trees and options of case(): two trees, raw gates, a chain that the strategy is good for."""
    chain = [Tree.family("chain", 16 if strategy in ("neumann", "squaring") else 129)]
    return [
        ([Tree.family("best-first", 100), Tree.family("random", 37, seed=3)], {}),
        (best_first(64), {"raw": True}),
        (chain, {}),
    ]


def kept_snapshots(strategy: str, trees: list[Tree]) -> bool:
    """Whether the states that the serial strategies keep, 2 MiB a node, stay below 2 GiB."""
    return strategy not in ("serial", "resident") or len(trees) * len(trees[0]) * 2 <= 2100


def parity(strategy: str, precision: str) -> str:
    worst = 0.0
    for trees, options in cases(strategy):
        arguments = case(trees, (2, 4), **options)
        plan, rest = split_arguments(arguments)
        o = torch.zeros(*arguments["v"].shape, device="cuda")
        ct.verify(**rest, plan=plan, strategy=strategy, precision=precision, o=o)
        worst = np.maximum(worst, relative(o, exact(arguments)[0]))
    limit = LIMITS["fp32"] if strategy in ("serial", "resident") else LIMITS[precision]
    return within(worst, limit, "relative error")


def hostile() -> str:
    """A chain of 255 similar keys: substitution holds."""
    arguments = case([Tree.family("chain", 255)], (1, 2), similar=True)
    plan, rest = split_arguments(arguments)
    o = torch.zeros(*arguments["v"].shape, device="cuda")
    ct.verify(**rest, plan=plan, o=o)
    return within(relative(o, exact(arguments)[0]), LIMITS["precise"] * 5, "relative error")


def commit() -> str:
    arguments = case([Tree.family("best-first", 100), Tree.family("random", 37, seed=3)], (2, 4))
    plan, rest = split_arguments(arguments)
    leaf = torch.tensor([99, 30], dtype=torch.int32, device="cuda")
    expected = canopy_gdn.oracle_state(**on_host(arguments), leaf=leaf.cpu().numpy()).swapaxes(-1, -2)
    _, stash = ct.verify(**rest, plan=plan)
    ct.commit(
        rest["k"], plan=plan, leaf=leaf, state=rest["state"], stash=stash, slot_index=rest["slot_index"], l2norm=True
    )
    return within(relative(rest["state"][rest["slot_index"].long()], expected), 2e-5, "relative error")


def run() -> None:
    for strategy, precision in VARIANTS:
        check(f"triton {strategy} {precision}", lambda: parity(strategy, precision))
    check("triton fused, chain of 255 similar keys", hostile)
    check("triton commit", commit)
    check("triton plan in a CUDA graph, B = 16, T = 128", plan_time)
    check("times", times)


def plan_time() -> str:
    parents = torch.from_numpy(canopy_gdn.batch(best_first(128, 16))[0]).cuda()
    return f"{microseconds(lambda: ct.plan(parents)):.1f} us"


def times() -> None:
    head = "".join(f"{f'B={b} {name}':>14}" for b, name, _ in SHAPES)
    say(f"       {'us, graph replay, warm':28}{head}")
    rows: dict[str, list[str]] = {}
    failed: list[str] = []
    for batch, name, trees in SHAPES:
        arguments = case(trees)
        plan, rest = split_arguments(arguments)
        o = torch.zeros_like(arguments["v"])
        stash = ct.verify(**rest, plan=plan)[1]
        calls = {
            f"triton {s} {p}": lambda s=s, p=p: ct.verify(**rest, plan=plan, strategy=s, precision=p, o=o, stash=stash)
            for s, p in VARIANTS
        }
        made = canopy_gdn.plan(parents=arguments["parents"], count=arguments["count"])
        size = canopy_gdn.verify_workspace(**arguments, plan=made, o=o)
        workspace = torch.empty(max(size, 64), dtype=torch.uint8, device="cuda")
        calls["canopy (CUDA)"] = lambda: canopy_gdn.verify(**arguments, plan=made, o=o, workspace=workspace)
        for label, call in calls.items():
            if not kept_snapshots(label.split()[1], trees):
                rows.setdefault(label, []).append("-")
                continue
            try:
                value = microseconds(call, 4, 15)
            except Exception as error:  # noqa: BLE001, the table is more useful with a hole
                failed.append(f"{label}, B={batch} {name}")
                failure(failed[-1], error)
                rows.setdefault(label, []).append("failed")
                continue
            rows.setdefault(label, []).append(f"{value:.1f}")
            record(kind="time", contender=label, B=batch, tree=name, us=value)
    for label, cells in rows.items():
        say(f"       {label:28}" + "".join(f"{cell:>14}" for cell in cells))
    assert not failed, f"not timed: {'; '.join(failed)}"

"""The Triton contenders on a GPU: parity at their tolerances, commit, times beside the CUDA kernels."""

from __future__ import annotations

import canopy_gdn
import canopy_gdn.triton as ct
import numpy as np
import torch
from canopy_gdn import Tree
from common import best_first, case, check, exact, microseconds, on_host, record, relative, say, within

# docs/math.md, tolerances: fp32, split operands, TF32. Relative, of o before rounding.
LIMITS = {"fp32": 1e-5, "precise": 2e-5, "fast": 1e-2}
PRECISE = [(strategy, "precise") for strategy in ct.STRATEGIES]
VARIANTS = [*PRECISE, ("fused", "fast"), ("split", "fast")]


def split_arguments(arguments):
    trees = {n: arguments[n] for n in ("parents", "count")}
    return ct.plan(trees["parents"], trees["count"]), {n: v for n, v in arguments.items() if n not in trees}


def warm(strategy: str, precision: str) -> None:
    """Compiles every configuration of a strategy, in a process of its own so that several compile at once."""
    plan, arguments = split_arguments(case(best_first(16), raw=True))
    ct.verify(**arguments, plan=plan, strategy=strategy, precision=precision)
    torch.cuda.synchronize()


def parity(strategy: str, precision: str) -> str:
    worst = 0.0
    for trees, options in (([Tree.family("best-first", 100), Tree.family("random", 37, seed=3)], {}),
                           (best_first(64), {"raw": True}),
                           ([Tree.family("chain", 16)] if strategy in ("neumann", "squaring") else [Tree.family("chain", 129)], {})):  # fmt: skip
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
    shapes = [(1, "16", best_first(16)), (1, "64", best_first(64)), (1, "128", best_first(128)), (1, "chain 16", [Tree.family("chain", 16)]),
              (16, "16", best_first(16, 16)), (16, "64", best_first(64, 16)), (16, "128", best_first(128, 16))]  # fmt: skip
    head = "".join(f"{f'B={b} {name}':>14}" for b, name, _ in shapes)
    say(f"       {'us, graph replay, warm':28}{head}")
    rows: dict[str, list[str]] = {}
    for batch, name, trees in shapes:
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
            if batch * len(trees[0]) * 2 > 2100 and "serial" in label:  # 4 GiB of snapshots are enough
                rows.setdefault(label, []).append("-")
                continue
            try:
                value = microseconds(call, 4, 15)
            except Exception as error:  # noqa: BLE001, the table is more useful with a hole
                say(f"{label} {batch} {name}: {type(error).__name__} {str(error)[:200]}")
                rows.setdefault(label, []).append("failed")
                continue
            rows.setdefault(label, []).append(f"{value:.1f}")
            record(kind="time", contender=label, B=batch, tree=name, us=value)
    for label, cells in rows.items():
        say(f"       {label:28}" + "".join(f"{cell:>14}" for cell in cells))

"""Seeded problems as NumPy arrays, and the same as PyTorch tensors."""

from __future__ import annotations

from typing import Any

import canopy_gdn
import numpy as np
from canopy_gdn import Tree


def problem(trees: list[Tree], heads: tuple[int, int] = (2, 4), dims: tuple[int, int] = (16, 24), *, seed: int = 0,
            raw: bool = False, layout: str = "vk", slots: int | None = None, similar: bool = False) -> dict[str, Any]:  # fmt: skip
    """Arguments of verify for these trees, float32. `similar`: keys of cosine .99 with beta near 1, where unstable solvers fail."""
    random = np.random.default_rng(seed)
    parents, count = canopy_gdn.batch(trees)
    B, T = parents.shape
    (H, HV), (K, V) = heads, dims
    normal = lambda *shape: random.standard_normal(shape).astype(np.float32)
    k = normal(B, T, H, K)
    if similar:
        k = normal(1, 1, H, K) + 0.1 * k
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    slots = slots or B + 1
    state = normal(slots, HV, V, K) if layout == "vk" else normal(slots, HV, K, V)
    arguments = {"q": normal(B, T, H, K), "k": k, "v": normal(B, T, HV, V), "state": state, "parents": parents, "count": count,
                 "slot_index": random.permutation(slots)[:B].astype(np.int32), "state_layout": layout}  # fmt: skip
    if raw:
        arguments |= {"a": normal(B, T, HV), "b": normal(B, T, HV), "a_log": normal(HV), "dt_bias": normal(HV)}
    else:
        beta = random.uniform(0.95 if similar else 0, 1, (B, T, HV)).astype(np.float32)
        arguments |= {"g": -random.exponential(0.1, (B, T, HV)).astype(np.float32), "beta": beta}
    return arguments


def tensors(arguments: dict[str, Any]) -> dict[str, Any]:
    """The same with PyTorch tensors, on the CPU; copies."""
    import torch

    return {n: torch.from_numpy(v.copy()) if isinstance(v, np.ndarray) else v for n, v in arguments.items()}


def call(arguments: dict[str, Any], **more: Any) -> Any:
    """verify with the arguments of problem()."""
    return canopy_gdn.verify(**arguments, **more)


def commit_arguments(arguments: dict[str, Any], leaf: np.ndarray) -> dict[str, Any]:
    """Arguments of commit for a problem of verify."""
    return {name: value for name, value in arguments.items() if name != "q"} | {"leaf": leaf}


def relative(got: Any, expected: Any) -> float:
    """Relative Frobenius error; NaN where anything is not finite."""
    got, expected = np.asarray(got, np.float64), np.asarray(expected, np.float64)
    return float(np.linalg.norm(got - expected) / max(np.linalg.norm(expected), 1e-30))


TREES = {
    "one": [Tree([-1])],
    "chain": [Tree.family("chain", 17)],
    "star": [Tree.family("star", 16)],
    "best-first": [Tree.family("best-first", 33, seed=s) for s in range(2)],
    "ragged": [Tree.family("random", n, seed=n) for n in (1, 5, 20)],
    "skewed": [Tree.family("skewed", 48, depth=20)],
}

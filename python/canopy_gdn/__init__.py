"""canopy: a whole draft tree verified through Gated DeltaNet layers in one triangular solve.

Letters, as in docs/math.md: B sequences, T nodes of a draft tree, H key heads, HV value heads, K and V the key and value
widths. Node 0 is the root, the last sampled token; every parent precedes its children.

Calls take NumPy arrays (through the C interface, on the CPU) or PyTorch tensors (through operators, on CPU and CUDA);
neither is imported before it is used. Wrong arguments raise RuntimeError with the argument, what was expected, what came
and the remedy.

    tree = canopy_gdn.Tree.from_choices([[0], [1], [0, 0]])
    parents, count = canopy_gdn.batch([tree])
    plan = canopy_gdn.plan(parents=parents)                    # once per step, for all layers
    o = canopy_gdn.verify(q, k, v, g=g, beta=beta, state=pool, parents=parents, plan=plan)   # each layer; the pool is only read
    canopy_gdn.commit(k, v, g=g, beta=beta, state=pool, parents=parents, leaf=accepted)      # the state after the accepted node
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# name -> the module that defines it: loaded when first asked for, so that the import costs next to nothing.
_HOME = {
    "CanopyError": "_abi",
    "Implementation": "_abi",
    "implementations": "_abi",
    "library_version": "_abi",
    "Tree": "tree",
    "batch": "tree",
    "plan": "calls",
    "verify": "calls",
    "commit": "calls",
    "conv1d_tree": "calls",
    "conv1d_commit": "calls",
    "explain": "calls",
    "verify_workspace": "calls",
    "commit_workspace": "calls",
    "oracle": "calls",
    "oracle_state": "calls",
}
__all__ = [
    "CanopyError",
    "Implementation",
    "Tree",
    "batch",
    "commit",
    "commit_workspace",
    "conv1d_commit",
    "conv1d_tree",
    "explain",
    "implementations",
    "library_version",
    "oracle",
    "oracle_state",
    "plan",
    "verify",
    "verify_workspace",
    "__version__",
]

if TYPE_CHECKING:
    from ._abi import CanopyError, Implementation, implementations, library_version
    from .calls import (
        commit,
        commit_workspace,
        conv1d_commit,
        conv1d_tree,
        explain,
        oracle,
        oracle_state,
        plan,
        verify,
        verify_workspace,
    )
    from .tree import Tree, batch


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_HOME))

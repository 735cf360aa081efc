"""What a call costs beyond the kernel, on the CPU: python tests/python/overhead.py [--runs N]

One tree of 2 nodes, one head of 8 x 8, 8 channels: next to nothing to compute. The C interface alone, the operator, the function;
the difference to the C interface is what PyTorch and the package add. The best of several runs each, one thread. On a GPU:
tests/python/gpu/run.py.
"""

from __future__ import annotations

import argparse
import ctypes
import time
from collections.abc import Callable

import canopy_gdn
import torch
from canopy_gdn import _abi, _conv, _problem, ops


def microseconds(call: Callable[[], object], runs: int) -> float:
    """The best of `runs` runs of 50 calls: short enough to fall between two interruptions of a busy machine."""
    best = float("inf")
    for _ in range(runs):
        start = time.perf_counter()
        for _ in range(50):
            call()
        best = min(best, (time.perf_counter() - start) / 50 * 1e6)
    return best


def cases() -> dict[str, dict[str, Callable[[], object]]]:
    """Per call, the ways to make it; the C interface first."""
    normal = torch.randn
    parents = torch.tensor([[-1, 0]], dtype=torch.int32)
    plan = canopy_gdn.plan(parents=parents)
    trees = {"parents": parents, "plan": plan}
    q, k, v, state = normal(1, 2, 1, 8), normal(1, 2, 1, 8), normal(1, 2, 1, 8), normal(1, 1, 8, 8)
    gates = {"g": -normal(1, 2, 1).abs(), "beta": normal(1, 2, 1).sigmoid()}
    x, weight, windows = normal(1, 2, 8), normal(8, 4), normal(1, 8, 3)
    o, convolved, leaf = torch.empty_like(v), torch.empty_like(x), torch.tensor([1], dtype=torch.int32)
    workspace = torch.empty(1 << 20, dtype=torch.uint8)
    memory = (workspace.data_ptr() + 63) // 64 * 64
    error = _abi.Error()

    def direct(name: str, params: ctypes.Structure) -> Callable[[], object]:
        function, at = getattr(_abi.library(), name), ctypes.byref(params)
        call = lambda: function(at, None, memory, 1 << 19, None, ctypes.byref(error))
        assert call() == 0, error.message.decode()
        return call

    pool = {"state": state} | trees
    arguments = gates | pool
    window = {"state": windows} | trees
    return {
        "verify": {
            "C interface": direct("canopy_verify", _problem.verify_params(q, k, v, arguments, o)),
            "operator, o and workspace given": lambda: ops._verify_out(q, k, v, state, o, workspace, parents, plan, gates["g"], gates["beta"]),
            "canopy_gdn.verify, o and workspace given": lambda: canopy_gdn.verify(q, k, v, **arguments, o=o, workspace=workspace),
            "canopy_gdn.verify": lambda: canopy_gdn.verify(q, k, v, **arguments),
        },
        "commit": {
            "C interface": direct("canopy_commit", _problem.commit_params(k, v, arguments | {"leaf": leaf})),
            "operator, workspace given": lambda: ops._commit(k, v, leaf, state, workspace, parents, plan, gates["g"], gates["beta"]),
            "canopy_gdn.commit, workspace given": lambda: canopy_gdn.commit(k, v, **arguments, leaf=leaf, workspace=workspace),
            "canopy_gdn.commit": lambda: canopy_gdn.commit(k, v, **arguments, leaf=leaf),
        },
        "conv1d_tree": {
            "C interface": direct("canopy_conv_verify", _conv.tree_params(x, window | {"weight": weight}, convolved)),
            "operator, o given": lambda: ops._conv_out(x, windows, weight, convolved, None, parents, plan),
            "canopy_gdn.conv1d_tree, o given": lambda: canopy_gdn.conv1d_tree(x, weight, **window, o=convolved),
            "canopy_gdn.conv1d_tree": lambda: canopy_gdn.conv1d_tree(x, weight, **window),
        },
        "conv1d_commit": {
            "C interface": direct("canopy_conv_commit", _conv.commit_params(x, window | {"leaf": leaf})),
            "operator": lambda: ops._conv_commit(x, leaf, windows, parents, plan),
            "canopy_gdn.conv1d_commit": lambda: canopy_gdn.conv1d_commit(x, **window, leaf=leaf),
        },
        "to compare": {"torch.add, out given": lambda: torch.add(o, o, out=o)},
    }  # fmt: skip


def measure(runs: int) -> list[tuple[str, str, float, float | None]]:
    """Call, way, microseconds, and those beyond the C interface."""
    rows = []
    with torch.inference_mode():
        for call, ways in cases().items():
            base = None
            for way, run in ways.items():
                us = microseconds(run, runs)
                base = us if way == "C interface" else base
                rows.append((call, way, us, None if base is None else us - base))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=300, help="runs of 50 calls (default: %(default)s)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, canopy-gdn {canopy_gdn.__version__}")
    print(f"{'':14}{'':44}{'us a call':>10}{'beyond C':>10}")
    for call, way, us, beyond in measure(options.runs):
        print(f"{call:14}{way:44}{us:10.2f}{'' if beyond is None else f'{beyond:10.2f}'}")


if __name__ == "__main__":
    main()

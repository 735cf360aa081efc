"""verify, commit, the convolution, plan and the oracle on NumPy arrays, through the C interface."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from . import _abi, _conv, _problem


def aligned(length: int) -> np.ndarray:
    """uint8 [length] at an address that is a multiple of 64, as the C interface asks of plans and workspaces."""
    raw = np.empty(length + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + length]


def _name(implementation: str | None) -> bytes | None:
    if not isinstance(implementation, str | None):
        raise _abi.CanopyError(
            f"implementation = {implementation!r}: expected a name of implementations(), or None for the dispatcher's choice, got "
            f"{type(implementation).__name__}"
        )
    return None if implementation is None else implementation.encode()


def _memory(name: str, given: Any) -> np.ndarray:
    """Memory of the caller's that the library writes as bytes."""
    view = _problem.view_of(name, given, True)
    if not isinstance(given, np.ndarray):
        raise _abi.CanopyError(f"{name}: expected a NumPy array as the other arguments are, got {type(given).__name__}")
    if not given.flags.c_contiguous:
        raise _abi.CanopyError(f"{name}: expected contiguous memory, got strides {view.stride}; pass the whole buffer")
    return given


def _workspace(params: Any, call: str, implementation: str | None, given: np.ndarray | None) -> np.ndarray:
    if given is not None:
        return _memory("workspace", given)
    return aligned(workspace_bytes(params, call, implementation))


def _run(params: Any, call: str, implementation: str | None, workspace: np.ndarray | None = None) -> None:
    memory = _workspace(params, call, implementation, workspace)
    _abi.call(f"canopy_{call}", ctypes.byref(params), _name(implementation), memory.ctypes.data, memory.nbytes, None)


def workspace_bytes(params: Any, call: str, implementation: str | None) -> int:
    length = ctypes.c_size_t()
    _abi.call(f"canopy_{call}_workspace", ctypes.byref(params), _name(implementation), ctypes.byref(length))
    return length.value


def plan(given: dict[str, Any], out: np.ndarray | None = None) -> np.ndarray:
    problem = _problem.plan_problem(given)
    rows, width = max(problem.batch, 1), _abi.plan_row_bytes("cpu")
    made = aligned(rows * width).reshape(rows, width) if out is None else _memory("plan", out)
    _abi.call("canopy_plan", ctypes.byref(problem), made.ctypes.data, made.nbytes, None)
    return made


def verify(q: Any, k: Any, v: Any, given: dict[str, Any], o: Any, out_dtype: Any, implementation: str | None,
           workspace: Any) -> np.ndarray:  # fmt: skip
    if o is None:
        shape = (*_problem.axes_of("q", q, "[B,T,H,K]")[:2], *_problem.axes_of("v", v, "[B,T,HV,V]")[2:])
        o = np.zeros(shape, v.dtype if out_dtype is None else out_dtype)  # rows past a count stay zero
    _run(_problem.verify_params(q, k, v, given, o), "verify", implementation, workspace)
    return o


def commit(k: Any, v: Any, given: dict[str, Any], implementation: str | None, workspace: Any) -> None:
    _run(_problem.commit_params(k, v, given), "commit", implementation, workspace)


def conv1d_tree(x: Any, given: dict[str, Any], o: Any, out_dtype: Any, implementation: str | None) -> np.ndarray:
    if o is None:
        shape = _problem.axes_of("x", x, "[B,T,C]")
        o = np.zeros(shape, x.dtype if out_dtype is None else out_dtype)  # rows past a count stay zero
    _run(_conv.tree_params(x, given, o), "conv_verify", implementation)
    return o


def conv1d_commit(x: Any, given: dict[str, Any], implementation: str | None) -> None:
    _run(_conv.commit_params(x, given), "conv_commit", implementation)


def oracle(q: Any, k: Any, v: Any, given: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    params = _problem.verify_params(q, k, v, given, None)
    p = params.problem
    o = np.empty((p.batch, p.nodes, p.heads_v, p.dim_v))
    u, l = np.empty_like(o), np.empty(o.shape[:3])
    _abi.call("canopy_oracle_verify", ctypes.byref(params), o.ctypes.data, u.ctypes.data, l.ctypes.data)
    return o, u, l


def oracle_state(q: Any, k: Any, v: Any, given: dict[str, Any], leaf: np.ndarray) -> np.ndarray:
    params = _problem.verify_params(q, k, v, given, None)
    p = params.problem
    address = _problem.Reader("q", q).ints("leaf", leaf, "[B]", [p.batch])
    state = np.empty((p.batch, p.heads_v, p.dim_k, p.dim_v))
    _abi.call("canopy_oracle_state", ctypes.byref(params), address, state.ctypes.data)
    return state

"""The calls: plan, verify, commit, the tree convolution and what goes with them, on NumPy arrays or PyTorch tensors.

Shapes are those of docs/api.md. Strides are free but for the last axis of q, k, v, x, o and state, which is dense: slices of a
larger buffer are read in place.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from . import _abi, _problem

Array = TypeVar("Array")  # numpy.ndarray or torch.Tensor
_loaded: Any = None


def _operators() -> Any:
    """The module of the operators; an import statement in a call would cost as much as the rest of it."""
    global _loaded
    if _loaded is None:
        from . import ops as _loaded
    return _loaded


def plan(*, parents: Array | None = None, next_token: Array | None = None, next_sibling: Array | None = None,
         count: Array | None = None, slot_index: Array | None = None, slots: int | None = None, padding_slot: int = -1,
         out: Array | None = None) -> Array:  # fmt: skip
    """Depth-first order, masks and block paths of a batch's trees: once per step, shared by verify and commit of all layers.

    parents [B, T] int32, or next_token and next_sibling [B, T] int32 (first child and next sibling, -1 none); count [B] int32
    live nodes (absent: all T); slot_index [B] int32 or int64 with the pool's number of `slots`, if padding rows are to be left
    out of the plan. Returns uint8 [max(B, 1), bytes], made on the trees' device, to be passed on as `plan` with the same trees;
    `out` takes one of an earlier step, and nothing is allocated.

    Raises RuntimeError for arguments of the wrong shape, dtype or device. A malformed tree is found by verify and commit.
    """
    given = {"parents": parents, "next_token": next_token, "next_sibling": next_sibling, "count": count,
             "slot_index": slot_index, "slots": slots, "padding_slot": padding_slot}  # fmt: skip
    if slot_index is not None and slots is None:
        raise _abi.CanopyError(
            "slots: expected the number of slots of the pool, because slot_index is given, got None; pass state.shape[0]"
        )
    if _problem.is_torch(parents) or _problem.is_torch(next_token):
        return _operators().plan(parents, next_token, next_sibling, count, slot_index, slots, padding_slot, out)
    from . import _numpy

    return cast(Array, _numpy.plan(given, cast(Any, out)))


def verify(q: Array, k: Array, v: Array, *, state: Array, g: Array | None = None, beta: Array | None = None,
           a: Array | None = None, b: Array | None = None, a_log: Array | None = None, dt_bias: Array | None = None,
           beta_doubled: bool = False, parents: Array | None = None, next_token: Array | None = None,
           next_sibling: Array | None = None, count: Array | None = None, plan: Array | None = None,
           slot_index: Array | None = None, padding_slot: int = -1, state_layout: str = "vk", l2norm: bool = False,
           l2norm_eps: float = 1e-6, scale: float | None = None, precision: str = "default",
           max_depth: int = 0, implementation: str | None = None, o: Array | None = None, out_dtype: Any = None,
           stash_u: Array | None = None, stash_l: Array | None = None, row_status: Array | None = None,
           workspace: Array | None = None) -> Array:  # fmt: skip
    """Every node's output through one Gated DeltaNet layer (E2 to E7). The state pool is only read.

    | argument | shape, dtype | |
    |---|---|---|
    | q, k | [B, T, H, K] f32, bf16, f16 | H divides HV; value head hv reads key head hv / (HV/H) |
    | v | [B, T, HV, V] as q | |
    | state | [slots, HV, V, K] f32, bf16, f16 | or [slots, HV, K, V] with state_layout "kv" |
    | g, beta | [B, T, HV] f32 | log gate (log alpha, <= 0) and beta |
    | a, b, a_log, dt_bias | [B, T, HV] and [HV] | instead: g = -exp(a_log) softplus(a + dt_bias), beta = sigmoid(b), twice that with beta_doubled |
    | parents | [B, T] int32 | -1 for the root; or next_token, next_sibling |
    | count | [B] int32 | live nodes, 0 to T; absent: all |
    | plan | uint8 | what plan() made of the same trees; absent: the call plans for itself |
    | slot_index | [B] int32, int64 | absent: sequence b uses slot b; at or below padding_slot: a padding row, left out |
    | o | [B, T, HV, V] f32, bf16, f16 | out; rows past a count and padding rows are left untouched. Absent: made, with zeros there |
    | stash_u, stash_l | [B, T, HV, V], [B, T, HV] f32 | out: U and l for commit(method="stash") |
    | row_status | [B] int32 | out: 0, or bits of canopy.h's CANOPY_ROW_*. Absent: a bad row refuses the call on the CPU |

    l2norm: q and k are multiplied by rsqrt(sum x^2 + l2norm_eps) first. scale: on q, K^-0.5 by default. precision: "default",
    "fp32", "precise", "half" or "fast". implementation: a name of implementations(), or None for the dispatcher's choice.
    max_depth: the depth that no tree of the call exceeds, where it is known (an engine's number of draft steps), for that choice
    alone; 0: unknown, and deeper trees are right too.
    out_dtype: dtype of a made `o`, v's by default. workspace: uint8 memory of verify_workspace() bytes; absent: allocated.

    Returns o. Raises RuntimeError naming the argument, what was expected, what came and the remedy; PyTorch tensors that
    require grad are refused, there is no backward pass.
    """
    if hasattr(q, "__torch_function__"):
        return _operators().verify(q, k, v, state, slot_index, parents, next_token, next_sibling, count, plan, g, beta, a, b, a_log,
                          dt_bias, beta_doubled, l2norm, l2norm_eps, scale, state_layout, padding_slot, precision,
                          max_depth, implementation, o, out_dtype, stash_u, stash_l, row_status, workspace)  # fmt: skip
    given = {"state": state, "g": g, "beta": beta, "a": a, "b": b, "a_log": a_log, "dt_bias": dt_bias,
             "beta_doubled": beta_doubled, "parents": parents, "next_token": next_token, "next_sibling": next_sibling,
             "count": count, "plan": plan, "slot_index": slot_index, "padding_slot": padding_slot,
             "state_layout": state_layout, "l2norm": l2norm, "l2norm_eps": l2norm_eps, "scale": scale,
             "precision": precision, "max_depth": max_depth, "stash_u": stash_u, "stash_l": stash_l, "row_status": row_status}  # fmt: skip
    from . import _numpy

    return cast(Array, _numpy.verify(q, k, v, given, o, out_dtype, implementation, workspace))


def commit(k: Array, v: Array | None, *, leaf: Array, state: Array, g: Array | None = None, beta: Array | None = None,
           a: Array | None = None, b: Array | None = None, a_log: Array | None = None, dt_bias: Array | None = None,
           beta_doubled: bool = False, parents: Array | None = None, next_token: Array | None = None,
           next_sibling: Array | None = None, count: Array | None = None, plan: Array | None = None,
           slot_index: Array | None = None, padding_slot: int = -1, dst_slot: Array | None = None,
           track_leaf: Array | None = None, track_slot: Array | None = None, state_layout: str = "vk", l2norm: bool = False,
           l2norm_eps: float = 1e-6, method: str = "resolve", stash_u: Array | None = None, stash_l: Array | None = None,
           implementation: str | None = None, row_status: Array | None = None,
           workspace: Array | None = None) -> None:  # fmt: skip
    """The state after the accepted node of each sequence (E8), written into the pool; all layers in one call.

    Arguments as in verify, and:

    | argument | shape, dtype | |
    |---|---|---|
    | leaf | [B] int32 | accepted node; below 0 or at or past the count: the row is skipped, its state bitwise as it was |
    | state | as in verify, or [L, slots, ...] | with a layer axis, k, v, gates and stash have one too ([L, B, T, ...]; a_log [L, HV]) |
    | dst_slot | [B] as slot_index | where the state goes; absent: in place |
    | track_leaf, track_slot | [B] int32, [B] as slot_index | a second node of the tree whose state goes to another slot |
    | stash_u, stash_l | [B, T, HV, V], [B, T, HV] f32 | with method "stash": what verify wrote |

    method: "resolve" solves the accepted chain again (verify stores nothing), "stash" uses U, "replay" runs E1 along the path
    (bits independent of the tree's shape). v may be None with "stash".

    Raises RuntimeError as verify does.
    """
    if hasattr(k, "__torch_function__"):
        return _operators().commit(k, v, leaf, state, slot_index, parents, next_token, next_sibling, count, plan, g, beta, a, b, a_log,
                          dt_bias, beta_doubled, l2norm, l2norm_eps, state_layout, padding_slot, dst_slot, track_leaf,
                          track_slot, stash_u, stash_l, method, implementation, row_status, workspace)  # fmt: skip
    given = {"leaf": leaf, "state": state, "g": g, "beta": beta, "a": a, "b": b, "a_log": a_log, "dt_bias": dt_bias,
             "beta_doubled": beta_doubled, "parents": parents, "next_token": next_token, "next_sibling": next_sibling,
             "count": count, "plan": plan, "slot_index": slot_index, "padding_slot": padding_slot, "dst_slot": dst_slot,
             "track_leaf": track_leaf, "track_slot": track_slot, "state_layout": state_layout, "l2norm": l2norm,
             "l2norm_eps": l2norm_eps, "method": method, "stash_u": stash_u, "stash_l": stash_l,
             "row_status": row_status}  # fmt: skip
    from . import _numpy

    return _numpy.commit(k, v, given, implementation, workspace)


def conv1d_tree(x: Array, weight: Array, bias: Array | None = None, *, state: Array, silu: bool = False,
                parents: Array | None = None, next_token: Array | None = None, next_sibling: Array | None = None,
                count: Array | None = None, plan: Array | None = None, slot_index: Array | None = None, padding_slot: int = -1,
                implementation: str | None = None, o: Array | None = None, out_dtype: Any = None,
                row_status: Array | None = None) -> Array:  # fmt: skip
    """The short causal convolution in front of a layer, every node's window along its root path (E9). The pool is only read.

    | argument | shape, dtype | |
    |---|---|---|
    | x | [B, T, C] f32, bf16, f16 | each node's own input; channels dense, rows may be slices (SGLang's [B, C, T]: x.transpose(1, 2)) |
    | weight | [C, W] f32, bf16, f16 | W of 2 to 4, the tap on the oldest input first (of a Conv1d: weight[:, 0]); any strides |
    | bias | [C] f32, bf16, f16 | |
    | state | [slots, C, W - 1] f32, bf16, f16 | the pool: the last committed inputs, oldest first; any strides |
    | parents, next_token, next_sibling, count, plan, slot_index, padding_slot | | as in verify; the plan is the layer's own |
    | o | [B, T, C] as x, or f32 | out, not x itself; rows past a count and padding rows are left untouched. Absent: made, with zeros there |
    | row_status | [B] int32 | out: 0, or bits of canopy.h's CANOPY_ROW_*. Absent: a bad row refuses the call on the CPU |

    silu: y / (1 + exp(-y)) of the result. implementation: a name of implementations(), or None. out_dtype: dtype of a made `o`,
    x's by default. In fp32, one fused multiply-add a tap, bias first, oldest to newest: up to SiLU and the rounding to o's type
    every implementation gives the same bits. With `plan` and `o` given nothing is allocated.

    Returns o. Raises RuntimeError as verify does.
    """
    if hasattr(x, "__torch_function__"):
        return _operators().conv1d_tree(x, state, weight, bias, silu, slot_index, parents, next_token, next_sibling, count, plan,
                                        padding_slot, implementation, o, out_dtype, row_status)  # fmt: skip
    given = {"weight": weight, "bias": bias, "state": state, "silu": silu, "parents": parents, "next_token": next_token,
             "next_sibling": next_sibling, "count": count, "plan": plan, "slot_index": slot_index,
             "padding_slot": padding_slot, "row_status": row_status}  # fmt: skip
    from . import _numpy

    return cast(Array, _numpy.conv1d_tree(x, given, o, out_dtype, implementation))


def conv1d_commit(x: Array, *, leaf: Array, state: Array, parents: Array | None = None, next_token: Array | None = None,
                  next_sibling: Array | None = None, count: Array | None = None, plan: Array | None = None,
                  slot_index: Array | None = None, padding_slot: int = -1, dst_slot: Array | None = None,
                  track_leaf: Array | None = None, track_slot: Array | None = None, implementation: str | None = None,
                  row_status: Array | None = None) -> None:  # fmt: skip
    """The convolution's window after the accepted node of each sequence, written into the pool; all layers in one call.

    | argument | shape, dtype | |
    |---|---|---|
    | x | [B, T, C] f32, bf16, f16 | what conv1d_tree was given |
    | leaf | [B] int32 | accepted node; below 0 or at or past the count: the row is skipped, its window bitwise as it was |
    | state | [slots, C, W - 1], or [L, slots, C, W - 1] | with a layer axis, x has one too: [L, B, T, C] |
    | dst_slot | [B] as slot_index | where the window goes; absent: in place |
    | track_leaf, track_slot | [B] int32, [B] as slot_index | a second node of the tree whose window goes to another slot |

    The window after a node: the last W - 1 of the committed inputs and those of its root path, its own included, rounded to the
    pool's type. The rest as in conv1d_tree. Raises RuntimeError as verify does.
    """
    if hasattr(x, "__torch_function__"):
        return _operators().conv1d_commit(x, leaf, state, slot_index, parents, next_token, next_sibling, count, plan, padding_slot,
                                          dst_slot, track_leaf, track_slot, implementation, row_status)  # fmt: skip
    given = {"leaf": leaf, "state": state, "parents": parents, "next_token": next_token, "next_sibling": next_sibling,
             "count": count, "plan": plan, "slot_index": slot_index, "padding_slot": padding_slot, "dst_slot": dst_slot,
             "track_leaf": track_leaf, "track_slot": track_slot, "row_status": row_status}  # fmt: skip
    from . import _numpy

    return _numpy.conv1d_commit(x, given, implementation)


@functools.cache
def _keywords(call: Callable[..., Any]) -> tuple[frozenset[str], tuple[str, ...]]:
    """Keywords of a call, and those without a default."""
    only = [p for p in inspect.signature(call).parameters.values() if p.kind is p.KEYWORD_ONLY]
    return frozenset(p.name for p in only), tuple(p.name for p in only if p.default is p.empty)


def _arguments_of(call: Callable[..., Any], caller: str, given: dict[str, Any]) -> dict[str, Any]:
    """What a call about another takes must be what the other takes: a misspelt option would be an answer to another question."""
    known, required = _keywords(call)
    for name in given:
        if name not in known:
            raise TypeError(
                f"{caller}() got an unexpected keyword argument {name!r}: expected those of {call.__name__}()"
            )
    for name in required:
        if name not in given:
            raise TypeError(f"{caller}() missing the keyword argument {name!r} of {call.__name__}()")
    return given


def explain(q: Any, k: Any, v: Any, *, o: Any = None, **arguments: Any) -> str:
    """Which implementation verify would run for these arguments and why, a line for each that refuses. `o` stands for the
    output dtype; without it, q's is assumed. Other arguments as in verify."""
    params = _problem.verify_params(q, k, v, _arguments_of(verify, "explain", arguments), v if o is None else o)
    if o is None:  # nothing is written: the extents of v are those of o, its strides may overlap
        p = params.problem
        extents = (p.nodes * p.heads_v * p.dim_v, p.heads_v * p.dim_v, p.dim_v, 1)
        params.o.stride = (ctypes.c_int64 * 5)(0, *extents)
    return _abi.text_of("canopy_explain", ctypes.byref(params))


def verify_workspace(q: Any, k: Any, v: Any, *, o: Any, implementation: str | None = None, **arguments: Any) -> int:
    """Bytes that verify needs for these arguments: allocate once (64-byte aligned), pass as `workspace`, and a call allocates
    nothing. 0 is possible."""
    from . import _numpy

    params = _problem.verify_params(q, k, v, _arguments_of(verify, "verify_workspace", arguments), o)
    return _numpy.workspace_bytes(params, "verify", implementation)


def commit_workspace(k: Any, v: Any, *, implementation: str | None = None, **arguments: Any) -> int:
    """Bytes that commit needs for these arguments."""
    from . import _numpy

    params = _problem.commit_params(k, v, _arguments_of(commit, "commit_workspace", arguments))
    return _numpy.workspace_bytes(params, "commit", implementation)


def oracle(q: Any, k: Any, v: Any, **arguments: Any) -> tuple[Any, Any, Any]:
    """The recurrence itself (E1) in fp64 on NumPy arrays: o and u [B, T, HV, V], l [B, T, HV]; zeros past a count.
    Arguments as in verify. The truth that everything is compared with; slow."""
    from . import _numpy

    return _numpy.oracle(q, k, v, _arguments_of(verify, "oracle", arguments))


def oracle_state(q: Any, k: Any, v: Any, *, leaf: Any, **arguments: Any) -> Any:
    """fp64 state after node leaf[b] of each sequence (E1), [B, HV, K, V]; a skipped row gives its S0, a padding row zeros."""
    from . import _numpy

    return _numpy.oracle_state(q, k, v, _arguments_of(verify, "oracle_state", arguments), leaf)

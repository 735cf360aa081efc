"""The calls: arguments checked, buffers made, kernels launched."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from .._abi import CanopyError
from .committing import commit_kernel
from .fused import fused_kernel
from .gates import gates_kernel
from .planning import Plan
from .serial import serial_kernel
from .split import apply_kernel, factors_kernel

STRATEGIES = ("fused", "neumann", "squaring", "split", "serial", "resident")
_SOLVERS = {"fused": "substitution", "split": "substitution", "neumann": "neumann", "squaring": "squaring"}
_PRECISIONS = {"fp32": "ieee", "precise": "tf32x3", "fast": "tf32"}


@dataclass(frozen=True)
class Stash:
    """What verify leaves for commit: U and the cumulative gates by rank."""

    u: Tensor  # fp32 [B, HV, T, V]
    gates: Tensor  # fp32 [3, B, HV, T]


def _expect(name: str, tensor: Tensor, shape: tuple[int, ...], dense: bool = False) -> None:
    if tuple(tensor.shape) != shape:
        raise CanopyError(f"{name}: expected shape {list(shape)}, got {list(tensor.shape)}")
    if dense and tensor.stride(-1) != 1 and shape[-1] > 1:
        raise CanopyError(
            f"{name}: expected a last stride of 1, got {tensor.stride(-1)}; make the last axis contiguous"
        )


def _rows(batch: int, **indices: Tensor | None) -> None:
    """Integers [B] that a kernel reads one behind the other."""
    for name, tensor in indices.items():
        if tensor is None:
            continue
        _expect(name, tensor, (batch,), True)
        if tensor.dtype not in (torch.int32, torch.int64):
            raise CanopyError(
                f"{name}.dtype = {tensor.dtype}: expected torch.int32 or torch.int64 for [B]; convert it with .int()"
            )


def _width(name: str, width: int) -> None:
    if width < 16 or width > 256 or width & (width - 1):
        raise CanopyError(
            f"{name} = {width}: expected a power of 2 from 16 to 256; pad the head, or use canopy_gdn.verify"
        )


def _state_strides(state: Tensor, layout: str, HV: int, K: int, V: int) -> tuple[int, int, int, int]:
    """Strides of slot, head, value, key."""
    if layout not in ("vk", "kv"):
        raise CanopyError(f"state_layout = {layout!r}: expected one of 'vk', 'kv'")
    vk = layout == "vk"
    _expect("state", state, (*state.shape[:-3], HV, *((V, K) if vk else (K, V))))
    slot, head, one, two = state.stride()[-4:]
    return (slot, head, one, two) if vk else (slot, head, two, one)


def verify(q: Tensor, k: Tensor, v: Tensor, *, plan: Plan, state: Tensor, g: Tensor | None = None, beta: Tensor | None = None,
           a: Tensor | None = None, b: Tensor | None = None, a_log: Tensor | None = None, dt_bias: Tensor | None = None,
           beta_doubled: bool = False, slot_index: Tensor | None = None, padding_slot: int = -1, state_layout: str = "vk",
           l2norm: bool = False, l2norm_eps: float = 1e-6, scale: float | None = None, strategy: str = "fused",
           precision: str = "precise", o: Tensor | None = None, stash: Stash | None = None) -> tuple[Tensor, Stash | None]:  # fmt: skip
    """Every node's output: arguments as in canopy_gdn.verify, with `plan` of canopy_gdn.triton.plan instead of the trees.

    strategy: one of STRATEGIES. precision of the products: "fp32" (multiply-adds), "precise" (three TF32 products) or "fast" (one).
    o: written where given, rows past a count and padding rows left alone; otherwise made, with zeros there. stash: one of an
    earlier call to write into.

    Returns o and the Stash for commit (None for the serial strategies).
    """
    for name, value, allowed in (("strategy", strategy, STRATEGIES), ("precision", precision, tuple(_PRECISIONS))):
        if value not in allowed:
            raise CanopyError(f"{name} = {value!r}: expected one of {', '.join(map(repr, allowed))}")
    B, T, H, K = q.shape
    HV, V = v.shape[2:]
    _width("K", K)
    _width("V", V)
    if HV % H:
        raise CanopyError(f"HV = {HV}: expected a multiple of H = {H}")
    if (B, T) != (plan.batch, plan.nodes):
        raise CanopyError(
            f"plan: expected one of {B} trees of {T} nodes, got {plan.batch} of {plan.nodes}; call plan() for these trees"
        )
    _expect("q", q, (B, T, H, K), True)
    _expect("k", k, (B, T, H, K), True)
    _expect("v", v, (B, T, HV, V), True)
    raw = g is None
    gate, rate = (a, b) if raw else (g, beta)
    if gate is None or rate is None or (raw and (a_log is None or dt_bias is None)):
        raise CanopyError("gates: expected g and beta [B,T,HV], or a, b [B,T,HV] with a_log, dt_bias [HV]")
    for name, tensor in (("a" if raw else "g", gate), ("b" if raw else "beta", rate)):
        _expect(name, tensor, (B, T, HV))
    for name, parameter in (("a_log", a_log), ("dt_bias", dt_bias)):
        if raw and parameter is not None:
            _expect(name, parameter, (HV,), True)
    _rows(B, slot_index=slot_index)
    strides = _state_strides(state, state_layout, HV, K, V)
    if o is None:
        o = torch.zeros((B, T, HV, V), dtype=v.dtype, device=v.device)
    _expect("o", o, (B, T, HV, V), True)
    if B == 0:
        return o, None
    scale = K**-0.5 if scale is None else scale
    solver, products = _SOLVERS.get(strategy), _PRECISIONS[precision]
    rows = (*q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3])
    grid = lambda meta: (triton.cdiv(V, meta["BV"]), HV, B)
    wide = int(B * HV >= 256)  # what the tile width depends on, besides the shape of a head
    slots = {"SLOTS": slot_index is not None, "NORM": l2norm, "K": K, "V": V}
    gate_strides = (*gate.stride(), *rate.stride())
    forms = {"RAW": raw, "DOUBLED": beta_doubled, "WIDTH": max(triton.next_power_of_2(T), 16)}
    if solver is None:
        snapshots = torch.empty((B, T, HV, V, K), device=v.device)
        serial_kernel[grid](q, k, v, o, snapshots, state, slot_index, gate, rate, a_log, dt_bias, plan.parents, plan.count, plan.status,
                            *rows, *gate_strides, *strides, T, H, HV, scale, l2norm_eps, padding_slot, wide, **slots, **forms,
                            RESIDENT=strategy == "resident")  # fmt: skip
        return o, None
    if stash is None:
        stash = Stash(torch.empty((B, HV, T, V), device=v.device), torch.empty((3, B, HV, T), device=v.device))
    plane, blocks = B * HV * T, triton.cdiv(T, plan.block)
    gates_kernel[(triton.cdiv(T, 16), HV, B)](gate, rate, a_log, dt_bias, plan.order, plan.ancestors, plan.count, stash.gates,
                                              *gate_strides, T, HV, plane, **forms)  # fmt: skip
    trees = (plan.order, plan.ancestors, plan.path, plan.prefix, plan.count)
    common = {**slots, "BT": plan.block, "PRECISION": products}
    if strategy == "split":
        diagonal = torch.empty((2, B, HV, blocks, plan.block, plan.block), device=v.device)
        outside = torch.empty((2, B, HV, blocks, plan.block, T), device=v.device)
        factors_kernel[(blocks, HV, B)](q, k, slot_index, stash.gates, *trees, diagonal, outside, *rows[:6], T, H, HV, blocks, plane,
                                        scale, l2norm_eps, padding_slot, SLOTS=slots["SLOTS"], NORM=l2norm, K=K, BT=plan.block,
                                        SOLVER=solver, PRECISION=products)  # fmt: skip
        apply_kernel[grid](q, k, v, o, stash.u, state, slot_index, stash.gates, *trees, plan.status, diagonal, outside, *rows, *strides,
                           T, H, HV, blocks, plane, scale, l2norm_eps, padding_slot, wide, **common)  # fmt: skip
    else:
        fused_kernel[grid](q, k, v, o, stash.u, state, slot_index, stash.gates, *trees, plan.status, *rows, *strides, T, H, HV, blocks,
                           plane, scale, l2norm_eps, padding_slot, wide, **common, SOLVER=solver)  # fmt: skip
    return o, stash


def commit(k: Tensor, *, plan: Plan, leaf: Tensor, state: Tensor, stash: Stash, slot_index: Tensor | None = None,
           dst_slot: Tensor | None = None, padding_slot: int = -1, state_layout: str = "vk", l2norm: bool = False,
           l2norm_eps: float = 1e-6, precision: str = "precise") -> None:  # fmt: skip
    """The state after the accepted node of each sequence (E8), in place in the pool; all layers in one launch.

    leaf int32 [B]: below 0 or at or past the count: the row is skipped. With a leading axis L on k [L, B, T, H, K], state
    [L, slots, ...] and the stash's tensors (u [L, B, HV, T, V], gates [L, 3, B, HV, T]), all layers. dst_slot [B] as slot_index:
    another slot to write; absent: in place.
    """
    layers = k.dim() == 5
    B, T, H, K = k.shape[-4:]
    HV, V = stash.u.shape[-3], stash.u.shape[-1]
    if (B, T) != (plan.batch, plan.nodes):
        raise CanopyError(
            f"plan: expected one of {B} trees of {T} nodes, got {plan.batch} of {plan.nodes}; call plan() for these trees"
        )
    if precision not in _PRECISIONS:
        raise CanopyError(f"precision = {precision!r}: expected one of {', '.join(map(repr, _PRECISIONS))}")
    _expect("k", k, tuple(k.shape), True)
    _rows(B, leaf=leaf, slot_index=slot_index, dst_slot=dst_slot)
    L = k.shape[0] if layers else 1
    lead = (L,) if layers else ()
    _expect("stash.u", stash.u, (*lead, B, HV, T, V))
    _expect("stash.gates", stash.gates, (*lead, 3, B, HV, T))
    strides = _state_strides(state, state_layout, HV, K, V)
    if B == 0:
        return
    if not (stash.u.is_contiguous() and stash.gates.is_contiguous()):
        raise CanopyError("stash: expected contiguous tensors, got strided views; stack the layers' stashes")
    slots = state.shape[-4]
    target = slot_index if dst_slot is None else dst_slot
    if target is None:
        target = torch.arange(B, dtype=torch.int32, device=k.device)
    BV = min(32, V)
    commit_kernel[(triton.cdiv(V, BV), HV, L * B)](
        k, stash.u, state, slot_index, target, leaf, stash.gates, plan.order, plan.rank, plan.ancestors, plan.path, plan.prefix,
        plan.count, plan.status, k.stride(0) if layers else 0, *k.stride()[-4:-1], state.stride(0) if layers else 0, *strides, T, H, HV,
        B, triton.cdiv(T, plan.block), B * HV * T, l2norm_eps, padding_slot, slots, SLOTS=slot_index is not None, NORM=l2norm, K=K, V=V,
        BT=plan.block, BV=BV, PRECISION=_PRECISIONS[precision], num_warps=4)  # fmt: skip

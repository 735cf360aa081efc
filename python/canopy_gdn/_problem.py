"""Arrays and tensors as the C interface's structs. Shapes and devices are checked here, because the C interface sees
pointers and strides only; everything else is checked behind it. bindings/torch/arguments.cpp is the same for operators."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from . import _abi
from ._abi import CanopyError

_DTYPES = {
    "float32": _abi.F32,
    "bfloat16": _abi.BF16,
    "float16": _abi.F16,
    "int32": _abi.I32,
    "int64": _abi.I64,
}


@dataclass(frozen=True, slots=True)
class View:
    """What the C interface needs to know of an array: strides in elements."""

    data: int
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    device: str
    index: int  # of the CUDA device


def is_torch(value: object) -> bool:
    """Whether it is a PyTorch tensor, without importing PyTorch."""
    return hasattr(value, "__torch_function__")


def view_of(name: str, value: Any, written: bool = False) -> View:
    if is_torch(value):
        kind = value.device.type
        return View(
            value.data_ptr(),
            str(value.dtype).removeprefix("torch."),
            tuple(value.shape),
            value.stride(),
            kind,
            value.device.index or 0,
        )
    interface = getattr(value, "__array_interface__", None)
    if interface is None or not hasattr(value, "strides"):
        raise CanopyError(
            f"{name}: expected a NumPy array or a PyTorch tensor, got {type(value).__name__}; convert it with numpy.asarray"
        )
    size = value.itemsize
    if not value.dtype.isnative:
        raise CanopyError(
            f"{name}.dtype = {value.dtype.str}: expected this machine's byte order; convert it with .astype(numpy.{value.dtype.name})"
        )
    if any(step % size for step, extent in zip(value.strides, value.shape) if extent > 1):
        raise CanopyError(
            f"{name}: expected strides of whole elements, got {value.strides} bytes of {size}-byte elements; make it contiguous"
        )
    if written and not value.flags.writeable:
        raise CanopyError(f"{name}: expected a writable array, got a read-only one; pass a copy")
    steps = value.strides if value.size else _dense(value.shape, size)  # NumPy leaves any strides on nothing
    stride = tuple(step // size for step in steps)
    return View(interface["data"][0], value.dtype.name, tuple(value.shape), stride, "cpu", 0)


def _dense(shape: Sequence[int], size: int) -> tuple[int, ...]:
    """Byte strides of dense memory, as if no extent were 0."""
    steps = [size]
    for extent in reversed(shape[1:]):
        steps.append(steps[-1] * max(extent, 1))
    return tuple(reversed(steps))


@dataclass(slots=True)
class SlotDtype:
    """The dtype of slot indices: the C interface has one for slot_index, dst_slot and track_slot together."""

    value: int = _abi.I32
    of: str = ""  # the array that set it


class Reader:
    """Turns arrays into views on one device, that of `model`. `layers`: extent of a leading layer axis, 0 for none."""

    def __init__(self, name: str, model: Any, layers: int = 0) -> None:
        view = view_of(name, model)
        self.model, self.layers, self.device, self.index = name, layers, view.device, view.index
        if view.device not in ("cpu", "cuda"):
            raise CanopyError(f"{name}: expected a tensor on cpu or cuda, got one on {view.device}; move it with .to()")

    @property
    def number(self) -> int:
        return _abi.CUDA if self.device == "cuda" else _abi.CPU

    def _view(self, name: str, value: Any, axes: str, extent: Sequence[int], written: bool, layers: int) -> View:
        view = view_of(name, value, written)
        if (view.device, view.index) != (self.device, self.index):
            at = {"cpu": "cpu"}
            raise CanopyError(
                f"{name}: expected a tensor on {at.get(self.device, f'cuda:{self.index}')}, the device of {self.model}, got one on "
                f"{at.get(view.device, f'{view.device}:{view.index}')}; move it with .to()"
            )
        expected = ([layers] if layers else []) + list(extent)
        if list(view.shape) != expected:
            names = f"[L,{axes[1:]}" if layers else axes
            raise CanopyError(
                f"{name}: expected shape {names} = {expected}, got {list(view.shape)}; reshape it, or check the tensors that the "
                "extents come from"
            )
        return view

    def tensor(self, name: str, value: Any, axes: str, extent: Sequence[int], written: bool = False) -> _abi.Tensor:
        """A canopy_tensor; an absent one for None."""
        if value is None:
            return _abi.Tensor()
        view = self._view(name, value, axes, extent, written, self.layers)
        if view.dtype not in _DTYPES:
            raise CanopyError(
                f"{name}.dtype = {view.dtype}: expected f32, bf16 or f16 (i32 or i64 for trees and slots); convert it first"
            )
        stride = list(view.stride) if self.layers else [0, *view.stride]
        if extent[-1] == 1:
            stride[len(extent)] = 1  # any stride is legal on an axis of one element, the C interface asks some for 1
        stride += [0] * (5 - len(stride))
        return _abi.Tensor(data=view.data, dtype=_DTYPES[view.dtype], stride=(ctypes.c_int64 * 5)(*stride))

    def ints(self, name: str, value: Any, axes: str, extent: Sequence[int], written: bool = False) -> int | None:
        """Address of int32 that all layers share, dense but for a row stride."""
        if value is None:
            return None
        view = self._view(name, value, axes, extent, written, 0)
        if view.dtype != "int32":
            raise CanopyError(
                f"{name}.dtype = {view.dtype}: expected i32 for {axes}; convert it with {_convert(value, 'int32')}"
            )
        if extent[-1] > 1 and view.stride[-1] != 1:
            raise CanopyError(
                f"{name}: expected a last stride of 1 for {axes}, got {view.stride[-1]}; make it contiguous"
            )
        return view.data

    def slots(self, name: str, value: Any, batch: int, known: SlotDtype) -> int | None:
        """Address of slot indices [B]; their dtype must agree where an earlier array has set it."""
        if value is None:
            return None
        view = self._view(name, value, "[B]", [batch], False, 0)
        if view.dtype not in ("int32", "int64"):
            raise CanopyError(
                f"{name}.dtype = {view.dtype}: expected i32 or i64 for [B]; convert it with {_convert(value, 'int32')}"
            )
        if known.of and _DTYPES[view.dtype] != known.value:
            raise CanopyError(f"{name}.dtype: expected the dtype of {known.of}; convert one of them")
        if not known.of:
            known.value, known.of = _DTYPES[view.dtype], name
        if batch > 1 and view.stride[0] != 1:
            raise CanopyError(f"{name}: expected a stride of 1 for [B], got {view.stride[0]}; make it contiguous")
        return view.data

    def trees(self, out: _abi.Trees, given: dict[str, Any], batch: int, nodes: int) -> None:
        for name in ("parents", "next_token", "next_sibling"):
            setattr(out, name, self.ints(name, given.get(name), "[B,T]", [batch, nodes]))
        out.count = self.ints("count", given.get("count"), "[B]", [batch])
        strides = [
            view_of(name, given[name]).stride[0] for name in ("parents", "next_token") if given.get(name) is not None
        ]
        out.row_stride = strides[0] if strides else nodes
        if given.get("next_token") is not None and given.get("next_sibling") is not None and batch > 1:
            other = view_of("next_sibling", given["next_sibling"]).stride[0]
            if other != out.row_stride:
                raise CanopyError(
                    f"next_sibling: expected the row stride of next_token, {out.row_stride}, got {other}; make both contiguous"
                )
        plan = given.get("plan")
        if plan is not None:
            view = view_of("plan", plan)
            if len(view.shape) != 2 or view.shape[0] != max(batch, 1):
                raise CanopyError(
                    f"plan: expected what plan() made of these {batch} trees, got shape {list(view.shape)}; call plan() again after "
                    "the batch changed"
                )
            width = _abi.plan_row_bytes(self.device)
            dense = view.stride[1] == 1 and (view.shape[0] == 1 or view.stride[0] == view.shape[1])
            if view.dtype != "uint8" or not dense or (width and view.shape[1] != width):
                raise CanopyError(
                    f"plan: expected what plan() made on this device, uint8 with {width} bytes a tree, got {view.dtype} "
                    f"{list(view.shape)} with strides {list(view.stride)}; pass on what plan() returned"
                )
            out.plan = view.data

    def gates(self, out: _abi.Problem, given: dict[str, Any]) -> None:
        rows = [out.batch, out.nodes, out.heads_v]
        for name in ("g", "beta", "a", "b"):
            setattr(out, name, self.tensor(name, given.get(name), "[B,T,HV]", rows))
        for name in ("a_log", "dt_bias"):
            setattr(out, name, self.tensor(name, given.get(name), "[HV]", [out.heads_v]))
        out.beta_doubled = bool(given.get("beta_doubled"))

    def pool(self, out: _abi.Problem, given: dict[str, Any], written: bool) -> SlotDtype:
        state = given["state"]
        shape = view_of("state", state).shape
        axes = 5 if self.layers else 4
        vk = out.state_layout == 0
        out.slots = shape[axes - 4] if len(shape) == axes else 0
        extent = [out.slots, out.heads_v, *((out.dim_v, out.dim_k) if vk else (out.dim_k, out.dim_v))]
        out.state = self.tensor("state", state, "[slots,HV,V,K]" if vk else "[slots,HV,K,V]", extent, written)
        dtype = SlotDtype()
        out.slot_index = self.slots("slot_index", given.get("slot_index"), out.batch, dtype)
        out.slot_index_dtype = dtype.value
        out.padding_slot = _abi.integer("padding_slot", given.get("padding_slot", -1))
        return dtype


def _convert(value: Any, dtype: str) -> str:
    return f".to(torch.{dtype})" if is_torch(value) else f".astype(numpy.{dtype})"


def axes_of(name: str, value: Any, axes: str) -> tuple[int, ...]:
    """The shape of a tensor that must have the axes; they name the extents."""
    shape = view_of(name, value).shape
    expected = axes.count(",") + 1
    if len(shape) != expected:
        raise CanopyError(f"{name}: expected {expected} axes {axes}, got {len(shape)}; reshape it")
    return shape


def _options(out: _abi.Problem, given: dict[str, Any]) -> None:
    out.state_layout = _abi.choose("state_layout", given.get("state_layout", "vk"), _abi.STATE_LAYOUTS)
    out.l2norm = bool(given.get("l2norm"))
    out.l2norm_eps = given.get("l2norm_eps", 1e-6)
    out.scale = given.get("scale") or 0.0


def plan_problem(given: dict[str, Any]) -> _abi.Problem:
    """The problem that canopy_plan reads: trees, counts, slots."""
    model = next(
        (given[name] for name in ("parents", "next_token", "next_sibling") if given.get(name) is not None), None
    )
    if model is None:
        raise CanopyError("parents: expected [B,T] int32, or next_token with next_sibling, got neither; pass one form")
    shape = view_of("parents", model).shape
    if len(shape) != 2:
        raise CanopyError(
            f"parents: expected [B,T] (or next_token, next_sibling of that shape), got {len(shape)} axes; add the batch axis "
            "with [None]"
        )
    reader = Reader("parents", model)
    params = _abi.VerifyParams()
    _abi.library().canopy_verify_params_init(ctypes.byref(params))
    problem = params.problem
    problem.device = reader.number
    problem.batch, problem.nodes = shape
    reader.trees(problem.trees, given, *shape)
    dtype = SlotDtype()
    problem.slot_index = reader.slots("slot_index", given.get("slot_index"), problem.batch, dtype)
    problem.slot_index_dtype = dtype.value
    # Without slots every row is a live one: the plan serves any pool.
    problem.slots = _abi.integer("slots", given["slots"]) if given.get("slot_index") is not None else problem.batch
    problem.padding_slot = _abi.integer("padding_slot", given.get("padding_slot", -1))
    return problem


def verify_params(q: Any, k: Any, v: Any, given: dict[str, Any], o: Any) -> _abi.VerifyParams:
    """canopy_verify_params of a call; `o` None leaves the output absent."""
    params = _abi.VerifyParams()
    _abi.library().canopy_verify_params_init(ctypes.byref(params))
    p = params.problem
    reader = Reader("q", q)
    p.device = reader.number
    B, T, H, K = axes_of("q", q, "[B,T,H,K]")
    HV, V = axes_of("v", v, "[B,T,HV,V]")[2:]
    p.batch, p.nodes, p.heads_k, p.heads_v, p.dim_k, p.dim_v = B, T, H, HV, K, V
    p.q = reader.tensor("q", q, "[B,T,H,K]", [B, T, H, K])
    p.k = reader.tensor("k", k, "[B,T,H,K]", [B, T, H, K])
    p.v = reader.tensor("v", v, "[B,T,HV,V]", [B, T, HV, V])
    _options(p, given)
    reader.trees(p.trees, given, B, T)
    reader.gates(p, given)
    reader.pool(p, given, False)
    params.precision = _abi.choose("precision", given.get("precision", "default"), _abi.PRECISIONS)
    params.max_depth = _abi.integer("max_depth", given.get("max_depth", 0), 32)
    params.o = reader.tensor("o", o, "[B,T,HV,V]", [B, T, HV, V], True)
    params.stash_u = reader.tensor("stash_u", given.get("stash_u"), "[B,T,HV,V]", [B, T, HV, V], True)
    params.stash_l = reader.tensor("stash_l", given.get("stash_l"), "[B,T,HV]", [B, T, HV], True)
    params.row_status = reader.ints("row_status", given.get("row_status"), "[B]", [B], True)
    return params


def commit_params(k: Any, v: Any, given: dict[str, Any]) -> _abi.CommitParams:
    """canopy_commit_params of a call. A state of five axes has layers in front, and so have k, v, gates and stash."""
    params = _abi.CommitParams()
    _abi.library().canopy_commit_params_init(ctypes.byref(params))
    p = params.problem
    shape = view_of("state", given["state"]).shape
    if len(shape) not in (4, 5):
        raise CanopyError(
            f"state: expected 4 axes [slots,HV,V,K], or 5 with L layers before them, got {len(shape)}; reshape it"
        )
    lead = len(shape) - 4
    key_shape = view_of("k", k).shape
    if len(key_shape) != 4 + lead:
        axes = "5 axes [L,B,T,H,K], as state has a layer axis" if lead else "4 axes [B,T,H,K]"
        raise CanopyError(f"k: expected {axes}, got {len(key_shape)}; reshape it")
    reader, shared = Reader("k", k, shape[0] if lead else 0), Reader("k", k)
    _options(p, {**given, "scale": None})
    p.device = reader.number
    params.layers = shape[0] if lead else 1
    B, T, H, K = key_shape[lead:]
    HV, V = shape[lead + 1], shape[lead + (2 if p.state_layout == 0 else 3)]
    p.batch, p.nodes, p.heads_k, p.heads_v, p.dim_k, p.dim_v = B, T, H, HV, K, V
    p.k = reader.tensor("k", k, "[B,T,H,K]", [B, T, H, K])
    p.v = reader.tensor("v", v, "[B,T,HV,V]", [B, T, HV, V])
    shared.trees(p.trees, given, B, T)
    reader.gates(p, given)
    dtype = reader.pool(p, given, True)
    params.method = _abi.choose("method", given.get("method", "resolve"), _abi.METHODS)
    params.leaf = shared.ints("leaf", given["leaf"], "[B]", [B])
    for name in ("dst_slot", "track_slot"):
        setattr(params, name, shared.slots(name, given.get(name), B, dtype))
    p.slot_index_dtype = dtype.value
    params.track_leaf = shared.ints("track_leaf", given.get("track_leaf"), "[B]", [B])
    params.stash_u = reader.tensor("stash_u", given.get("stash_u"), "[B,T,HV,V]", [B, T, HV, V])
    params.stash_l = reader.tensor("stash_l", given.get("stash_l"), "[B,T,HV]", [B, T, HV])
    params.row_status = shared.ints("row_status", given.get("row_status"), "[B]", [B], True)
    return params

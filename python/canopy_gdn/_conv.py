"""The tree convolution's arguments as the C interface's structs (bindings/torch/conv.cpp in Python)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from . import _abi
from ._abi import CanopyError
from ._problem import Reader, SlotDtype, axes_of, view_of


def _rows(p: _abi.ConvProblem, reader: Reader, shared: Reader, x: Any, extents: Sequence[int], width: int,
          given: dict[str, Any], written: bool) -> SlotDtype:  # fmt: skip
    """x, the pool, trees and slots."""
    B, T, C = extents
    p.device = reader.number
    p.batch, p.nodes, p.channels, p.width = B, T, C, width
    p.x = reader.tensor("x", x, "[B,T,C]", [B, T, C])
    shape = view_of("state", given["state"]).shape
    p.slots = shape[-3] if len(shape) >= 3 else 0
    p.state = reader.tensor("state", given["state"], "[slots,C,W-1]", [p.slots, C, width - 1], written)
    shared.trees(p.trees, given, B, T)
    dtype = SlotDtype()
    p.slot_index = shared.slots("slot_index", given.get("slot_index"), B, dtype)
    p.slot_index_dtype = dtype.value
    p.padding_slot = _abi.integer("padding_slot", given.get("padding_slot", -1))
    return dtype


def tree_params(x: Any, given: dict[str, Any], o: Any) -> _abi.ConvVerifyParams:
    """canopy_conv_verify_params of a call."""
    params = _abi.ConvVerifyParams()
    _abi.library().canopy_conv_verify_params_init(ctypes.byref(params))
    weight = given["weight"]
    extents = axes_of("x", x, "[B,T,C]")
    axes = view_of("weight", weight).shape
    if len(axes) != 2:
        raise CanopyError(
            f"weight: expected 2 axes [C,W], got {len(axes)}; of a Conv1d's weight [C,1,W] pass weight[:, 0]"
        )
    reader = Reader("x", x)
    _rows(params.problem, reader, reader, x, extents, axes[1], given, False)
    C = extents[2]
    params.weight = reader.tensor("weight", weight, "[C,W]", [C, axes[1]])
    params.bias = reader.tensor("bias", given.get("bias"), "[C]", [C])
    params.silu = bool(given.get("silu"))
    params.o = reader.tensor("o", o, "[B,T,C]", extents, True)
    params.row_status = reader.ints("row_status", given.get("row_status"), "[B]", [extents[0]], True)
    return params


def commit_params(x: Any, given: dict[str, Any]) -> _abi.ConvCommitParams:
    """canopy_conv_commit_params of a call. A state of four axes has layers in front, and so has x."""
    params = _abi.ConvCommitParams()
    _abi.library().canopy_conv_commit_params_init(ctypes.byref(params))
    p = params.problem
    shape, extents = view_of("state", given["state"]).shape, view_of("x", x).shape
    if len(shape) not in (3, 4):
        raise CanopyError(
            f"state: expected 3 axes [slots,C,W-1], or 4 with L layers before them, got {len(shape)}; reshape it"
        )
    lead = len(shape) - 3
    if len(extents) != 3 + lead:
        axes = "4 axes [L,B,T,C], as state has a layer axis" if lead else "3 axes [B,T,C]"
        raise CanopyError(f"x: expected {axes}, got {len(extents)}; reshape it")
    reader, shared = Reader("x", x, shape[0] if lead else 0), Reader("x", x)
    params.layers = shape[0] if lead else 1
    dtype = _rows(p, reader, shared, x, extents[lead:], shape[-1] + 1, given, True)
    B = p.batch
    params.leaf = shared.ints("leaf", given["leaf"], "[B]", [B])
    for name in ("dst_slot", "track_slot"):
        setattr(params, name, shared.slots(name, given.get(name), B, dtype))
    p.slot_index_dtype = dtype.value
    params.track_leaf = shared.ints("track_leaf", given.get("track_leaf"), "[B]", [B])
    params.row_status = shared.ints("row_status", given.get("row_status"), "[B]", [B], True)
    return params

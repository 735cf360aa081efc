"""Commit (E8) of the accepted node from the stash, all layers in one launch."""

from __future__ import annotations

import triton
import triton.language as tl

from .common import load_rows


@triton.jit
def _add(S, at_k, at_u, at_gate, plane, order, rank, seen, coarse, fine, stride_kt, dk, dv, V: tl.constexpr, NORM: tl.constexpr, eps,
         PRECISION: tl.constexpr):  # fmt: skip
    """S + sum over the seen ranks j of exp(l_a - l_j) k_j u_j^T."""
    node = tl.load(order + rank, mask=seen, other=0)
    key = load_rows(at_k, node, stride_kt, dk, seen, NORM, eps)
    u = tl.load(at_u + rank[:, None] * V + dv[None, :], mask=seen[:, None], other=0.0)
    exponent = (coarse - tl.load(at_gate + rank, mask=seen, other=0.0)) + (
        fine - tl.load(at_gate + plane + rank, mask=seen, other=0.0)
    )
    weight = tl.where(seen, tl.exp(tl.where(seen, exponent, 0.0)), 0.0)
    return S + tl.dot(tl.trans(key * weight[:, None]), u, input_precision=PRECISION)


@triton.jit(do_not_specialize=["T", "H", "HV", "B", "blocks", "padding_slot", "slots", "plane"])
def commit_kernel(k, u, state, slot_index, dst_slot, leaf, gates, order, rank_of, ancestors, path, prefix, count, status,
                  stride_kl, stride_kb, stride_kt, stride_kh, stride_layer, stride_slot, stride_head, stride_sv, stride_sk, T, H, HV, B,
                  blocks, plane, eps, padding_slot, slots, SLOTS: tl.constexpr, NORM: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
                  BT: tl.constexpr, BV: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """One program: a layer's sequence, a value head, BV value columns. gates [L, 3, B, HV, T] and u [L, B, HV, T, V] as verify
    left them. Not autotuned: a trial run would commit. Each program reads its tile of the pool before it writes it."""
    tile, hv = tl.program_id(0), tl.program_id(1)
    layer, b = (tl.program_id(2) // B).to(tl.int64), (tl.program_id(2) % B).to(tl.int64)
    slot = tl.load(slot_index + b).to(tl.int64) if SLOTS else b
    to = tl.load(dst_slot + b).to(tl.int64)
    n = tl.minimum(tl.load(count + b), T)
    a = tl.load(leaf + b)
    if (slot <= padding_slot) | (to <= padding_slot) | (slot >= slots) | (to >= slots) | (a < 0) | (a >= n):
        return
    if tl.load(status + b) != 0:
        return
    h = hv // (HV // H)
    dk, dv = tl.arange(0, K), tile * BV + tl.arange(0, BV)
    keep = dv < V
    dv = tl.where(keep, dv, 0)
    at_k = k + layer * stride_kl + b * stride_kb + h * stride_kh
    at_u, at_gate = u + ((layer * B + b) * HV + hv) * T * V, gates + layer * 3 * plane + (b * HV + hv) * T
    order += b * T
    rank = tl.load(rank_of + b * T + a)
    coarse, fine = tl.load(at_gate + rank), tl.load(at_gate + plane + rank)
    cell = layer * stride_layer + hv * stride_head + dk[:, None] * stride_sk + dv[None, :] * stride_sv
    S = tl.load(state + slot * stride_slot + cell).to(tl.float32) * tl.exp(coarse + fine)
    block, step = rank // BT, tl.arange(0, BT)
    outside = tl.load(prefix + b * T + rank)
    for at in range(0, outside, BT):
        depth = at + step
        there = tl.load(path + (b * blocks + block) * T + depth, mask=depth < outside, other=0)
        S = _add(
            S,
            at_k,
            at_u,
            at_gate,
            plane,
            order,
            there,
            depth < outside,
            coarse,
            fine,
            stride_kt,
            dk,
            dv,
            V,
            NORM,
            eps,
            PRECISION,
        )
    here = block * BT + step
    word = tl.load(ancestors + (b * T + rank) * 8 + here // 32, mask=here < n, other=0)
    seen = (((word >> (here % 32)) & 1) != 0) | (here == rank)
    S = _add(
        S,
        at_k,
        at_u,
        at_gate,
        plane,
        order,
        here,
        seen & (here < n),
        coarse,
        fine,
        stride_kt,
        dk,
        dv,
        V,
        NORM,
        eps,
        PRECISION,
    )
    tl.store(state + to * stride_slot + cell, S.to(state.dtype.element_ty), mask=keep[None, :])

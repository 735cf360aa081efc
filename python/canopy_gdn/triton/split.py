"""The split design: factors of every block once a value head, then their application to each tile of values."""

from __future__ import annotations

import triton
import triton.language as tl

from .common import decay, in_block, invert, load_rows, load_state, spoilt, tuned


@triton.jit(do_not_specialize=["T", "H", "HV", "blocks", "padding_slot", "plane"])
def factors_kernel(q, k, slot_index, gates, order, ancestors, path, prefix, count, diagonal, outside, stride_qb, stride_qt, stride_qh,
                   stride_kb, stride_kt, stride_kh, T, H, HV, blocks, plane, scale, eps, padding_slot, SLOTS: tl.constexpr,
                   NORM: tl.constexpr, K: tl.constexpr, BT: tl.constexpr, SOLVER: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """One program: a block of a sequence and a value head. diagonal [2, B, HV, blocks, BT, BT]: W = (I + G_bb)^-1 and C_bb;
    outside [2, B, HV, blocks, BT, T]: G_bp / beta and C_bp against the root path."""
    block, hv, b = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    if SLOTS and tl.load(slot_index + b).to(tl.int64) <= padding_slot:
        return
    n = tl.minimum(tl.load(count + b), T)
    if block * BT >= n:
        return
    h = hv // (HV // H)
    dk, step = tl.arange(0, K), tl.arange(0, BT)
    at_q, at_k, at_gate = (
        q + b * stride_qb + h * stride_qh,
        k + b * stride_kb + h * stride_kh,
        gates + (b * HV + hv) * T,
    )
    ancestors += b * T * 8
    order += b * T
    rank = block * BT + step
    live = rank < n
    node = tl.load(order + rank, mask=live, other=0)
    coarse = tl.load(at_gate + rank, mask=live, other=0.0)
    fine = tl.load(at_gate + plane + rank, mask=live, other=0.0)
    beta = tl.load(at_gate + 2 * plane + rank, mask=live, other=0.0)
    Kb = load_rows(at_k, node, stride_kt, dk, live, NORM, eps)
    Qb = load_rows(at_q, node, stride_qt, dk, live, NORM, eps) * scale
    mine = tl.load(prefix + b * T + rank, mask=live, other=0)
    item = (b * HV + hv) * blocks + block
    half = tl.num_programs(2).to(tl.int64) * HV * blocks * BT
    for at in range(0, tl.max(mine, 0), BT):
        depth = at + step
        seen = depth[None, :] < mine[:, None]
        needed = depth < tl.max(mine, 0)
        there = tl.load(path + (b * blocks + block) * T + depth, mask=needed, other=0)
        other = tl.load(order + there, mask=needed, other=0)
        Kp = load_rows(at_k, other, stride_kt, dk, needed, NORM, eps)
        gamma = decay(coarse, fine, tl.load(at_gate + there, mask=needed, other=0.0),
                      tl.load(at_gate + plane + there, mask=needed, other=0.0), seen)  # fmt: skip
        cell = outside + (item * BT + step)[:, None] * T + depth[None, :]
        inside = (depth < T)[None, :] & (step >= 0)[:, None]
        tl.store(cell, tl.where(seen, gamma * tl.dot(Kb, tl.trans(Kp), input_precision=PRECISION), 0.0), mask=inside)
        tl.store(
            cell + half * T,
            tl.where(seen, gamma * tl.dot(Qb, tl.trans(Kp), input_precision=PRECISION), 0.0),
            mask=inside,
        )
    above = in_block(ancestors, block * BT, rank, live, T)
    here = above | ((step[:, None] == step[None, :]) & live[:, None])
    gamma = decay(coarse, fine, coarse, fine, here)
    G = tl.where(above, beta[:, None] * gamma * tl.dot(Kb, tl.trans(Kb), input_precision=PRECISION), 0.0)
    C = tl.where(here, gamma * tl.dot(Qb, tl.trans(Kb), input_precision=PRECISION), 0.0)
    bad = spoilt(G)
    W = invert(tl.where(bad[:, None], 0.0, G), above, BT, SOLVER, PRECISION)
    cell = diagonal + (item * BT + step)[:, None] * BT + step[None, :]
    tl.store(cell, tl.where(bad[:, None], float("nan"), W))
    tl.store(cell + half * BT, C)


CONFIGS = [
    triton.Config({"BV": bv}, num_warps=warps, num_stages=1) for bv, warps in ((32, 4), (16, 2), (32, 2), (64, 4))
]


@tuned(CONFIGS, key=["K", "V", "PRECISION", "wide"])
@triton.jit(do_not_specialize=["T", "H", "HV", "blocks", "padding_slot", "wide", "plane"])
def apply_kernel(q, k, v, o, u, state, slot_index, gates, order, ancestors, path, prefix, count, status, diagonal, outside, stride_qb,
                 stride_qt, stride_qh, stride_kb, stride_kt, stride_kh, stride_vb, stride_vt, stride_vh, stride_ob, stride_ot,
                 stride_oh, stride_slot, stride_head, stride_sv, stride_sk, T, H, HV, blocks, plane, scale, eps, padding_slot, wide,
                 SLOTS: tl.constexpr, NORM: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BT: tl.constexpr, BV: tl.constexpr,
                 PRECISION: tl.constexpr):  # fmt: skip
    """One program: a sequence, a value head, BV value columns, as in fused.py with the factors read instead of made."""
    tile, hv, b = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    slot = tl.load(slot_index + b).to(tl.int64) if SLOTS else b
    if SLOTS and slot <= padding_slot:
        return
    h = hv // (HV // H)
    dk, dv = tl.arange(0, K), tile * BV + tl.arange(0, BV)
    dv = tl.where(dv < V, dv, 0)
    S0 = load_state(state, slot, hv, stride_slot, stride_head, stride_sv, stride_sk, dk, dv)
    broken = tl.load(status + b) != 0
    n = tl.minimum(tl.load(count + b), T)
    at_q, at_k, at_v, at_o = (
        q + b * stride_qb + h * stride_qh,
        k + b * stride_kb + h * stride_kh,
        v + b * stride_vb + hv * stride_vh,
        o + b * stride_ob + hv * stride_oh,
    )
    at_u, at_gate = u + (b * HV + hv) * T * V, gates + (b * HV + hv) * T
    ancestors += b * T * 8
    order += b * T
    step = tl.arange(0, BT)
    half = tl.num_programs(2).to(tl.int64) * HV * blocks * BT
    for block in range(0, tl.cdiv(n, BT)):
        rank = block * BT + step
        live = rank < n
        node = tl.load(order + rank, mask=live, other=0)
        alpha = tl.exp(
            tl.load(at_gate + rank, mask=live, other=0.0) + tl.load(at_gate + plane + rank, mask=live, other=0.0)
        )[:, None]
        beta = tl.load(at_gate + 2 * plane + rank, mask=live, other=0.0)
        value = tl.load(at_v + node.to(tl.int64)[:, None] * stride_vt + dv[None, :], mask=live[:, None], other=0.0).to(
            tl.float32
        )
        R = value - alpha * tl.dot(load_rows(at_k, node, stride_kt, dk, live, NORM, eps), S0, input_precision=PRECISION)
        out = alpha * tl.dot(
            load_rows(at_q, node, stride_qt, dk, live, NORM, eps) * scale, S0, input_precision=PRECISION
        )
        mine = tl.load(prefix + b * T + rank, mask=live, other=0)
        item = (b * HV + hv) * blocks + block
        bad = tl.zeros((BT,), tl.int1)
        for at in range(0, tl.max(mine, 0), BT):
            depth = at + step
            seen = depth[None, :] < mine[:, None]
            needed = depth < tl.max(mine, 0)
            there = tl.load(path + (b * blocks + block) * T + depth, mask=needed, other=0)
            Up = tl.load(at_u + there[:, None] * V + dv[None, :], mask=needed[:, None], other=0.0)
            gone = spoilt(Up)
            Up = tl.where(gone[:, None], 0.0, Up)
            bad = bad | (tl.max((seen & gone[None, :]).to(tl.int32), 1) > 0)
            cell = outside + (item * BT + step)[:, None] * T + depth[None, :]
            R -= tl.dot(tl.load(cell, mask=seen, other=0.0), Up, input_precision=PRECISION)
            out += tl.dot(tl.load(cell + half * T, mask=seen, other=0.0), Up, input_precision=PRECISION)
        above = in_block(ancestors, block * BT, rank, live, T)
        R *= beta[:, None]
        cell = diagonal + (item * BT + step)[:, None] * BT + step[None, :]
        W, C = tl.load(cell), tl.load(cell + half * BT)
        bad = bad | spoilt(W) | spoilt(R)
        U = tl.dot(tl.where(bad[:, None], 0.0, W), tl.where(bad[:, None], 0.0, R), input_precision=PRECISION)
        bad = bad | spoilt(U)
        bad = bad | (tl.max((above & bad[None, :]).to(tl.int32), 1) > 0) | broken
        U = tl.where(bad[:, None], 0.0, U)
        out += tl.dot(C, U, input_precision=PRECISION)
        keep = live[:, None] & (tile * BV + tl.arange(0, BV) < V)[None, :]
        tl.store(at_u + rank[:, None] * V + dv[None, :], tl.where(bad[:, None], float("nan"), U), mask=keep)
        tl.store(at_o + node.to(tl.int64)[:, None] * stride_ot + dv[None, :],
                 tl.where(bad[:, None], float("nan"), out).to(o.dtype.element_ty), mask=keep)  # fmt: skip
        tl.debug_barrier()

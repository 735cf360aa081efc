"""Verification in one launch: E4 to E7 block by block, S0 on chip, U of the root paths through memory."""

from __future__ import annotations

import triton
import triton.language as tl

from .common import decay, in_block, invert, load_rows, load_state, spoilt, tuned

CONFIGS = [
    triton.Config({"BV": bv}, num_warps=warps, num_stages=1)
    for bv, warps in ((16, 2), (16, 4), (32, 2), (32, 4), (64, 4), (64, 8))
]


@tuned(CONFIGS, key=["K", "V", "SOLVER", "PRECISION", "wide"])
@triton.jit(do_not_specialize=["T", "H", "HV", "blocks", "padding_slot", "wide", "plane"])
def fused_kernel(q, k, v, o, u, state, slot_index, gates, order, ancestors, path, prefix, count, status, stride_qb, stride_qt,
                 stride_qh, stride_kb, stride_kt, stride_kh, stride_vb, stride_vt, stride_vh, stride_ob, stride_ot, stride_oh,
                 stride_slot, stride_head, stride_sv, stride_sk, T, H, HV, blocks, plane, scale, eps, padding_slot, wide,
                 SLOTS: tl.constexpr, NORM: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BT: tl.constexpr, BV: tl.constexpr,
                 SOLVER: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """One program: a sequence, a value head, BV of its value columns. u [B, HV, T, V] fp32 by rank: the stash.

    For block b of BT ranks, p its root path outside (path compression):
        R = beta (v - exp(l) S0^T k) - G_bp U_p,   U_b = (I + G_bb)^-1 R,   O = exp(l) S0^T q + C_bp U_p + C_bb U_b.
    A node that is not finite is taken out of the products, where 0 times it would reach its siblings, and marked: NaN for it and
    its descendants alone.
    """
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
    for block in range(0, tl.cdiv(n, BT)):
        rank = block * BT + step
        live = rank < n
        node = tl.load(order + rank, mask=live, other=0)
        coarse = tl.load(at_gate + rank, mask=live, other=0.0)
        fine = tl.load(at_gate + plane + rank, mask=live, other=0.0)
        beta = tl.load(at_gate + 2 * plane + rank, mask=live, other=0.0)
        Kb = load_rows(at_k, node, stride_kt, dk, live, NORM, eps)
        Qb = load_rows(at_q, node, stride_qt, dk, live, NORM, eps) * scale
        alpha = tl.exp(coarse + fine)[:, None]
        value = tl.load(at_v + node.to(tl.int64)[:, None] * stride_vt + dv[None, :], mask=live[:, None], other=0.0).to(
            tl.float32
        )
        R = value - alpha * tl.dot(Kb, S0, input_precision=PRECISION)  # (E5), beta further down
        out = alpha * tl.dot(Qb, S0, input_precision=PRECISION)
        mine = tl.load(prefix + b * T + rank, mask=live, other=0)
        bad = tl.zeros((BT,), tl.int1)
        for at in range(0, tl.max(mine, 0), BT):
            depth = at + step
            seen = depth[None, :] < mine[:, None]
            needed = depth < tl.max(mine, 0)
            there = tl.load(path + (b * blocks + block) * T + depth, mask=needed, other=0)
            other = tl.load(order + there, mask=needed, other=0)
            Kp = load_rows(at_k, other, stride_kt, dk, needed, NORM, eps)
            Up = tl.load(at_u + there[:, None] * V + dv[None, :], mask=needed[:, None], other=0.0)
            gone = spoilt(Up)
            Up = tl.where(gone[:, None], 0.0, Up)
            bad = bad | (tl.max((seen & gone[None, :]).to(tl.int32), 1) > 0)
            gamma = decay(coarse, fine, tl.load(at_gate + there, mask=needed, other=0.0),
                          tl.load(at_gate + plane + there, mask=needed, other=0.0), seen)  # fmt: skip
            kk = tl.dot(Kb, tl.trans(Kp), input_precision=PRECISION)
            qk = tl.dot(Qb, tl.trans(Kp), input_precision=PRECISION)
            R -= tl.dot(tl.where(seen, gamma * kk, 0.0), Up, input_precision=PRECISION)
            out += tl.dot(tl.where(seen, gamma * qk, 0.0), Up, input_precision=PRECISION)
        above = in_block(ancestors, block * BT, rank, live, T)
        here = above | ((step[:, None] == step[None, :]) & live[:, None])
        gamma = decay(coarse, fine, coarse, fine, here)
        G = tl.where(above, beta[:, None] * gamma * tl.dot(Kb, tl.trans(Kb), input_precision=PRECISION), 0.0)  # (E4)
        C = tl.where(here, gamma * tl.dot(Qb, tl.trans(Kb), input_precision=PRECISION), 0.0)  # (E7)
        R *= beta[:, None]
        bad = bad | spoilt(G) | spoilt(R)
        W = invert(tl.where(bad[:, None], 0.0, G), above, BT, SOLVER, PRECISION)
        U = tl.dot(W, tl.where(bad[:, None], 0.0, R), input_precision=PRECISION)  # (E6)
        bad = bad | spoilt(U)
        bad = bad | (tl.max((above & bad[None, :]).to(tl.int32), 1) > 0) | broken
        U = tl.where(bad[:, None], 0.0, U)
        out += tl.dot(C, U, input_precision=PRECISION)
        keep = live[:, None] & (tile * BV + tl.arange(0, BV) < V)[None, :]
        tl.store(at_u + rank[:, None] * V + dv[None, :], tl.where(bad[:, None], float("nan"), U), mask=keep)
        tl.store(at_o + node.to(tl.int64)[:, None] * stride_ot + dv[None, :],
                 tl.where(bad[:, None], float("nan"), out).to(o.dtype.element_ty), mask=keep)  # fmt: skip
        tl.debug_barrier()  # the next block reads these rows of u

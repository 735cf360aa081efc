"""The recurrence (E1) node by node: the baseline that engines run, with a state stored for every node, and its state-resident
form, which stores only what a later child that is not the next node will read."""

from __future__ import annotations

import triton
import triton.language as tl

from .common import load_state, tuned

CONFIGS = [triton.Config({"BV": bv}, num_warps=1, num_stages=1) for bv in (8, 4, 16, 32)]


@tuned(CONFIGS, key=["K", "V", "RESIDENT", "wide"])
@triton.jit(do_not_specialize=["T", "H", "HV", "padding_slot", "wide"])
def serial_kernel(q, k, v, o, snapshots, state, slot_index, g, beta, a_log, dt_bias, parents, count, status, stride_qb, stride_qt,
                  stride_qh, stride_kb, stride_kt, stride_kh, stride_vb, stride_vt, stride_vh, stride_ob, stride_ot, stride_oh,
                  stride_gb, stride_gt, stride_gh, stride_bb, stride_bt, stride_bh, stride_slot, stride_head, stride_sv, stride_sk, T,
                  H, HV, scale, eps, padding_slot, wide, SLOTS: tl.constexpr, NORM: tl.constexpr, RAW: tl.constexpr,
                  DOUBLED: tl.constexpr, K: tl.constexpr, V: tl.constexpr, WIDTH: tl.constexpr, BV: tl.constexpr,
                  RESIDENT: tl.constexpr):  # fmt: skip
    """One program: a sequence, a value head, BV value columns. snapshots [B, T, HV, V, K] fp32 by node."""
    tile, hv, b = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    slot = tl.load(slot_index + b).to(tl.int64) if SLOTS else b
    if SLOTS and slot <= padding_slot:
        return
    h = hv // (HV // H)
    dk, dv = tl.arange(0, K), tile * BV + tl.arange(0, BV)
    keep = dv < V
    S0 = load_state(state, slot, hv, stride_slot, stride_head, stride_sv, stride_sk, dk, tl.where(keep, dv, 0))
    broken = tl.load(status + b) != 0
    n = tl.minimum(tl.load(count + b), T)
    every = tl.arange(0, WIDTH)
    above = tl.load(parents + b * T + every, mask=every < n, other=-1)
    above = tl.where(every == 0, -1, above)
    if RAW:
        rate = -tl.exp(tl.load(a_log + hv).to(tl.float32))
        shift = tl.load(dt_bias + hv).to(tl.float32)
    # int64 from b on: the pointers step from node to node.
    at_q, at_k = q + b * stride_qb + h * stride_qh + dk, k + b * stride_kb + h * stride_kh + dk
    at_v, at_o = v + b * stride_vb + hv * stride_vh + dv, o + b * stride_ob + hv * stride_oh + dv
    at_g, at_beta = g + b * stride_gb + hv * stride_gh, beta + b * stride_bb + hv * stride_bh
    S = S0
    for i in range(0, n):
        parent = tl.sum(tl.where(every == i, above, 0), 0)
        parent = tl.where((i > 0) & (parent >= 0) & (parent < i), parent, -1)
        if RESIDENT:
            reload = (i > 0) & (parent != i - 1)
        else:
            reload = i > 0
        if reload:
            if parent >= 0:
                S = tl.load(
                    snapshots + (((b * T + parent) * HV + hv) * V + dv)[None, :] * K + dk[:, None],
                    mask=keep[None, :],
                    other=0.0,
                )
            else:
                S = S0
        key, query = tl.load(at_k).to(tl.float32), tl.load(at_q).to(tl.float32)
        value = tl.load(at_v, mask=keep, other=0.0).to(tl.float32)
        gate, take = tl.load(at_g).to(tl.float32), tl.load(at_beta).to(tl.float32)
        if RAW:
            x = gate + shift
            gate = rate * tl.where(
                x > 20.0, x, tl.where(x < -15.0, tl.exp(x), tl.log(1.0 + tl.exp(tl.minimum(x, 20.0))))
            )
            take = 1.0 / (1.0 + tl.exp(-take))
            if DOUBLED:
                take *= 2.0
        if NORM:
            key *= tl.rsqrt(tl.sum(key * key) + eps)
            query *= tl.rsqrt(tl.sum(query * query) + eps)
        S *= tl.exp(gate)
        u = take * (value - tl.sum(S * key[:, None], 0))
        S += key[:, None] * u[None, :]
        out = tl.sum(S * query[:, None], 0) * scale
        out = tl.where(broken, float("nan"), out)
        tl.store(at_o, out.to(o.dtype.element_ty), mask=keep)
        if RESIDENT:
            wanted = tl.max(((above == i) & (every > i + 1)).to(tl.int32), 0) > 0
        else:
            wanted = i + 1 < n
        if wanted:
            tl.store(snapshots + (((b * T + i) * HV + hv) * V + dv)[None, :] * K + dk[:, None], S, mask=keep[None, :])
            tl.debug_barrier()  # another lane may read it back
        at_q += stride_qt
        at_k += stride_kt
        at_v += stride_vt
        at_o += stride_ot
        at_g += stride_gt
        at_beta += stride_bt

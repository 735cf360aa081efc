"""Cumulative log gates by rank (E2) and beta, once a layer, from either form of the gates."""

from __future__ import annotations

import triton
import triton.language as tl

# exp(-1024) is 0 in fp32; with it 256 multiples of 1/16 sum without rounding.
FLOOR = tl.constexpr(-1024.0)


@triton.jit(do_not_specialize=["T", "HV", "plane"])
def gates_kernel(g, beta, a_log, dt_bias, order, ancestors, count, out, stride_gb, stride_gt, stride_gh, stride_bb, stride_bt, stride_bh,
                 T, HV, plane, RAW: tl.constexpr, DOUBLED: tl.constexpr, WIDTH: tl.constexpr):  # fmt: skip
    """out [3, B, HV, T] by rank: l in two parts, coarse + fine, and beta; rows 16 at a time.

    Every log gate is split into a multiple of 1/16 and a rest of at most 1/32. The multiples sum exactly in fp32, the rests stay
    small: differences of l keep their digits below a gate of any strength (NOTES.md, "A stored fp32 l").
    """
    b, hv = tl.program_id(2), tl.program_id(1)
    r = tl.program_id(0) * 16 + tl.arange(0, 16)
    j = tl.arange(0, WIDTH)
    n = tl.minimum(tl.load(count + b), T)
    node = tl.load(order + b * T + j, mask=j < n, other=0)
    gate = tl.load(
        g + b.to(tl.int64) * stride_gb + node.to(tl.int64) * stride_gt + hv * stride_gh, mask=j < n, other=0.0
    ).to(tl.float32)
    mine = tl.load(order + b * T + r, mask=r < n, other=0)
    rate = tl.load(
        beta + b.to(tl.int64) * stride_bb + mine.to(tl.int64) * stride_bt + hv * stride_bh, mask=r < n, other=0.0
    ).to(tl.float32)
    if RAW:
        x = gate + tl.load(dt_bias + hv).to(tl.float32)
        # softplus, linear past 20; below -15 log(1 + e^x) loses what e^x has.
        soft = tl.where(x > 20.0, x, tl.where(x < -15.0, tl.exp(x), tl.log(1.0 + tl.exp(tl.minimum(x, 20.0)))))
        gate = -tl.exp(tl.load(a_log + hv).to(tl.float32)) * soft
        rate = 1.0 / (1.0 + tl.exp(-rate))
        if DOUBLED:
            rate *= 2.0
    gate = tl.where(gate < FLOOR, FLOOR, gate)
    coarse = tl.floor(gate * 16.0 + 0.5) * 0.0625
    fine = gate - coarse
    word = tl.load(
        ancestors + (b * T + r)[:, None] * 8 + (j // 32)[None, :], mask=(r < n)[:, None] & (j < n)[None, :], other=0
    )
    on_path = (((word >> (j % 32)[None, :]) & 1) != 0) | (r[:, None] == j[None, :])
    at = out + (b * HV + hv) * T + r
    tl.store(at, tl.sum(tl.where(on_path, coarse[None, :], 0.0), 1), mask=r < n)
    tl.store(at + plane, tl.sum(tl.where(on_path, fine[None, :], 0.0), 1), mask=r < n)
    tl.store(at + 2 * plane, rate, mask=r < n)

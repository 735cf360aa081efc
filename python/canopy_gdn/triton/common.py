"""Pieces that the kernels share. Ranks are depth-first; a block is BT consecutive ranks of one tree (docs/math.md, "Path
compression")."""

from __future__ import annotations

import triton
import triton.language as tl

INTERPRETED = triton.knobs.runtime.interpret  # on the CPU, one program after the other: for tests


def tuned(configs: list[triton.Config], key: list[str]):
    """triton.autotune over a small space; under the interpreter, which has no clock worth asking, its first entry."""
    return triton.autotune(configs[:1] if INTERPRETED else configs, key=key, do_bench=_quick)


@triton.jit
def load_rows(start, node, stride, column, live, NORM: tl.constexpr, eps):
    """Rows `node` of q or k in fp32, [rows, K]: start[node, column], L2-normalised on request. Dead rows are 0."""
    x = tl.load(start + node.to(tl.int64)[:, None] * stride + column[None, :], mask=live[:, None], other=0.0).to(
        tl.float32
    )
    if NORM:
        x *= tl.rsqrt(tl.sum(x * x, 1) + eps)[:, None]
    return x


@triton.jit
def load_state(state, slot, hv, stride_slot, stride_head, stride_v, stride_k, k, v):
    """S0 [K, V] in fp32 from either layout."""
    start = state + slot * stride_slot + hv * stride_head
    return tl.load(start + k[:, None] * stride_k + v[None, :] * stride_v).to(tl.float32)


@triton.jit
def decay(coarse_i, fine_i, coarse_j, fine_j, mask):
    """exp(l_i - l_j) where mask holds, else 0 (E3). Coarse parts are exact multiples of 1/16 (gates.py), so a strong gate above
    both cancels without rounding."""
    exponent = (coarse_i[:, None] - coarse_j[None, :]) + (fine_i[:, None] - fine_j[None, :])
    return tl.where(mask, tl.exp(tl.where(mask, exponent, 0.0)), 0.0)


@triton.jit
def spoilt(x):
    """Rows of [rows, columns] that hold something that is not finite. (Not x - x != 0: that may be contracted with the product
    that x came from, and then is a rounding error.)"""
    return tl.min((tl.abs(x) < float("inf")).to(tl.int32), 1) == 0


@triton.jit
def in_block(ancestors, first, rows, live, T):
    """[BT, BT]: whether rank first + j is a strict ancestor of rank first + i. BT divides 32 or is 32 or 64."""
    column = first + tl.arange(0, rows.shape[0])
    word = tl.load(ancestors + rows[:, None] * 8 + (column // 32)[None, :], mask=live[:, None], other=0)
    return ((word >> (column % 32)[None, :]) & 1) != 0


@triton.jit
def invert(G, mask, BT: tl.constexpr, SOLVER: tl.constexpr, PRECISION: tl.constexpr):
    """(I + G)^-1 for a strictly lower triangular G [BT, BT] (E6), in one of three ways."""
    row, column = tl.arange(0, BT)[:, None], tl.arange(0, BT)[None, :]
    W = (row == column).to(tl.float32)
    if SOLVER == "substitution":
        # Row by row: W_r = e_r - sum over j < r of G_rj W_j.
        for r in range(1, BT):
            G_r = tl.sum(tl.where(row == r, G, 0.0), 0)  # [BT], by j
            W = tl.where(row == r, W - tl.sum(G_r[:, None] * W, 0)[None, :], W)
    elif SOLVER == "neumann":
        # sum over m of (-G)^m: as many terms as the deepest node has ancestors in the block.
        Z = W
        for _ in range(tl.max(tl.sum(mask.to(tl.int32), 1))):
            Z = -tl.dot(G, Z, input_precision=PRECISION)
            W += Z
    else:
        # (I + P)(I + P^2)(I + P^4) .. with P = -G.
        P = -G
        W += P
        SQUARINGS: tl.constexpr = 3 if BT == 16 else (4 if BT == 32 else 5)
        for _ in range(SQUARINGS):
            P = tl.dot(P, P, input_precision=PRECISION)
            W += tl.dot(W, P, input_precision=PRECISION)
    return W


def _quick(call, quantiles):
    """Milliseconds of a call: a tenth of Triton's usual time for it is enough to tell tile widths apart."""
    return triton.testing.do_bench(call, warmup=3, rep=12, quantiles=quantiles)

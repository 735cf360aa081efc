"""The plan of a batch of trees, made on the device by four small launches: depth-first ranks, ancestors as bits, root paths."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from .._abi import MAX_NODES, CanopyError

BLOCK = 16


@dataclass(frozen=True)
class Plan:
    """B trees of T nodes. Ranks are depth-first, children in ascending node order."""

    batch: int
    nodes: int
    count: Tensor  # int32 [B] live nodes
    parents: Tensor  # int32 [B, T] by node
    order: Tensor  # int32 [B, T] node at each rank
    rank: Tensor  # int32 [B, T] rank of each node
    ancestors: Tensor  # int32 [B, T, 8] by rank: bit r % 32 of word r // 32 says that rank r is a strict ancestor
    path: Tensor  # int32 [B, blocks, T] rank of the depth-d strict ancestor of a block's first node
    prefix: Tensor  # int32 [B, T] by rank: strict ancestors outside the rank's block, a prefix of the block's path
    status: Tensor  # int32 [B] 1 for a malformed tree: its outputs are NaN

    @property
    def block(self) -> int:
        """Ranks of one block."""
        return BLOCK


def plan(parents: Tensor, count: Tensor | None = None) -> Plan:
    """parents int32 [B, T], -1 for the root, parents first (what stands at node 0 is not read); count int32 [B], all T by
    default. Nothing waits for the host. A malformed tree is flagged in `status` and yields NaN."""
    if parents.dim() != 2 or parents.dtype != torch.int32 or not 1 <= parents.shape[1] <= MAX_NODES:
        raise CanopyError(
            f"parents: expected int32 [B, T] with T of 1 to {MAX_NODES}, got {str(parents.dtype).removeprefix('torch.')} {list(parents.shape)}"
        )
    B, T = parents.shape
    parents = parents.contiguous()
    device = parents.device
    if count is not None and tuple(count.shape) != (B,):
        raise CanopyError(f"count: expected shape [B] = [{B}], got {list(count.shape)}")
    count = torch.full((B,), T, dtype=torch.int32, device=device) if count is None else count.int().contiguous()
    blocks = triton.cdiv(T, BLOCK)
    new = lambda *shape: torch.empty(shape, dtype=torch.int32, device=device)
    jump, by_node = new(2, B, T), new(2, B, T, 8)
    made = Plan(B, T, count, parents, order=new(B, T), rank=new(B, T), ancestors=new(B, T, 8), path=new(B, blocks, T).zero_(),
                prefix=new(B, T), status=new(B).zero_())  # fmt: skip
    if B == 0:
        return made
    width = max(triton.next_power_of_2(T), 16)
    rounds = max(T - 1, 1).bit_length()
    _ancestors[(B,)](parents, count, jump, by_node, made.status, T, B * T, ROUNDS=rounds, WIDTH=width)
    final = by_node[rounds % 2]
    grid = (triton.cdiv(T, 16), B)
    _ranks[grid](final, count, made.order, made.rank, T, WIDTH=width)
    _permute[grid](final, count, made.order, made.ancestors, T)
    _paths[(blocks, B)](made.ancestors, count, made.path, made.prefix, T, blocks, WIDTH=width, BLOCK=BLOCK)
    return made


@triton.jit(do_not_specialize=["T", "half"])
def _ancestors(parents, count, jump, bits, status, T, half, ROUNDS: tl.constexpr, WIDTH: tl.constexpr):
    """Ancestor bits by node through pointer doubling: after round s a node knows its 2^s nearest ancestors. Rounds alternate
    between two halves of the buffers, so that one barrier a round is enough."""
    b = tl.program_id(0)
    live_nodes = tl.load(count + b)
    node = tl.arange(0, WIDTH)
    live = node < tl.minimum(live_nodes, T)
    parent = tl.load(parents + b * T + node, mask=live, other=0)
    bad = live & (node > 0) & ((parent < 0) | (parent >= node))
    wrong = (tl.max(bad.to(tl.int32), 0) > 0) | (live_nodes < 0) | (live_nodes > T)
    tl.store(status + b, wrong.to(tl.int32))
    parent = tl.where((node == 0) | bad | ~live, -1, parent)
    word = tl.arange(0, 8)
    known = tl.where(
        (parent >= 0)[:, None] & ((parent // 32)[:, None] == word[None, :]), 1 << (parent % 32)[:, None], 0
    )
    inside = (node < T)[:, None] & (word >= 0)[None, :]
    tl.store(jump + b * T + node, parent, mask=node < T)
    tl.store(bits + (b * T + node)[:, None] * 8 + word[None, :], known, mask=inside)
    tl.debug_barrier()
    for round in range(ROUNDS):
        source = (round % 2) * half
        target = ((round + 1) % 2) * half
        far = tl.load(jump + source + b * T + tl.maximum(parent, 0), mask=parent >= 0, other=-1)
        theirs = tl.load(bits + (source + b * T + tl.maximum(parent, 0))[:, None] * 8 + word[None, :],
                         mask=(parent >= 0)[:, None] & (word >= 0)[None, :], other=0)  # fmt: skip
        known |= theirs
        parent = far
        tl.store(jump + target + b * T + node, parent, mask=node < T)
        tl.store(bits + (target + b * T + node)[:, None] * 8 + word[None, :], known, mask=inside)
        tl.debug_barrier()


@triton.jit(do_not_specialize=["T"])
def _ranks(bits, count, order, rank, T, WIDTH: tl.constexpr):
    """The depth-first rank of node i counts the nodes before it: its ancestors, and those nodes j whose path leaves the common
    path towards a smaller child. Numbers grow along a path, so that child is the lowest bit in which the two paths differ."""
    b = tl.program_id(1)
    i = tl.program_id(0) * 16 + tl.arange(0, 16)
    j = tl.arange(0, WIDTH)
    n = tl.minimum(tl.load(count + b), T)
    decided = tl.zeros((16, WIDTH), tl.int1)
    before = tl.zeros((16, WIDTH), tl.int1)
    for w in range(8):
        own_i = tl.where(i // 32 == w, 1 << (i % 32), 0)
        own_j = tl.where(j // 32 == w, 1 << (j % 32), 0)
        path_i = tl.load(bits + (b * T + i) * 8 + w, mask=i < n, other=0) | own_i
        path_j = tl.load(bits + (b * T + j) * 8 + w, mask=j < n, other=0) | own_j
        differ = path_i[:, None] ^ path_j[None, :]
        lowest = differ & -differ
        of_j = (path_j[None, :] & lowest) != 0
        before = tl.where(decided, before, of_j)
        decided = decided | (differ != 0)
    # An ancestor j of i has no bit of its own: its path is a part of i's. A descendant's lowest bit is its own.
    word = tl.load(
        bits + (b * T + i)[:, None] * 8 + (j // 32)[None, :], mask=(i < n)[:, None] & (j < n)[None, :], other=0
    )
    above = ((word >> (j % 32)[None, :]) & 1) != 0
    word = tl.load(
        bits + (b * T + j)[None, :] * 8 + (i // 32)[:, None], mask=(i < n)[:, None] & (j < n)[None, :], other=0
    )
    below = ((word >> (i % 32)[:, None]) & 1) != 0
    before = (above | (before & ~below)) & (j < n)[None, :] & (i[:, None] != j[None, :])
    found = tl.sum(before.to(tl.int32), 1)
    tl.store(rank + b * T + i, found, mask=i < n)
    tl.store(order + b * T + found, i, mask=i < n)


@triton.jit(do_not_specialize=["T"])
def _permute(bits, count, order, ancestors, T):
    """Ancestor bits of nodes as bits of ranks."""
    b = tl.program_id(1)
    r = tl.program_id(0) * 16 + tl.arange(0, 16)
    n = tl.minimum(tl.load(count + b), T)
    node = tl.load(order + b * T + r, mask=r < n, other=0)
    bit = tl.arange(0, 32)
    for w in range(8):
        other = w * 32 + bit
        j = tl.load(order + b * T + other, mask=other < n, other=0)
        live = (r < n)[:, None] & (other < n)[None, :]
        word = tl.load(bits + (b * T + node)[:, None] * 8 + (j // 32)[None, :], mask=live, other=0)
        one = (word >> (j % 32)[None, :]) & 1
        tl.store(ancestors + (b * T + r) * 8 + w, tl.sum(tl.where(live, one << bit[None, :], 0), 1), mask=r < T)


@triton.jit(do_not_specialize=["T", "blocks"])
def _paths(ancestors, count, path, prefix, T, blocks, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """The root path of a block's first node, and how much of it each row of the block has."""
    b, block = tl.program_id(1), tl.program_id(0)
    first = block * BLOCK
    n = tl.minimum(tl.load(count + b), T)
    r = tl.arange(0, WIDTH)
    word = tl.load(ancestors + (b * T + first) * 8 + r // 32, mask=(r < first) & (first < n), other=0)
    on_path = ((word >> (r % 32)) & 1) != 0
    depth = tl.cumsum(on_path.to(tl.int32), 0) - 1
    tl.store(path + (b * blocks + block) * T + depth, r, mask=on_path)
    row = first + tl.arange(0, BLOCK)
    word = tl.load(
        ancestors + (b * T + row)[:, None] * 8 + (r // 32)[None, :],
        mask=(row < n)[:, None] & (r < first)[None, :],
        other=0,
    )
    outside = (word >> (r % 32)[None, :]) & 1
    tl.store(prefix + b * T + row, tl.sum(outside, 1), mask=row < T)

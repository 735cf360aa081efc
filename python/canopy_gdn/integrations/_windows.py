"""What a node of a draft tree sees of the sequence before it, as index arithmetic in PyTorch: no loop over nodes, nothing
waits for the host. The short convolution of a layer reads its inputs along these windows.

Positions of a sequence: W - 1 of the committed window first (oldest to newest), then the T nodes. The parent of the root is
the newest position of the window.
"""

from __future__ import annotations

import torch
from torch import Tensor


def parents_of_links(next_token: Tensor, next_sibling: Tensor) -> Tensor:
    """parents int32 [B, T] (-1 at the root) from first children and next siblings [B, T], -1 none; siblings in any order.

    log2(T) rounds of pointer doubling along sibling chains. Nodes that no link reaches get -1.
    """
    B, T = next_token.shape
    node = torch.arange(T, device=next_token.device).expand(B, T)
    nowhere = T  # a column of its own takes what points nowhere
    first = torch.where(next_token >= 0, next_token, nowhere).long()
    parents = torch.full((B, T + 1), -1, dtype=torch.long, device=node.device).scatter(1, first, node)[:, :T]
    after = torch.where(next_sibling >= 0, next_sibling, nowhere).long()
    before = torch.full((B, T + 1), nowhere, dtype=torch.long, device=node.device).scatter(1, after, node)
    before[:, T] = nowhere
    for _ in range(max(T - 1, 1).bit_length()):
        known = torch.cat([parents, parents.new_full((B, 1), -1)], 1)
        parents = torch.where(parents >= 0, parents, known.gather(1, before[:, :T]))
        before = before.gather(1, before)
    return parents.int()


def windows(parents: Tensor, width: int) -> Tensor:
    """int64 [B, T, width]: the positions that each node's window covers, oldest to newest, the node itself last."""
    B, T = parents.shape
    device = parents.device
    base = width - 1
    # Where each position comes from: the window's own positions step back by one, nodes to their parent.
    before = torch.cat(
        [torch.arange(-1, base - 1, device=device).clamp(min=0).expand(B, base), parents.long() + base], 1
    )
    before[:, base] = base - 1  # the root, whatever stands at node 0
    before = before.clamp(0, base + T - 1)
    taps = [torch.arange(base, base + T, device=device).expand(B, T)]
    for _ in range(base):
        taps.append(before.gather(1, taps[-1]))
    return torch.stack(taps[::-1], 2)


def convolve(x: Tensor, committed: Tensor, weight: Tensor, bias: Tensor | None, taps: Tensor, silu: bool) -> Tensor:
    """The causal depthwise convolution of every node along its root path, [B, T, C] in x's dtype, accumulated in fp32 oldest
    to newest.

    x [B, T, C]: the nodes' inputs; committed [B, C, W - 1]: the window before the root; weight [C, W]; bias [C];
    taps [B, T, W]: windows().
    """
    sequence = torch.cat([committed.transpose(1, 2).to(x.dtype), x], 1)
    total = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
    for tap in range(weight.shape[1]):
        seen = sequence.gather(1, taps[:, :, tap, None].expand(x.shape))
        total = torch.addcmul(total, seen.float(), weight[:, tap].float())
    if bias is not None:
        total = total + bias.float()
    return (torch.nn.functional.silu(total) if silu else total).to(x.dtype)


def committed_window(x: Tensor, committed: Tensor, taps: Tensor, leaf: Tensor, length: int) -> Tensor:
    """The newest `length` (at most W) inputs up to node leaf[b], [..., B, C, length]; x [..., B, T, C] and committed
    [..., B, C, W - 1] may have a layer axis in front, taps [B, T, W] as in convolve. What comes back for a leaf outside
    0 .. T - 1 means nothing."""
    base = committed.shape[-1]
    row = torch.arange(len(leaf), device=leaf.device)
    seen = taps[row, leaf.long().clamp(0, taps.shape[1] - 1)][:, -length:]  # [B, length]
    of_nodes = x[..., row[:, None], (seen - base).clamp(min=0), :]  # [..., B, length, C]
    of_window = committed.transpose(-1, -2)[..., row[:, None], seen.clamp(max=base - 1), :]
    found = torch.where((seen >= base)[..., None], of_nodes, of_window.to(x.dtype))
    return found.transpose(-1, -2).to(committed.dtype)


def write_windows(pool: Tensor, slots: Tensor, live: Tensor, windows: Tensor) -> None:
    """pool[:, slots[b]] = windows[:, b] for the live rows, [L, slots, C, W - 1]; nothing waits for the host.

    Rows that are not live repeat the write of a live one, so that each slot is written by one value alone; where no row is
    live, a slot gets what it holds.
    """
    row = torch.where(live, torch.arange(len(slots), device=slots.device), live.int().argmax())
    slot = slots.clamp(min=0).long()[row]
    pool[:, slot] = torch.where(live.any(), windows[:, row], pool[:, slot])

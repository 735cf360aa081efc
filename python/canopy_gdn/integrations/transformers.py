"""A draft tree through a Gated DeltaNet layer of Hugging Face transformers (Qwen3_5GatedDeltaNet and layers like it).

    step = verify(layer, hidden, parents, cache)     # step.output [B, T, hidden]; the cache is only read
    commit(step, leaf)                               # the cache as if the tokens of the accepted path had been fed

Every output equals, to rounding, what the layer gives for the last token when it is fed the node's root path.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .. import commit as commit_state
from .. import conv1d_commit, conv1d_tree
from .. import plan as plan_trees
from .. import verify as verify_state
from .._abi import CanopyError


@dataclass(frozen=True)
class Step:
    """What verify leaves for commit."""

    output: Tensor  # [B, T, hidden]
    cache: Any  # the layer's entry of the model's cache
    inputs: Tensor  # [B, T, C] before the convolution
    trees: dict[str, Any]  # parents, count, plan
    arguments: dict[str, Any]  # of commit besides: k, v, gates, state


def verify(layer: Any, hidden_states: Tensor, parents: Tensor, cache_params: Any, *, count: Tensor | None = None,
           plan: Tensor | None = None, max_depth: int = 0) -> Step:  # fmt: skip
    """Every node of the trees through one layer.

    layer: a Qwen3_5GatedDeltaNet module. hidden_states [B, T, hidden]: the nodes' inputs, normalised as the decoder layer does
    before it calls the module. parents [B, T] int32, -1 at the root. cache_params: the model's cache after the committed
    tokens (at least one), which is only read. count [B] int32: live nodes. plan: what canopy_gdn.plan made of the trees, to be
    shared by the layers of a step. max_depth: as in canopy_gdn.verify.

    Raises CanopyError (a RuntimeError) for a cache without a state or with a longer window than the layer's, and for whatever
    canopy_gdn.verify refuses.
    """
    cache = cache_params.layers[layer.layer_idx]
    recurrent, window = getattr(cache, "recurrent_states", {}), getattr(cache, "conv_states", {})
    if not recurrent or recurrent[0] is None or window[0] is None:
        raise CanopyError(
            f"cache_params: expected a cache that holds layer {layer.layer_idx}'s state after the committed tokens, got one without; "
            "run the prompt through the model first"
        )
    if window[0].shape[2] != layer.conv_kernel_size:
        raise CanopyError(
            f"cache_params: expected the last {layer.conv_kernel_size} inputs of layer {layer.layer_idx}'s convolution, got "
            f"{window[0].shape[2]}; crop a cache that records the past"
        )
    if layer.activation not in ("silu", "swish", None):
        raise CanopyError(
            f"layer.activation = {layer.activation!r}: expected 'silu', 'swish' or None, what the convolution computes"
        )
    with torch.no_grad():
        B, T, _ = hidden_states.shape
        mixed = layer.in_proj_qkv(hidden_states)
        trees: dict[str, Any] = {"parents": parents, "count": count}
        trees["plan"] = plan_trees(**trees) if plan is None else plan
        # transformers keeps W inputs, of which a next token sees W - 1.
        qkv = conv1d_tree(mixed, layer.conv1d.weight[:, 0], layer.conv1d.bias, state=window[0][..., 1:],
                          silu=layer.activation is not None, **trees)  # fmt: skip
        q, k, v = qkv.split([layer.key_dim, layer.key_dim, layer.value_dim], 2)
        arguments = {
            "k": k.unflatten(2, (-1, layer.head_k_dim)),
            "v": v.unflatten(2, (-1, layer.head_v_dim)),
            "a": layer.in_proj_a(hidden_states),
            "b": layer.in_proj_b(hidden_states),
            "a_log": layer.A_log.detach(),
            "dt_bias": layer.dt_bias.detach(),
            "state": recurrent[0],
            "state_layout": "kv",
            "l2norm": True,
        }
        o = verify_state(q.unflatten(2, (-1, layer.head_k_dim)), **arguments, **trees, max_depth=max_depth)
        z = layer.in_proj_z(hidden_states).unflatten(2, (-1, layer.head_v_dim))
        o = layer.norm(o.reshape(-1, layer.head_v_dim), z.reshape(-1, layer.head_v_dim)).view(B, T, -1)
        return Step(layer.out_proj(o), cache, mixed, trees, arguments)


def commit(step: Step, leaf: Tensor) -> None:
    """Moves the layer's cache to the state after node leaf[b] of each sequence, [B] int32, in place; below 0 (or at or past the
    count): the sequence stays as it was."""
    with torch.no_grad():
        commit_state(leaf=leaf, **step.arguments, **step.trees)
        window, parents, count = step.cache.conv_states[0], step.trees["parents"], step.trees["count"]
        # conv1d_commit moves the W - 1 inputs that a next token sees. The oldest of transformers' W is then the oldest of the
        # W - 1 after the leaf's parent, or before the root.
        before = window[..., 1:].clone()
        above = parents.gather(1, leaf.long().clamp(0, parents.shape[1] - 1)[:, None])[:, 0]
        conv1d_commit(step.inputs, state=before, leaf=torch.where(leaf > 0, above, -1), **step.trees)
        conv1d_commit(step.inputs, state=window[..., 1:], leaf=leaf, **step.trees)
        live = (leaf >= 0) & (leaf < (parents.shape[1] if count is None else count))
        window[..., 0] = torch.where(live[:, None], before[..., 0], window[..., 0])

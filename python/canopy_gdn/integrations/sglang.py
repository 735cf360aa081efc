"""SGLang's Gated DeltaNet calls, with its argument names and meanings, over canopy: no state is stored for a node.

One TreeVerifier serves all GDN layers of a model. In a step of the engine:

    step.begin(cache_indices, retrieve_next_token, retrieve_next_sibling)       once, before the layers
    each layer:
      mixed_qkv = step.causal_conv1d_update(layer_id, x, conv_states, weight, bias, activation)
      o = step.target_verify(layer_id, A_log=..., dt_bias=..., q=..., k=..., v=..., a=..., b=..., ssm_states=..., ...)
    step.update_mamba_state_after_mtp_verify(accepted, track_indices, track_steps, temporal=..., conv=...)    once

Where SGLang keeps a state a node (intermediate_ssm, 2 MiB a node, layer and sequence for 32 heads of 128 x 128 in fp32), this
keeps each layer's activations until the commit: 32 KiB a node and layer in bf16. All buffers are allocated once; a step
allocates nothing of a lasting kind, waits for nothing, and can be captured in a CUDA graph. An engine whose projection writes
straight into inputs(layer_id) saves the one copy that is left on the convolution's way.

Arguments that SGLang's call sites pass and this does not need (snapshot buffers, links at every layer, the model) are taken and
not read, so that a call site keeps its keywords; what is not known is refused by Python as always.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import commit, conv1d_commit, conv1d_tree, plan, verify
from .._abi import CanopyError


class TreeVerifier:
    """State of one step, for all GDN layers of a model on one device.

    layers: GDN layers, called by their number 0 .. layers - 1. max_batch, draft_token_num: B and T of the largest step.
    num_k_heads, num_v_heads, head_k_dim, head_v_dim: H, HV, K, V (of one rank under tensor parallelism). conv_width: taps of
    the short convolution. dtype: of the activations; gate_dtype: of a and b, where it differs. max_depth: the depth that no tree
    exceeds, SGLang's speculative_num_steps; it helps to choose the kernel (chains need none), 0: unknown.
    """

    def __init__(self, *, layers: int, max_batch: int, draft_token_num: int, num_k_heads: int, num_v_heads: int,
                 head_k_dim: int = 128, head_v_dim: int = 128, conv_width: int = 4, dtype: torch.dtype = torch.bfloat16,
                 gate_dtype: torch.dtype | None = None, device: torch.device | str = "cuda",
                 max_depth: int = 0) -> None:  # fmt: skip
        self.layers, self.max_batch, self.T, self.width = layers, max_batch, draft_token_num, conv_width
        self.heads = (num_k_heads, num_v_heads, head_k_dim, head_v_dim)
        self.split = [num_k_heads * head_k_dim, num_k_heads * head_k_dim, num_v_heads * head_v_dim]
        rows = (layers, max_batch, draft_token_num)
        self._inputs = torch.zeros(*rows, sum(self.split), dtype=dtype, device=device)  # before the convolution
        self._mixed = torch.zeros_like(self._inputs)  # after it: q, k, v
        self._gates = torch.zeros(*rows, 2, num_v_heads, dtype=gate_dtype or dtype, device=device)  # a, b
        self._a_log = torch.zeros(layers, num_v_heads, device=device)
        self._dt_bias = torch.zeros(layers, num_v_heads, device=device)
        self.max_depth = max_depth
        self.depth = 0  # that no tree of the step exceeds
        self.trees: dict[str, Any] = {}  # of the step, with their plan
        self._parameters: dict[int, tuple[Tensor, Tensor]] = {}  # a layer's A_log and dt_bias, for the commit

    @property
    def nbytes(self) -> int:
        """Bytes kept between verification and commit, for all layers: the engine's whole transient memory for verification."""
        kept = (self._inputs, self._mixed, self._gates, self._a_log, self._dt_bias)
        return sum(tensor.numel() * tensor.element_size() for tensor in kept)

    def begin(self, cache_indices: Tensor, retrieve_next_token: Tensor | None = None, retrieve_next_sibling: Tensor | None = None,
              retrieve_parent_token: Tensor | None = None) -> None:  # fmt: skip
        """The step's trees, shared by all layers.

        cache_indices [B] int32 or int64: each request's slot in the pools, -1 for padding, whose trees are not read. The trees as
        first children and next siblings [B, T] (int32 or int64, -1 none; what SGLang's tree builder makes), or
        retrieve_parent_token [B, T]; without any, the drafts are chains, as SGLang's topk = 1.
        """
        B = cache_indices.shape[0]
        if B > self.max_batch:
            raise CanopyError(
                f"cache_indices: expected at most max_batch = {self.max_batch} requests, got {B}; make TreeVerifier with more"
            )
        if (retrieve_next_token is None) != (retrieve_next_sibling is None):
            raise CanopyError(
                "the trees: expected retrieve_next_token and retrieve_next_sibling together, got one; pass both"
            )
        if retrieve_next_token is not None and retrieve_next_sibling is not None:
            # First: SGLang's parents beside them are memory that its convolution fills.
            trees = {"next_token": retrieve_next_token, "next_sibling": retrieve_next_sibling}
        elif retrieve_parent_token is not None:
            trees = {"parents": retrieve_parent_token}
        else:
            chain = torch.arange(-1, self.T - 1, dtype=torch.int32, device=cache_indices.device)
            trees = {"parents": chain.repeat(B, 1)}
        for tree in trees.values():
            if tree.shape != (B, self.T):
                raise CanopyError(
                    f"the trees: expected shape [B, draft_token_num] = [{B}, {self.T}], got {list(tree.shape)}; make one "
                    "TreeVerifier for each draft_token_num"
                )
        chains = retrieve_next_token is None and retrieve_parent_token is None
        self.batch, self.cache_indices, self.depth = B, cache_indices, self.T - 1 if chains else self.max_depth
        self.trees = {name: tree.int().contiguous() for name, tree in trees.items()}
        # No slots: a padding request's trees are planned, or found malformed, and then never asked for.
        self.trees["plan"] = plan(**self.trees)

    def inputs(self, layer_id: int) -> Tensor:
        """Where a layer's inputs of the convolution are kept until the commit, [B*T, C]: an engine may compute them here and pass
        this as x, and nothing is copied."""
        return self._inputs[layer_id, : self.batch].flatten(0, 1)

    def causal_conv1d_update(self, layer_id: int, x: Tensor, conv_state: Tensor, weight: Tensor, bias: Tensor | None = None,
                             activation: str | bool | None = None, *, conv_state_indices: Tensor | None = None,
                             intermediate_conv_window: Tensor | None = None, intermediate_state_indices: Tensor | None = None,
                             retrieve_next_token: Tensor | None = None, retrieve_next_sibling: Tensor | None = None,
                             retrieve_parent_token: Tensor | None = None) -> Tensor:  # fmt: skip
        """The short convolution of every node along its root path, one launch; conv_state is only read.

        x [B, C, T] (SGLang's view of [B*T, C], read as it is); conv_state [slots, C, W-1], any strides, and of a longer window
        its first W-1, as there; weight [C, W]; bias [C]; activation "silu", "swish", True, False or None. Slots and trees are
        those of begin; the rest is not read, and retrieve_parent_token not written, which nothing here needs.

        Returns [B, C, T], a view of this object's buffer: q, k and v split from it are not copied again. Padding requests keep
        what an earlier step left there.
        """
        self._layer(layer_id)
        if activation not in ("silu", "swish", True, False, None):
            raise CanopyError(
                f"activation = {activation!r}: expected 'silu', 'swish', True, False or None; apply others to the result"
            )
        B, C, T = x.shape
        if (B, T) != (self.batch, self.T) or C != sum(self.split):
            raise CanopyError(
                f"x: expected shape [B, C, T] = {[self.batch, sum(self.split), self.T]}, got {list(x.shape)}; call begin() with "
                "this batch first"
            )
        self._dtype("x", x, self._inputs)
        inputs, mixed = self._inputs[layer_id, :B], self._mixed[layer_id, :B]
        if inputs.data_ptr() != x.data_ptr():  # not computed in place
            inputs.copy_(x.transpose(1, 2))
        conv1d_tree(inputs, weight, bias, state=conv_state[..., : self.width - 1], silu=bool(activation),
                    slot_index=self.cache_indices, o=mixed, **self.trees)  # fmt: skip
        return mixed.transpose(1, 2)

    def target_verify(self, layer_id: int, A_log: Tensor, dt_bias: Tensor, q: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor,
                      *, ssm_states: Tensor, cache_indices: Tensor, query_start_loc: Tensor | None = None,
                      intermediate_states_buffer: Tensor | None = None, intermediate_state_indices: Tensor | None = None,
                      cache_steps: int | None = None, retrieve_parent_token: Tensor | None = None,
                      stable_rows: bool = False) -> Tensor:  # fmt: skip
        """Every node's output through one layer; ssm_states is only read.

        q, k [1, B*T, H, K], v [1, B*T, HV, V]: strided views are read in place; a, b [B*T, HV]; A_log, dt_bias [HV];
        ssm_states [slots, HV, V, K]; cache_indices [B] as in begin. q and k are L2-normalised, the scale is K^-0.5, as SGLang's
        call does. query_start_loc, the intermediate buffers, cache_steps, retrieve_parent_token and stable_rows are not read:
        requests have draft_token_num tokens each (no ragged verification), the tree is that of begin, no intermediate state is
        written. A_log and dt_bias are kept by reference until the commit, which reads their values then.

        Returns o [1, B*T, HV, V] in v's dtype; padding requests have zeros.
        """
        self._layer(layer_id)
        H, HV, K, V = self.heads
        B, T = self.batch, self.T
        for name, tensor, shape in (("q", q, (1, B * T, H, K)), ("k", k, (1, B * T, H, K)), ("v", v, (1, B * T, HV, V)),
                                    ("a", a, (B * T, HV)), ("b", b, (B * T, HV))):  # fmt: skip
            if tuple(tensor.shape) != shape:
                raise CanopyError(
                    f"{name}: expected shape {list(shape)}, got {list(tensor.shape)}; call begin() with this batch first"
                )
            self._dtype(name, tensor, self._gates if name in "ab" else self._mixed)
        A_log, dt_bias = A_log.detach(), dt_bias.detach()
        self._parameters[layer_id] = A_log, dt_bias
        mixed, gates = self._mixed[layer_id, :B], self._gates[layer_id, :B]
        kept_k, kept_v = (self._part(mixed, part) for part in (1, 2))
        for kept, given in ((kept_k, k), (kept_v, v)):
            if kept.data_ptr() != given.data_ptr():  # not split from causal_conv1d_update's result
                kept.copy_(given.view(kept.shape))
        gates[:, :, 0].copy_(a.view(B, T, HV))
        gates[:, :, 1].copy_(b.view(B, T, HV))
        o = verify(q.detach().view(B, T, H, K), kept_k, kept_v, a=gates[:, :, 0], b=gates[:, :, 1], a_log=A_log, dt_bias=dt_bias,
                   l2norm=True, state=ssm_states, slot_index=cache_indices, max_depth=self.depth, **self.trees)  # fmt: skip
        return o.view(1, B * T, HV, V)

    def update_mamba_state_after_mtp_verify(self, last_correct_step_indices: Tensor, mamba_track_indices: Tensor | None = None,
                                            mamba_steps_to_track: Tensor | None = None, model: object = None,
                                            req_pool_indices: Tensor | None = None, *, temporal: Tensor,
                                            conv: Tensor | None = None) -> None:  # fmt: skip
        """Commits the accepted node of every request in all layers: one launch for the states, one for the convolution's windows.

        last_correct_step_indices [R]: the accepted node of each request, below 0 for none; R at most B, since a batch that was
        padded for a CUDA graph is committed without its padding. mamba_track_indices [R] slots (below 0 none) and
        mamba_steps_to_track [R] nodes (below 0 none): a second state to keep, for requests that accept a node. temporal
        [layers, slots, HV, V, K]: the pool; conv [layers, slots, C, W-1]: the windows (SGLang has a list of them, its first).
        model and req_pool_indices are not read: slots are those of begin.
        """
        R = last_correct_step_indices.shape[0]
        if R > self.batch:
            raise CanopyError(
                f"last_correct_step_indices: expected at most the {self.batch} requests of begin, got {R}; call begin() with "
                "this batch first"
            )
        if (mamba_track_indices is None) != (mamba_steps_to_track is None):
            raise CanopyError(
                "tracking: expected mamba_track_indices and mamba_steps_to_track together, got one; pass both or none"
            )
        absent = [layer for layer in range(self.layers) if layer not in self._parameters]
        if absent:
            raise CanopyError(
                f"layers: expected target_verify of all {self.layers}, got none of layer {absent[0]}; make layers as many as there are"
            )
        if R == 0:
            return
        rows = self.cache_indices[:R]
        step: dict[str, Any] = {"slot_index": rows, "leaf": last_correct_step_indices.int(),
                                **{name: tree[:R] for name, tree in self.trees.items()}}  # fmt: skip
        if mamba_track_indices is not None and mamba_steps_to_track is not None:
            step["track_leaf"] = mamba_steps_to_track.int()
            step["track_slot"] = mamba_track_indices.to(rows.dtype)
        if conv is not None:
            conv1d_commit(self._inputs[:, :R], state=conv[..., : self.width - 1], **step)
        a_logs, dt_biases = zip(*(self._parameters[layer] for layer in range(self.layers)), strict=True)
        for kept, given in (
            (self._a_log, a_logs),
            (self._dt_bias, dt_biases),
        ):  # weights may have been updated in place
            torch._foreach_copy_(list(kept.unbind(0)), list(given))
        mixed, gates = self._mixed[:, :R], self._gates[:, :R]
        commit(self._part(mixed, 1), self._part(mixed, 2), a=gates[:, :, :, 0], b=gates[:, :, :, 1], a_log=self._a_log,
               dt_bias=self._dt_bias, l2norm=True, state=temporal, **step)  # fmt: skip

    def _layer(self, layer_id: int) -> None:
        if not 0 <= layer_id < self.layers:
            raise CanopyError(
                f"layer_id = {layer_id}: expected 0 <= layer_id < layers = {self.layers}; count the GDN layers alone"
            )
        if not self.trees:
            raise CanopyError(
                "begin: expected it once in each step before the layers, got no call; call begin(cache_indices, ...)"
            )

    @staticmethod
    def _dtype(name: str, tensor: Tensor, kept: Tensor) -> None:
        """What is kept until the commit must be what was verified, unrounded."""
        if tensor.dtype != kept.dtype:
            which = "gate_dtype" if name in ("a", "b") else "dtype"
            raise CanopyError(
                f"{name}.dtype = {tensor.dtype}: expected {kept.dtype}, the {which} of the TreeVerifier; make one with {which}={tensor.dtype}"
            )

    def _part(self, mixed: Tensor, part: int) -> Tensor:
        """q, k or v of [..., C] as [..., heads, width]."""
        H, HV, K, V = self.heads
        heads, width = ((H, K), (H, K), (HV, V))[part]
        return mixed.split(self.split, -1)[part].unflatten(-1, (heads, width))

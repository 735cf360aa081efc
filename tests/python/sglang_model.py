"""What SGLang's target verification means, as loops over nodes: a window and a state kept for every node, copied to the pools on
acceptance. Names, shapes and side effects are SGLang's; the arithmetic is fp64 inside.

causal_conv1d_update also rolls the drafts into conv_state as if they were accepted, which the commit repairs for the requests that
accept a node, and fills retrieve_parent_token.
"""

from __future__ import annotations

import torch
from torch import Tensor


def parents_of(next_token: Tensor, next_sibling: Tensor) -> list[int]:
    """Parents of a row of links; what no link reaches has 0."""
    parents = [0] * len(next_token)
    for node in range(len(parents)):
        child = int(next_token[node])
        while child != -1:
            parents[child] = node
            child = int(next_sibling[child])
    return parents


def causal_conv1d_update(x, conv_state, weight, bias=None, activation=None, *, conv_state_indices, intermediate_conv_window,
                         intermediate_state_indices, retrieve_next_token=None, retrieve_next_sibling=None,
                         retrieve_parent_token=None):  # fmt: skip
    """x [B, C, T]; conv_state [slots, C, W-1]; intermediate_conv_window [rows, T, C, W-1]. Returns [B, C, T], NaN for padding."""
    B, _, T = x.shape
    keep = weight.shape[1] - 1
    out = torch.full_like(x, float("nan"))
    for b in range(B):
        slot, row = int(conv_state_indices[b]), int(intermediate_state_indices[b])
        if slot == -1:
            continue
        parents = list(range(-1, T - 1))
        if retrieve_next_token is not None:
            parents = parents_of(retrieve_next_token[b], retrieve_next_sibling[b])
            retrieve_parent_token[b] = torch.tensor(parents)
        start = conv_state[slot, :, :keep].clone()
        windows: list[Tensor] = []
        for t in range(T):
            taps = torch.cat([start if t == 0 else windows[parents[t]], x[b, :, t : t + 1]], 1)
            y = (taps.double() * weight.double()).sum(1) + (0 if bias is None else bias.double())
            out[b, :, t] = (torch.nn.functional.silu(y) if activation in ("silu", "swish", True) else y).to(x.dtype)
            windows.append(taps[:, 1:])
            intermediate_conv_window[row, t] = windows[t]
        conv_state[slot, :, :keep] = torch.cat([start, x[b]], 1)[:, -keep:]
    return out


def target_verify(A_log, dt_bias, q, k, v, a, b, *, ssm_states, cache_indices, query_start_loc, intermediate_states_buffer,
                  intermediate_state_indices, cache_steps, retrieve_parent_token, **_):  # fmt: skip
    """q, k [1, B*T, H, K]; ssm_states [slots, HV, V, K]; intermediate_states_buffer [rows, T, HV, V, K]. Returns [1, B*T, HV, V]."""
    group, K = v.shape[2] // q.shape[2], q.shape[3]
    unit = lambda x: (x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt()).repeat_interleave(group, 1)
    queries, keys, values = unit(q[0].double()) * K**-0.5, unit(k[0].double()), v[0].double()
    decay = (-A_log.double().exp() * torch.nn.functional.softplus(a.double() + dt_bias.double())).exp()
    rate = b.double().sigmoid()
    out = torch.zeros_like(v)
    for request in range(len(query_start_loc) - 1):
        slot, row = int(cache_indices[request]), int(intermediate_state_indices[request])
        if slot < 0:
            continue
        for step in range(cache_steps):
            at = int(query_start_loc[request]) + step
            parent = step - 1 if retrieve_parent_token is None else int(retrieve_parent_token[request, step])
            state = (ssm_states[slot] if step == 0 else intermediate_states_buffer[row, parent]).double()
            state = state * decay[at][:, None, None]
            u = rate[at][:, None] * (values[at] - torch.einsum("hvk,hk->hv", state, keys[at]))
            state = state + u[:, :, None] * keys[at][:, None, :]
            out[0, at] = torch.einsum("hvk,hk->hv", state, queries[at]).to(out.dtype)
            intermediate_states_buffer[row, step] = state.to(intermediate_states_buffer.dtype)
    return out


def fused_mamba_state_scatter_with_mask(
    dst: Tensor, src: Tensor, dst_indices_raw: Tensor, step_indices_raw: Tensor
) -> None:
    """dst [layers, slots, ...] gets step_indices_raw's entry of src [layers, rows, T, ...], where both are 0 or more."""
    for row, (slot, step) in enumerate(zip(dst_indices_raw.tolist(), step_indices_raw.tolist(), strict=True)):
        if slot >= 0 and step >= 0:
            dst[:, slot] = src[:, row, step]


def update_mamba_state_after_mtp_verify(last_correct_step_indices, mamba_track_indices, mamba_steps_to_track, *, cache_indices, temporal,
                                        conv, intermediate_ssm, intermediate_conv_window):  # fmt: skip
    """The commit of the first len(last_correct_step_indices) requests of a batch, then the tracked states."""
    slots = cache_indices[: len(last_correct_step_indices)]
    for dst, src in ((temporal, intermediate_ssm), (conv, intermediate_conv_window)):
        fused_mamba_state_scatter_with_mask(dst, src, slots, last_correct_step_indices)
        if mamba_track_indices is not None:
            fused_mamba_state_scatter_with_mask(dst, src, mamba_track_indices, mamba_steps_to_track)

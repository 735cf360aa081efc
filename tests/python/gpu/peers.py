"""Peers beside canopy on the same inputs: flash-linear-attention on chains, SGLang's own Triton kernels beside the adapter.

FLA is imported as installed. SGLang's kernels are loaded one by one from an unpacked `sglang` wheel (--sglang FOLDER holds its
sglang/), with stand-ins for the helpers that they import, since the whole of it does not install beside every PyTorch.
"""

from __future__ import annotations

import importlib.util
import pathlib
import sys
import types
from typing import Any

import canopy_gdn
import numpy as np
import torch
from canopy_gdn import Tree
from canopy_gdn.integrations.sglang import TreeVerifier
from common import best_first, case, check, exact, microseconds, not_run, record, relative, say, within

SHAPES = ((1, 16), (1, 64), (4, 64), (16, 16))  # sequences and nodes beside SGLang's kernels


def run(sglang: str | None) -> None:
    if sglang is None:
        not_run("SGLang's kernels", "no --sglang FOLDER")
    else:
        kernels = check("SGLang's kernels load", lambda: load(sglang))
        for batch, nodes in SHAPES if kernels else ():
            check(f"SGLang's kernels and the adapter, B={batch} T={nodes}", lambda: beside(kernels, batch, nodes))
    if importlib.util.find_spec("fla") is None:
        not_run("FLA on chains", "flash-linear-attention is not installed")
        return
    check("FLA fused_recurrent on chains", lambda: fla("fused_recurrent_gated_delta_rule"))
    check("FLA chunk on chains", lambda: fla("chunk_gated_delta_rule"))


def jobs(sglang: str | None) -> list[tuple[str, int]]:
    """What ahead.py compiles, where it is installed, the slowest first: SGLang's convolution unrolls its nodes (half a minute for 64),
    FLA's chunk kernels have dozens of configurations."""
    fla = (
        [("fla:chunk_gated_delta_rule", 8), ("fla:fused_recurrent_gated_delta_rule", 1)]
        if importlib.util.find_spec("fla")
        else []
    )
    return ([(f"sglang:{batch}x{nodes}", 1) for batch, nodes in SHAPES] if sglang else []) + fla


def warm(kind: str, rest: str, sglang: str | None) -> None:
    """The calls of a check, whatever they find."""
    if kind == "fla":
        fla(rest)
        return
    global microseconds
    microseconds = lambda call, *_: call() is None or 0.0
    batch, nodes = map(int, rest.split("x"))
    beside(load(sglang), batch, nodes)


# ---- flash-linear-attention --------------------------------------------------------------------------------------------------


def fla(name: str, nodes: int = 128) -> str:
    import fla.ops.gated_delta_rule as rule

    arguments = case([Tree.family("chain", nodes)] * 2, (16, 16)) | {"slot_index": None}
    arguments["state"] = arguments["state"][:2].contiguous()
    call = getattr(rule, name)
    with torch.no_grad():
        o, state = call(arguments["q"], arguments["k"], arguments["v"], g=arguments["g"], beta=arguments["beta"],
                        initial_state=arguments["state"].swapaxes(-1, -2).contiguous(), output_final_state=True,
                        use_qk_l2norm_in_kernel=True)  # fmt: skip
    mine = canopy_gdn.verify(**arguments)
    expected = exact(arguments)[0]
    before = {n: v for n, v in arguments.items() if n != "q"}
    canopy_gdn.commit(**before, leaf=torch.full((2,), nodes - 1, dtype=torch.int32, device="cuda"))
    apart = relative(state.swapaxes(-1, -2), arguments["state"].double().cpu().numpy())
    theirs = relative(o, expected)
    return (
        f"{within(relative(mine, o.double().cpu().numpy()), 1e-2, 'o apart')} (from fp64: canopy {within(relative(mine, expected), 4e-3)}, FLA {theirs:.1e}), "
        + within(apart, 1e-2, "states apart")
    )


# ---- SGLang ------------------------------------------------------------------------------------------------------------------


def stand_in(name: str, **members: Any) -> None:
    """A module of SGLang's that its kernels import, with the members they use."""
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        path = ".".join(parts[:end])
        if path not in sys.modules:
            module = types.ModuleType(path)
            module.__path__ = []
            sys.modules[path] = module
    for key, value in members.items():
        setattr(sys.modules[name], key, value)


def load(folder: str) -> types.SimpleNamespace:
    root = pathlib.Path(folder)
    major, minor = torch.cuda.get_device_capability()
    sm = 10 * major + minor
    stand_in("sglang.kernels.jit.utils", is_arch_support_pdl=lambda: major >= 9)
    stand_in("sglang.srt.utils", get_device_sm=lambda: sm, is_cuda=lambda: True, is_hip=lambda: False, is_gfx95_supported=lambda: False,
             is_sm90_supported=lambda: sm == 90)  # fmt: skip
    stand_in(
        "sglang.srt.utils.common",
        get_device_core_count=lambda device=0: torch.cuda.get_device_properties(device).multi_processor_count,
    )
    stand_in("sglang.kernels.ops.memory.ptr_table", make_ptr_table=None)
    kernels = {}
    for path in (
        "attention/linear/fused_sigmoid_gating_recurrent",
        "mamba/causal_conv1d_triton",
        "mamba/mamba_state_scatter_triton",
    ):
        file = root / "sglang" / "kernels" / "ops" / f"{path}.py"
        spec = importlib.util.spec_from_file_location(f"peer_{file.stem}", file)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        kernels[file.stem] = module
    return types.SimpleNamespace(**kernels)


def links(trees: list[Tree], nodes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """next_token, next_sibling [B, T] int64, siblings in ascending order."""
    both = np.full((2, len(trees), nodes), -1)
    for row, tree in enumerate(trees):
        last: dict[int, int] = {}
        for node in range(1, nodes):
            parent = tree.parents[node]
            if parent in last:
                both[1, row, last[parent]] = node
            else:
                both[0, row, parent] = node
            last[parent] = node
    return tuple(torch.from_numpy(side).cuda() for side in both)


def beside(kernels: types.SimpleNamespace, B: int, T: int, layers: int = 4) -> str:
    """One step of `layers` layers both ways: outputs, committed states and windows compared, times side by side."""
    H, HV, K, V, W = 16, 32, 128, 128, 4
    C, slots = 2 * H * K + HV * V, B + 3
    torch.manual_seed(0)
    new = lambda *shape, dtype=torch.bfloat16: torch.randn(*shape, device="cuda").to(dtype)
    trees = best_first(T, B)
    next_token, next_sibling = links(trees, T)
    temporal, conv = new(layers, slots, HV, V, K, dtype=torch.float32), new(layers, slots, C, W - 1)
    weight, a_log, dt_bias = (
        new(layers, C, W) / 2,
        new(layers, HV, dtype=torch.float32),
        new(layers, HV, dtype=torch.float32),
    )
    x, a, b = new(layers, B * T, C), new(layers, B * T, HV), new(layers, B * T, HV)
    indices = (torch.randperm(slots)[:B]).int().cuda()
    start_loc = torch.arange(0, B * T + 1, T, dtype=torch.int32, device="cuda")
    accepted = torch.randint(0, T, (B,), device="cuda")

    # SGLang: a state and a window for every node, then the accepted ones copied to the pools.
    snapshots = torch.zeros(layers, B, T, HV, V, K, device="cuda")
    windows = torch.zeros(layers, B, T, C, W - 1, dtype=torch.bfloat16, device="cuda")
    parent_token = torch.zeros(B, T, dtype=torch.int64, device="cuda")
    rows = torch.arange(B, dtype=torch.int32, device="cuda")
    theirs = {"temporal": temporal.clone(), "conv": conv.clone()}
    convolve = kernels.causal_conv1d_triton.causal_conv1d_update
    recur = kernels.fused_sigmoid_gating_recurrent.fused_sigmoid_gating_delta_rule_update
    scatter = kernels.mamba_state_scatter_triton

    def their_conv(layer):
        return convolve(x[layer].view(B, T, C).transpose(1, 2), theirs["conv"][layer], weight[layer], None, "silu",
                        conv_state_indices=indices, intermediate_conv_window=windows[layer], intermediate_state_indices=rows,
                        retrieve_next_token=next_token, retrieve_next_sibling=next_sibling, retrieve_parent_token=parent_token)  # fmt: skip

    def parts(mixed):
        q, k, v = mixed.transpose(1, 2).view(B * T, C).split([H * K, H * K, HV * V], -1)
        return q.view(1, B * T, H, K), k.view(1, B * T, H, K), v.view(1, B * T, HV, V)

    def their_verify(layer, q, k, v):
        return recur(A_log=a_log[layer], dt_bias=dt_bias[layer], q=q, k=k, v=v, a=a[layer], b=b[layer],
                     initial_state_source=theirs["temporal"][layer], initial_state_indices=indices, cu_seqlens=start_loc,
                     use_qk_l2norm_in_kernel=True, softplus_beta=1.0, softplus_threshold=20.0, is_kda=False,
                     disable_state_update=True, intermediate_states_buffer=snapshots[layer], intermediate_state_indices=rows,
                     cache_steps=T, retrieve_parent_token=parent_token)  # fmt: skip

    def their_commit():
        scatter.fused_mamba_state_scatter_with_mask(theirs["temporal"], snapshots, indices, accepted)
        scatter.fused_conv_window_scatter_with_mask(theirs["conv"], windows, indices, accepted)

    mine = TreeVerifier(layers=layers, max_batch=B, draft_token_num=T, num_k_heads=H, num_v_heads=HV)
    mine.begin(indices, next_token, next_sibling)
    pools = {"temporal": temporal.clone(), "conv": conv.clone()}

    def my_verify(layer, q, k, v):
        return mine.target_verify(layer, a_log[layer], dt_bias[layer], q, k, v, a[layer], b[layer], ssm_states=pools["temporal"][layer],
                                  cache_indices=indices, query_start_loc=start_loc, cache_steps=T)  # fmt: skip

    my_conv = lambda layer: mine.causal_conv1d_update(
        layer, x[layer].view(B, T, C).transpose(1, 2), pools["conv"][layer], weight[layer], None, "silu"
    )
    worst = {"conv": 0.0, "o": 0.0}
    for layer in range(layers):
        one, two = their_conv(layer), my_conv(layer)
        worst["conv"] = np.maximum(worst["conv"], relative(two, one.double().cpu().numpy()))
        two.copy_(one)  # the same q, k, v for both, so that what follows compares the rule alone
        one, two = their_verify(layer, *parts(two)), my_verify(layer, *parts(two))
        worst["o"] = np.maximum(worst["o"], relative(two, one.double().cpu().numpy()))
    parents = torch.from_numpy(canopy_gdn.batch(trees)[0]).cuda()
    assert torch.equal(parent_token[:, 1:].int(), parents[:, 1:]), "SGLang's kernel found the tree's parents"
    their_commit()
    mine.update_mamba_state_after_mtp_verify(accepted, **pools)
    states = relative(pools["temporal"], theirs["temporal"].double().cpu().numpy())
    assert torch.equal(pools["conv"], theirs["conv"]), "windows are copies of inputs"

    q, k, v = parts(my_conv(0))
    in_place = mine.inputs(0).view(B, T, C).transpose(1, 2)
    calls = {
        "verify": (lambda: their_verify(0, q, k, v), lambda: my_verify(0, q, k, v)),
        "conv": (lambda: their_conv(0), lambda: my_conv(0)),
        "conv, inputs computed in place": (
            lambda: their_conv(0),
            lambda: mine.causal_conv1d_update(0, in_place, pools["conv"][0], weight[0], None, "silu"),
        ),
        f"commit of {layers} layers, states": (
            lambda: scatter.fused_mamba_state_scatter_with_mask(theirs["temporal"], snapshots, indices, accepted),
            lambda: mine.update_mamba_state_after_mtp_verify(accepted, temporal=pools["temporal"]),
        ),
        f"commit of {layers} layers, states and windows": (
            their_commit,
            lambda: mine.update_mamba_state_after_mtp_verify(accepted, **pools),
        ),
    }
    times = {what: tuple(microseconds(call, 4, 15) for call in both) for what, both in calls.items()}
    for what, (peer, own) in times.items():
        say(f"       {what:42} SGLang {peer:8.1f} us   adapter {own:8.1f} us")
        record(kind="sglang", B=B, T=T, what=what, sglang_us=peer, adapter_us=own)
    begin = microseconds(lambda: mine.begin(indices, next_token, next_sibling), 4, 15)
    say(f"       {'begin, once a step':42} adapter {begin:8.1f} us")
    record(kind="sglang", B=B, T=T, what="begin", adapter_us=begin)
    memory = f"kept {snapshots.numel() * 4 / 2**20:.0f} MiB against {mine.nbytes / 2**20:.1f} MiB"
    return f"{within(worst['conv'], 4e-3, 'conv')}, {within(worst['o'], 5e-3, 'o')}, {within(states, 2e-3, 'states')} apart; {memory}"

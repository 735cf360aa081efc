"""Peers beside canopy on the same inputs: flash-linear-attention on chains, SGLang's own Triton kernels beside the
adapter, in a batch with padding and tracked states too.

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
from common import (
    best_first,
    captured,
    case,
    check,
    copies,
    exact,
    microseconds,
    not_run,
    record,
    relative,
    say,
    within,
)

SHAPES = ((1, 16), (1, 64), (4, 64), (16, 16))  # sequences and nodes beside SGLang's kernels
HEADS = (16, 32)  # of keys and values, 128 wide


def run(sglang: str | None) -> None:
    if sglang is None:
        not_run("SGLang's kernels", "no --sglang FOLDER")
    else:
        kernels = check("SGLang's kernels load", lambda: load(sglang))
        for batch, nodes in SHAPES if kernels else ():
            check(f"SGLang's kernels and the adapter, B={batch} T={nodes}", lambda: beside(kernels, batch, nodes))
        if kernels:
            check("SGLang's kernels and the adapter, padding and tracked states", lambda: padded(kernels))
            check("the adapter's step in a CUDA graph, replayed with other padding", lambda: in_a_graph(kernels))
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
    names = [*(f"sglang:{batch}x{nodes}" for batch, nodes in SHAPES), "sglang:padded"]
    return ([(name, 1) for name in names] if sglang else []) + fla


def warm(kind: str, rest: str, sglang: str | None) -> None:
    """The calls of a check, whatever they find."""
    if kind == "fla":
        fla(rest)
        return
    global microseconds
    microseconds = lambda call, *_: call() is None or 0.0
    if rest == "padded":
        padded(load(sglang))
        return
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


class Step:
    """A step of `layers` layers through SGLang's kernels and through the adapter, on the same inputs. SGLang keeps a
    state and a window for every node and copies the accepted ones to the pools. The last `padding` requests are
    nobody's, as in a batch padded for a CUDA graph: slot -1, no numbers in their rows, links of an earlier batch.
    """

    def __init__(self, kernels: Any, B: int, T: int, layers: int, padding: int = 0, seed: int = 0) -> None:
        H, HV, K, V, W = self.heads = *HEADS, 128, 128, 4
        C, slots = 2 * H * K + HV * V, 2 * B + 3
        torch.manual_seed(seed)
        new = lambda *shape, dtype=torch.bfloat16: torch.randn(*shape, device="cuda").to(dtype)
        self.B, self.T, self.C, self.layers, self.live = B, T, C, layers, B - padding
        random = [Tree.family("random", T, seed=seed + row) for row in range(B)]
        self.trees = best_first(T, B) if seed == 0 else random
        self.next_token, self.next_sibling = links(self.trees, T)
        self.pools = {
            "temporal": new(layers, slots, HV, V, K, dtype=torch.float32),
            "conv": new(layers, slots, C, W - 1),
        }
        self.weight = new(layers, C, W) / 2
        self.a_log, self.dt_bias = (new(layers, HV, dtype=torch.float32) for _ in range(2))
        self.x, self.a, self.b = new(layers, B * T, C), new(layers, B * T, HV), new(layers, B * T, HV)
        order = torch.randperm(slots).int().cuda()
        self.indices, self.spare = order[:B].clone(), order[B : 2 * B]
        if padding:
            self.indices[self.live :] = -1
            for side in (self.next_token, self.next_sibling):
                side[self.live :] = 77
            for rows in (self.x, self.a, self.b):
                rows[:, self.live * T :] = float("nan")
        self.start_loc = torch.arange(0, B * T + 1, T, dtype=torch.int32, device="cuda")
        self.accepted = torch.randint(0, T, (B,), device="cuda")
        self.convolve = kernels.causal_conv1d_triton.causal_conv1d_update
        self.recur = kernels.fused_sigmoid_gating_recurrent.fused_sigmoid_gating_delta_rule_update
        self.scatter = kernels.mamba_state_scatter_triton
        self.snapshots = torch.zeros(layers, B, T, HV, V, K, device="cuda")
        self.windows = torch.zeros(layers, B, T, C, W - 1, dtype=torch.bfloat16, device="cuda")
        self.parent_token = torch.zeros(B, T, dtype=torch.int64, device="cuda")
        self.rows = torch.arange(B, dtype=torch.int32, device="cuda")
        self.theirs, self.mine = copies(self.pools), copies(self.pools)
        self.adapter = TreeVerifier(layers=layers, max_batch=B, draft_token_num=T, num_k_heads=H, num_v_heads=HV)

    def begin(self) -> None:
        self.adapter.begin(self.indices, self.next_token, self.next_sibling)

    def their_conv(self, layer: int) -> torch.Tensor:
        return self.convolve(self.inputs(layer), self.theirs["conv"][layer], self.weight[layer], None, "silu",
                             conv_state_indices=self.indices, intermediate_conv_window=self.windows[layer],
                             intermediate_state_indices=self.rows, retrieve_next_token=self.next_token,
                             retrieve_next_sibling=self.next_sibling,
                             retrieve_parent_token=self.parent_token)  # fmt: skip

    def my_conv(self, layer: int) -> torch.Tensor:
        return self.adapter.causal_conv1d_update(
            layer, self.inputs(layer), self.mine["conv"][layer], self.weight[layer], None, "silu"
        )

    def inputs(self, layer: int) -> torch.Tensor:
        return self.x[layer].view(self.B, self.T, self.C).transpose(1, 2)

    def parts(self, mixed: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """q, k, v as SGLang's attention gets them."""
        H, HV, K, V, _ = self.heads
        rows = self.B * self.T
        q, k, v = mixed.transpose(1, 2).view(rows, self.C).split([H * K, H * K, HV * V], -1)
        return q.view(1, rows, H, K), k.view(1, rows, H, K), v.view(1, rows, HV, V)

    def their_verify(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return self.recur(A_log=self.a_log[layer], dt_bias=self.dt_bias[layer], q=q, k=k, v=v, a=self.a[layer],
                          b=self.b[layer], initial_state_source=self.theirs["temporal"][layer],
                          initial_state_indices=self.indices, cu_seqlens=self.start_loc, use_qk_l2norm_in_kernel=True,
                          softplus_beta=1.0, softplus_threshold=20.0, is_kda=False, disable_state_update=True,
                          intermediate_states_buffer=self.snapshots[layer], intermediate_state_indices=self.rows,
                          cache_steps=self.T, retrieve_parent_token=self.parent_token)  # fmt: skip

    def my_verify(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return self.adapter.target_verify(layer, self.a_log[layer], self.dt_bias[layer], q, k, v, self.a[layer],
                                          self.b[layer], ssm_states=self.mine["temporal"][layer],
                                          cache_indices=self.indices, query_start_loc=self.start_loc,
                                          cache_steps=self.T)  # fmt: skip

    def both(self) -> tuple[dict[str, float], list[torch.Tensor]]:
        """All layers both ways: how far apart the live requests are, and the adapter's outputs."""
        self.begin()
        worst, outputs = {"conv": 0.0, "o": 0.0}, []
        apart = lambda one, other: relative(other, one.double().cpu().numpy())
        for layer in range(self.layers):
            one, two = self.their_conv(layer), self.my_conv(layer)
            worst["conv"] = np.maximum(worst["conv"], apart(one[: self.live], two[: self.live]))
            two.copy_(one)  # the same q, k, v for both, so that what follows compares the rule alone
            one, two = self.their_verify(layer, *self.parts(two)), self.my_verify(layer, *self.parts(two))
            worst["o"] = np.maximum(worst["o"], apart(one[:, : self.live * self.T], two[:, : self.live * self.T]))
            outputs.append(two)
        parents = torch.from_numpy(canopy_gdn.batch(self.trees)[0]).cuda()
        found = self.parent_token[: self.live, 1:].int()
        assert torch.equal(found, parents[: self.live, 1:]), "SGLang's kernel found the tree's parents"
        return worst, outputs

    def their_commit(self, accepted: torch.Tensor, slots: torch.Tensor, windows: bool = True) -> None:
        self.scatter.fused_mamba_state_scatter_with_mask(self.theirs["temporal"], self.snapshots, slots, accepted)
        if windows:
            self.scatter.fused_conv_window_scatter_with_mask(self.theirs["conv"], self.windows, slots, accepted)

    def my_commit(self, *arguments: torch.Tensor, windows: bool = True) -> None:
        self.adapter.update_mamba_state_after_mtp_verify(
            *arguments, temporal=self.mine["temporal"], conv=self.mine["conv"] if windows else None
        )

    def states_apart(self) -> float:
        assert torch.equal(self.mine["conv"], self.theirs["conv"]), "windows are copies of inputs"
        return relative(self.mine["temporal"], self.theirs["temporal"].double().cpu().numpy())


def beside(kernels: types.SimpleNamespace, B: int, T: int, layers: int = 4) -> str:
    """One step of `layers` layers both ways: outputs, committed states and windows compared, times side by side."""
    step = Step(kernels, B, T, layers)
    worst, _ = step.both()
    step.their_commit(step.accepted, step.indices)
    step.my_commit(step.accepted)
    states = step.states_apart()

    q, k, v = step.parts(step.my_conv(0))
    in_place = step.adapter.inputs(0).view(B, T, step.C).transpose(1, 2)
    calls = {
        "verify": (lambda: step.their_verify(0, q, k, v), lambda: step.my_verify(0, q, k, v)),
        "conv": (lambda: step.their_conv(0), lambda: step.my_conv(0)),
        "conv, inputs computed in place": (
            lambda: step.their_conv(0),
            lambda: step.adapter.causal_conv1d_update(0, in_place, step.mine["conv"][0], step.weight[0], None, "silu"),
        ),
        f"commit of {layers} layers, states": (
            lambda: step.their_commit(step.accepted, step.indices, windows=False),
            lambda: step.my_commit(step.accepted, windows=False),
        ),
        f"commit of {layers} layers, states and windows": (
            lambda: step.their_commit(step.accepted, step.indices),
            lambda: step.my_commit(step.accepted),
        ),
    }
    times = {what: tuple(microseconds(call, 4, 15) for call in both) for what, both in calls.items()}
    for what, (peer, own) in times.items():
        say(f"       {what:42} SGLang {peer:8.1f} us   adapter {own:8.1f} us")
        record(kind="sglang", B=B, T=T, what=what, sglang_us=peer, adapter_us=own)
    begin = microseconds(step.begin, 4, 15)
    say(f"       {'begin, once a step':42} adapter {begin:8.1f} us")
    record(kind="sglang", B=B, T=T, what="begin", adapter_us=begin)
    memory = f"kept {step.snapshots.numel() * 4 / 2**20:.0f} MiB against {step.adapter.nbytes / 2**20:.1f} MiB"
    return f"{within(worst['conv'], 4e-3, 'conv')}, {within(worst['o'], 5e-3, 'o')}, {within(states, 2e-3, 'states')} apart; {memory}"


def tracks(step: Step) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Accepted nodes of all requests, slots and nodes to track: the first accepts nothing, the second is not tracked by
    its slot, the third not by its node; what the padding accepted is noise."""
    accepted, slots = step.accepted.clone(), step.spare.clone()
    nodes = torch.randint(0, step.T, (step.B,), device="cuda")
    accepted[0], nodes[0], slots[1], nodes[2] = -1, -1, -1, -1
    slots[step.live :] = -1
    return accepted, slots, nodes


def padded(kernels: types.SimpleNamespace, B: int = 7, T: int = 16, layers: int = 2, padding: int = 2) -> str:
    """A batch with padding, tracked states and requests that accept nothing, committed with and without its padding."""
    step = Step(kernels, B, T, layers, padding)
    worst, outputs = step.both()
    assert not any(o[:, step.live * T :].any() for o in outputs), "padding has zeros"
    assert all(torch.equal(step.mine[name], pool) for name, pool in step.pools.items()), "pools are only read"
    accepted, slots, nodes = tracks(step)
    errors = []
    for R in (step.live, B):
        for name, pool in step.pools.items():
            step.mine[name].copy_(pool)
            step.theirs[name].copy_(pool)  # their convolution rolled the drafts in; an accepted node alone repairs that
        step.their_commit(accepted[:R], step.indices[:R])
        step.their_commit(nodes[:R], slots[:R])
        step.my_commit(accepted[:R], slots[:R], nodes[:R])
        errors.append(step.states_apart())
        written = {*step.indices[1 : step.live].tolist(), *slots[3 : step.live].tolist()}
        rest = [slot for slot in range(2 * B + 3) if slot not in written]
        assert len(written) == 2 * step.live - 4
        for name, pool in step.pools.items():
            assert torch.equal(step.mine[name][:, rest], pool[:, rest]), f"{name} of slots that nobody accepted into"
            same = [slot for slot in written if torch.equal(step.mine[name][:, slot], pool[:, slot])]
            assert not same, f"{name} of slots {same}: not written"
    states = within(max(errors), 1e-5, "states")
    return f"{within(worst['conv'], 4e-3, 'conv')}, {within(worst['o'], 5e-3, 'o')}, {states} apart"


def in_a_graph(kernels: types.SimpleNamespace, B: int = 5, T: int = 16, layers: int = 2) -> str:
    """The adapter's whole step captured for a padded batch, replayed with other trees, slots, inputs and padding."""
    steps = [Step(kernels, B, T, layers, padding, seed) for seed, padding in enumerate((2, 0, 3, 1))]
    held = steps[0]
    accepted, slots, nodes = tracks(held)
    outputs = [torch.zeros(1, B * T, HEADS[1], 128, dtype=torch.bfloat16, device="cuda") for _ in range(layers)]

    def whole(step: Step, into: list[torch.Tensor], *chosen: torch.Tensor) -> None:
        step.begin()
        for layer in range(layers):
            into[layer].copy_(step.my_verify(layer, *step.parts(step.my_conv(layer))))
        step.my_commit(*chosen)

    call = lambda: whole(held, outputs, accepted, slots, nodes)
    call()
    replay = captured(call, allocates=True)
    for step in steps[1:]:
        expected, chosen = [torch.zeros_like(o) for o in outputs], tracks(step)
        whole(step, expected, *chosen)
        for name in ("indices", "next_token", "next_sibling", "x", "a", "b", "weight", "a_log", "dt_bias"):
            getattr(held, name).copy_(getattr(step, name))
        for name, pool in step.pools.items():
            held.mine[name].copy_(pool)
        for buffer, value in zip((accepted, slots, nodes), chosen):
            buffer.copy_(value)
        replay()
        assert all(torch.equal(got, wanted) for got, wanted in zip(outputs, expected)), "outputs"
        assert all(torch.equal(held.mine[name], step.mine[name]) for name in held.mine), "pools"
    return f"{len(steps) - 1} replays, bitwise"

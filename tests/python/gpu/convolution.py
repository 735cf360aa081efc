"""The tree convolution's operators on CUDA: the bits of the CPU, compilation, graphs, streams, engine layouts, cost and times."""

from __future__ import annotations

import ctypes
from typing import Any

import canopy_gdn
import torch
from canopy_gdn import Tree, _abi, _conv
from common import (
    best_first,
    captured,
    check,
    copies,
    copy_into,
    host_times,
    microseconds,
    record,
    relative,
    say,
    within,
)

INPUTS = "parents plan slot_index count next_token next_sibling".split()
ORDER = ["x", "state", "weight", "bias", *INPUTS]
OUT_ORDER = ["x", "state", "weight", "o", "bias", *INPUTS, "row_status"]
COMMIT_ORDER = ["x", "leaf", "state", *INPUTS, "dst_slot", "track_leaf", "track_slot", "row_status"]
NOT_OF_COMMIT = ("weight", "bias", "silu")


def run() -> None:
    from canopy_gdn import ops

    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for width in (2, 3, 4):
            check(f"conv1d_tree {dtype} W={width}", lambda: parity(dtype, width))
    for name in ("pool of fp32", "pool by taps"):
        check(f"conv1d_tree bf16, {name}", lambda: parity(torch.bfloat16, 4, name))
    check("conv1d_commit, all layers, moved and tracked", commit_parity)
    for name in ("conv1d_tree", "conv1d_tree_out", "conv1d_commit"):
        check(f"opcheck {name}", lambda: opcheck(ops, name))
    check("convolution compiled as one graph", compiled)
    check("convolution in a CUDA graph, replayed with new trees, slots, leaves", graphs)
    check("convolution on a side stream, no synchronisation", streams)
    check("convolution in SGLang's layout", views)
    check("convolution, malformed tree on the device", malformed)
    check("convolution, refusals", refusals)


def cost() -> None:
    """Apart from the rest: nothing else may run meanwhile."""
    from canopy_gdn import ops

    check("cost of a call of the convolution", lambda: overhead(ops))
    check("times of the convolution", times)


def case(trees: list[Tree], channels: int = 8192, width: int = 4, dtype: torch.dtype = torch.bfloat16, seed: int = 0,
         layers: int | None = None, bias: bool = True) -> dict[str, Any]:  # fmt: skip
    """Arguments of conv1d_tree on the GPU, a pool with three slots a sequence; with `layers`, x and state of commit."""
    generator = torch.Generator("cuda").manual_seed(seed)
    normal = lambda *shape: torch.randn(*shape, device="cuda", generator=generator).to(dtype)
    parents, count = (torch.from_numpy(t).cuda() for t in canopy_gdn.batch(trees))
    B, T = parents.shape
    lead = () if layers is None else (layers,)
    shuffled = torch.randperm(3 * B, generator=torch.Generator().manual_seed(seed))
    arguments = {"x": normal(*lead, B, T, channels), "weight": normal(channels, width) / 2, "silu": True,
                 "state": normal(*lead, 3 * B, channels, width - 1), "parents": parents, "count": count,
                 "slot_index": shuffled[:B].int().cuda()}  # fmt: skip
    return arguments | ({"bias": normal(channels)} if bias else {})


def on_cpu(arguments: dict[str, Any]) -> dict[str, Any]:
    return {n: v.cpu() if isinstance(v, torch.Tensor) else v for n, v in arguments.items()}


def plan_of(arguments: dict[str, Any]) -> torch.Tensor:
    return canopy_gdn.plan(parents=arguments["parents"], count=arguments["count"])


def two_trees() -> list[Tree]:
    return [Tree.family("best-first", 60), Tree.family("random", 33, seed=2)]


def parity(dtype: torch.dtype, width: int, pool: str = "") -> str:
    """The CPU's bits before SiLU, its values to 1e-6 after. 8200 channels: the last slab is not full."""
    arguments = case(two_trees(), 8200, width, dtype)
    if pool == "pool of fp32":
        arguments["state"] = arguments["state"].float()
    if pool == "pool by taps":
        arguments["state"] = arguments["state"].transpose(1, 2).contiguous().transpose(1, 2)
    for out in {dtype, torch.float32}:
        plain = arguments | {"silu": False, "out_dtype": out}
        assert torch.equal(canopy_gdn.conv1d_tree(**plain).cpu(), canopy_gdn.conv1d_tree(**on_cpu(plain))), out
    full = arguments | {"out_dtype": torch.float32}
    expected = canopy_gdn.conv1d_tree(**on_cpu(full)).double().numpy()
    return within(relative(canopy_gdn.conv1d_tree(**full), expected), 1e-6, "bitwise; with SiLU")


def commit_parity() -> str:
    arguments = case([Tree.family("random", 30, seed=s) for s in range(4)], layers=5)
    arguments = {n: v for n, v in arguments.items() if n not in NOT_OF_COMMIT}
    spare = sorted(set(range(12)) - set(arguments["slot_index"].tolist()))
    slots = lambda *values: torch.tensor(values, dtype=torch.int32, device="cuda")
    for extra in (
        {},
        {"dst_slot": slots(*spare[:3], -1), "track_slot": slots(*spare[3:7]), "track_leaf": slots(3, -1, 1, 0)},
    ):
        given = arguments | extra | {"leaf": slots(29, 0, 1, 2), "state": arguments["state"].clone()}
        host = on_cpu(given)
        canopy_gdn.conv1d_commit(**given)
        canopy_gdn.conv1d_commit(**host)
        assert torch.equal(given["state"].cpu(), host["state"])
    return "bitwise"


def opcheck(ops: Any, name: str) -> None:
    arguments = case([Tree.family("random", 12, seed=1), Tree.family("chain", 9)], 70)
    get = lambda order: tuple(arguments.get(n) for n in order)
    status = torch.zeros(2, dtype=torch.int32, device="cuda")
    if name == "conv1d_tree":
        torch.library.opcheck(ops._conv, get(ORDER), {"silu": True})
    elif name == "conv1d_tree_out":
        arguments |= {"o": torch.zeros_like(arguments["x"]), "row_status": status}
        torch.library.opcheck(ops._conv_out, get(OUT_ORDER))
    else:
        arguments |= {"leaf": torch.tensor([4, 8], dtype=torch.int32, device="cuda"), "row_status": status}
        torch.library.opcheck(ops._conv_commit, get(COMMIT_ORDER))


def step(x, weight, state, parents, leaf):
    plan = canopy_gdn.plan(parents=parents)
    o = canopy_gdn.conv1d_tree(x, weight, state=state, parents=parents, plan=plan, silu=True)
    canopy_gdn.conv1d_commit(x, state=state, parents=parents, plan=plan, leaf=leaf)
    return o.float() * 2


def compiled() -> None:
    function = torch.compile(step, fullgraph=True)
    arguments = case(best_first(40, 2), 512)
    leaf = torch.tensor([39, 7], dtype=torch.int32, device="cuda")
    inputs = [arguments[n] for n in ("x", "weight", "state", "parents")] + [leaf]
    start = inputs[2].clone()
    expected, after = step(*inputs), inputs[2].clone()
    for _ in range(3):
        inputs[2].copy_(start)
        got = function(*inputs).clone()
    assert torch.equal(got, expected) and torch.equal(inputs[2], after)


def graphs() -> str:
    batches = []
    for seed in range(4):
        trees = [Tree.family("random", 30, seed=seed), Tree.family("best-first", 30, seed=seed)]
        batch = case(trees, 1024, seed=seed, bias=False)
        batch["count"] = torch.randint(5, 31, (2,), dtype=torch.int32, device="cuda")
        batches.append(batch | {"leaf": batch["count"] - 2})
    buffers = copies(batches[0])
    o, plan = torch.zeros_like(buffers["x"]), plan_of(buffers)

    def whole(given, plan, o):
        canopy_gdn.plan(parents=given["parents"], count=given["count"], out=plan)
        canopy_gdn.conv1d_tree(**{n: v for n, v in given.items() if n != "leaf"}, plan=plan, o=o)
        canopy_gdn.conv1d_commit(**{n: v for n, v in given.items() if n not in NOT_OF_COMMIT}, plan=plan)

    whole(buffers, plan, o)
    replay = captured(lambda: whole(buffers, plan, o))
    for batch in batches[1:]:
        copy_into(buffers, batch)
        o.zero_()
        replay()
        expected = torch.zeros_like(o)
        whole(batch, plan_of(batch), expected)
        assert torch.equal(o, expected) and torch.equal(buffers["state"], batch["state"])
    return "3 replays, bitwise"


def streams() -> None:
    arguments = case(best_first(40))
    expected = canopy_gdn.conv1d_tree(**arguments)
    late = arguments | {"x": torch.zeros_like(arguments["x"])}
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(20_000_000)  # about 10 ms: a call on another stream would read zeros
        late["x"].copy_(arguments["x"])
        got = canopy_gdn.conv1d_tree(**late)
    side.synchronize()
    assert torch.equal(got, expected)


def views() -> None:
    """x [B, C, T], a view of [B*T, C + gap]; a pool of all layers; o as columns of a wider buffer."""
    arguments = case(best_first(40, 2))
    B, T, C = arguments["x"].shape
    buffer = torch.full((B * T, C + 64), float("nan"), dtype=torch.bfloat16, device="cuda")
    buffer[:, :C] = arguments["x"].view(B * T, C)
    x = buffer[:, :C].view(B, T, C).transpose(1, 2)
    pool = torch.stack([arguments["state"]] * 3, 1)[:, 1]
    o = torch.zeros(B, T, C + 128, dtype=torch.bfloat16, device="cuda")[:, :, 64 : 64 + C]
    canopy_gdn.conv1d_tree(**arguments | {"x": x.transpose(1, 2), "state": pool}, o=o)
    assert torch.equal(o, canopy_gdn.conv1d_tree(**arguments))


def malformed() -> None:
    arguments = case(best_first(20, 2), 512)
    expected = canopy_gdn.conv1d_tree(**arguments)
    arguments["parents"][1, 5] = 9
    status = torch.full((2,), 7, dtype=torch.int32, device="cuda")
    got = canopy_gdn.conv1d_tree(**arguments, row_status=status)
    assert status.tolist() == [0, 1] and torch.equal(got[0], expected[0]) and got[1].isnan().all()


def refusals() -> None:
    arguments = case(best_first(10), 512)
    for piece, change in (
        ("weight: expected a tensor on cuda:0, the device of x, got one on cpu", {"weight": arguments["weight"].cpu()}),
        ("cpu_conv", {"implementation": "cpu_conv"}),
        ("does not require grad", {"x": arguments["x"].clone().requires_grad_()}),
    ):
        try:
            canopy_gdn.conv1d_tree(**arguments | change)
        except RuntimeError as error:
            assert piece in str(error), str(error)
        else:
            raise AssertionError(f"not refused: {piece}")


def overhead(ops: Any) -> None:
    """Host time of one layer's call at B = 1, T = 16: the C interface alone, the operator, the function."""
    arguments = case(best_first(16), bias=False) | {"slot_index": None, "count": None}
    plan, o = canopy_gdn.plan(parents=arguments["parents"]), torch.zeros_like(arguments["x"])
    x = arguments.pop("x")
    params = _conv.tree_params(x, arguments | {"plan": plan}, o)
    error, call = _abi.Error(), _abi.library().canopy_conv_verify
    stream = torch.cuda.current_stream().cuda_stream
    positional = [(arguments | {"x": x, "plan": plan, "o": o}).get(n) for n in OUT_ORDER[:7]]
    calls = {
        "C interface": lambda: call(ctypes.byref(params), None, None, 0, stream, ctypes.byref(error)),
        "operator, out variant": lambda: ops._conv_out(*positional, silu=True),
        "canopy_gdn.conv1d_tree, o given": lambda: canopy_gdn.conv1d_tree(x, **arguments, plan=plan, o=o),
        "canopy_gdn.conv1d_tree": lambda: canopy_gdn.conv1d_tree(x, **arguments, plan=plan),
    }
    with torch.inference_mode():
        measured = host_times(calls)
    for name, value in measured.items():
        say(f"       {value:6.2f} us  {name}")
        record(kind="host", what=f"convolution: {name}", us=value)


def times() -> None:
    """One layer's call and the commit of 24 layers, C = 8192, bf16, graph replay, buffers warm."""
    for batch, nodes in ((1, 16), (1, 64), (4, 64), (16, 16), (16, 64)):
        arguments = case(best_first(nodes, batch), layers=24, bias=False)
        plan = plan_of(arguments)
        one = arguments | {"x": arguments["x"][0], "state": arguments["state"][0]}
        leaf = torch.full((batch,), nodes - 1, dtype=torch.int32, device="cuda")
        o, committed = torch.zeros_like(one["x"]), {n: v for n, v in arguments.items() if n not in NOT_OF_COMMIT}
        tree = microseconds(lambda: canopy_gdn.conv1d_tree(**one, plan=plan, o=o))
        commit = microseconds(lambda: canopy_gdn.conv1d_commit(**committed, plan=plan, leaf=leaf))
        say(f"       B={batch} T={nodes}: conv1d_tree {tree:6.2f} us, conv1d_commit of 24 layers {commit:6.2f} us")
        record(kind="convolution", B=batch, T=nodes, tree_us=tree, commit_24_us=commit)

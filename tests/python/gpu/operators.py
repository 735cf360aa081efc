"""The PyTorch operators on CUDA: parity, compilation, graphs, streams, views, refusals, and what a call costs."""

from __future__ import annotations

import ctypes
from typing import Any

import canopy_gdn
import torch
from canopy_gdn import Tree, _abi, _problem
from common import (
    best_first,
    captured,
    case,
    check,
    copies,
    copy_into,
    exact,
    host_times,
    microseconds,
    on_host,
    record,
    relative,
    say,
    within,
)

INPUTS = "parents plan g beta slot_index count a b a_log dt_bias next_token next_sibling".split()
ORDER = ["q", "k", "v", "state", *INPUTS]
COMMIT_ORDER = [
    "k",
    "v",
    "leaf",
    "state",
    "workspace",
    *INPUTS,
    *"dst_slot track_leaf track_slot stash_u stash_l row_status".split(),
]
OUT_ORDER = ["q", "k", "v", "state", "o", "workspace", *INPUTS, "stash_u", "stash_l", "row_status"]


def run() -> None:
    from canopy_gdn import ops

    for raw in (False, True):
        for precision, out, limit in (
            ("fp32", torch.float32, 1e-5),
            ("default", torch.float32, 1e-3),
            ("default", None, 4e-3),
        ):
            name = f"verify {'raw' if raw else 'gates'} {precision} o {out or torch.bfloat16}"
            check(name, lambda: parity(raw, precision, out, limit))
    for method in ("resolve", "stash", "replay"):
        check(f"commit {method}", lambda: commit_parity(method))
    for name in ("plan", "plan_out", "verify", "verify_out", "commit"):
        check(f"opcheck {name}", lambda: opcheck(ops, name))
    check("compiled as one graph", compiled)
    check("compiled with CUDA graphs (reduce-overhead)", lambda: compiled("reduce-overhead"))
    check("CUDA graph replayed with new trees, slots, leaves", graphs)
    check("side stream, no synchronisation", streams)
    check("views of one buffer", views)
    check("refusals", refusals)
    check("malformed tree on the device", malformed)


def cost() -> None:
    """Apart from the rest: nothing else may run meanwhile."""
    from canopy_gdn import ops

    check("cost of a call", lambda: overhead(ops))


def parity(raw: bool, precision: str, out: Any, limit: float) -> str:
    arguments = case([Tree.family("best-first", 60), Tree.family("random", 33, seed=2)], (2, 4), raw=raw)
    o = canopy_gdn.verify(**arguments, precision=precision, out_dtype=out)
    return within(relative(o, exact(arguments)[0]), limit, "relative error")


def commit_parity(method: str) -> str:
    arguments = case([Tree.family("best-first", 60), Tree.family("random", 33, seed=2)], (2, 4))
    leaf = torch.tensor([59, 20], dtype=torch.int32, device="cuda")
    expected = canopy_gdn.oracle_state(**on_host(arguments), leaf=leaf.cpu().numpy()).swapaxes(-1, -2)
    stash = {}
    if method == "stash":
        B, T, HV = arguments["g"].shape
        stash = {"stash_u": torch.zeros(B, T, HV, 128, device="cuda"), "stash_l": torch.zeros(B, T, HV, device="cuda")}
        canopy_gdn.verify(**arguments, **stash)
    canopy_gdn.commit(**{n: v for n, v in arguments.items() if n != "q"}, leaf=leaf, method=method, **stash)
    return within(relative(arguments["state"][arguments["slot_index"].long()], expected), 1e-5, "relative error")


def opcheck(ops: Any, name: str) -> None:
    arguments = case([Tree.family("random", 12, seed=1), Tree.family("chain", 9)], (2, 4))
    get = lambda order: tuple(arguments.get(n) for n in order)
    trees = get(["parents", "next_token", "next_sibling", "count", "slot_index"])
    plan = ops._plan(*trees, slots=3)
    o = torch.zeros(2, 12, 4, 128, dtype=torch.bfloat16, device="cuda")
    if name == "plan":
        torch.library.opcheck(ops._plan, trees, {"slots": 3})
    elif name == "plan_out":
        torch.library.opcheck(ops._plan_out, (*trees, torch.zeros_like(plan)), {"slots": 3})
    elif name == "verify":
        torch.library.opcheck(ops._verify, get(ORDER), {"l2norm": True})
    elif name == "verify_out":
        arguments |= {"o": o, "row_status": torch.zeros(2, dtype=torch.int32, device="cuda")}
        torch.library.opcheck(ops._verify_out, get(OUT_ORDER))
    else:
        arguments["leaf"] = torch.tensor([4, 8], dtype=torch.int32, device="cuda")
        torch.library.opcheck(ops._commit, get(COMMIT_ORDER))


def step(q, k, v, g, beta, state, parents, leaf):
    plan = canopy_gdn.plan(parents=parents)
    o = canopy_gdn.verify(q, k, v, g=g, beta=beta, state=state, parents=parents, plan=plan)
    canopy_gdn.commit(k, v, g=g, beta=beta, state=state, parents=parents, plan=plan, leaf=leaf)
    return o.float() * 2


def step_inputs() -> list[torch.Tensor]:
    arguments = case(best_first(40, 2), (2, 4))
    return [arguments[n] for n in ("q", "k", "v", "g", "beta", "state", "parents")] + [
        torch.tensor([39, 7], dtype=torch.int32, device="cuda")
    ]


def compiled(mode: str | None = None) -> None:
    function = torch.compile(step, fullgraph=True, mode=mode)
    inputs = step_inputs()
    start = inputs[5].clone()
    expected = step(*inputs)
    after = inputs[5].clone()
    for _ in range(3):
        inputs[5].copy_(start)
        got = function(*inputs).clone()
    assert torch.equal(got, expected) and torch.equal(inputs[5], after)


def graphs() -> str:
    """Capture with one batch, replay with others: everything that changes from step to step is read on the device."""
    batches = [
        case([Tree.family("random", 30, seed=s), Tree.family("best-first", 30, seed=s)], (2, 4), seed=s)
        for s in range(4)
    ]
    for batch in batches:
        batch["count"] = torch.randint(5, 31, (2,), dtype=torch.int32, device="cuda")
        batch["leaf"] = batch["count"] - 2
    buffers = copies(batches[0])
    workspace = torch.empty(1 << 24, dtype=torch.uint8, device="cuda")
    o = torch.zeros(2, 30, 4, 128, dtype=torch.bfloat16, device="cuda")
    plan = canopy_gdn.plan(parents=buffers["parents"], count=buffers["count"])

    def whole():
        canopy_gdn.plan(parents=buffers["parents"], count=buffers["count"], out=plan)
        shared = {n: v for n, v in buffers.items() if n not in ("q", "leaf")} | {"plan": plan, "workspace": workspace}
        canopy_gdn.verify(buffers["q"], **shared, o=o)
        canopy_gdn.commit(**shared, leaf=buffers["leaf"])

    whole()
    replay = captured(whole)
    for batch in batches[1:]:
        copy_into(buffers, batch)
        o.zero_()
        replay()
        expected = canopy_gdn.verify(**{n: v for n, v in batch.items() if n != "leaf"})
        canopy_gdn.commit(**{n: v for n, v in batch.items() if n != "q"})
        assert torch.equal(o, expected) and torch.equal(buffers["state"], batch["state"])
    return "3 replays, bitwise"


def streams() -> None:
    arguments = case(best_first(40), (2, 4))
    expected = canopy_gdn.verify(**arguments)
    late = {n: torch.zeros_like(v) if n in "qkv" else v for n, v in arguments.items()}
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(20_000_000)  # about 10 ms: a call on another stream would read zeros
        for name in "qkv":
            late[name].copy_(arguments[name])
        got = canopy_gdn.verify(**late)
    side.synchronize()
    assert torch.equal(got, expected)


def views() -> None:
    arguments = case(best_first(40, 2), (16, 32))
    B, T = arguments["parents"].shape
    buffer = torch.full((B * T, 8192), float("nan"), dtype=torch.bfloat16, device="cuda")
    strided = dict(arguments)
    for name, part in zip("qkv", buffer.split([2048, 2048, 4096], 1)):
        strided[name] = part.view(B, T, -1, 128)
        strided[name].copy_(arguments[name])
    assert torch.equal(canopy_gdn.verify(**strided), canopy_gdn.verify(**arguments))


def refused(piece: str, **arguments: Any) -> None:
    try:
        canopy_gdn.verify(**arguments)
    except RuntimeError as error:
        assert piece in str(error), str(error)
        return
    raise AssertionError(f"not refused: {piece}")


def refusals() -> None:
    arguments = case(best_first(10), (2, 4))
    refused(
        "k: expected a tensor on cuda:0, the device of q, got one on cpu", **arguments | {"k": arguments["k"].cpu()}
    )
    refused("parents.dtype", **arguments | {"parents": arguments["parents"].long()})
    rows = arguments["v"].shape[:3]
    stash = {"stash_u": torch.zeros(*rows, 128, device="cuda"), "stash_l": torch.zeros(*rows, device="cuda")}
    refused("stash_u", **arguments, **stash, precision="half", implementation="cuda_fused")
    refused("cpu_closed_form", **arguments, implementation="cpu_closed_form")
    refused("does not require grad", **arguments | {"v": arguments["v"].clone().requires_grad_()})


def malformed() -> None:
    arguments = case(best_first(20, 2), (2, 4))
    expected = canopy_gdn.verify(**arguments)
    arguments["parents"][1, 5] = 9
    status = torch.full((2,), 7, dtype=torch.int32, device="cuda")
    got = canopy_gdn.verify(**arguments, row_status=status)
    assert status.tolist() == [0, 1] and torch.equal(got[0], expected[0]) and got[1].isnan().all()


def overhead(ops: Any) -> None:
    """Host time of one layer's verify at B = 1, T = 16: the C interface alone, the operator, the function, and a PyTorch call."""
    arguments = case(best_first(16)) | {"slot_index": None, "count": None}
    plan = canopy_gdn.plan(parents=arguments["parents"])
    o = torch.zeros(1, 16, 32, 128, dtype=torch.bfloat16, device="cuda")
    workspace = torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
    params = _problem.verify_params(*(arguments[n] for n in "qkv"), {**arguments, "plan": plan}, o)
    error, call = _abi.Error(), _abi.library().canopy_verify
    stream = torch.cuda.current_stream().cuda_stream
    positional = [(arguments | {"plan": plan, "o": o, "workspace": workspace})[n] for n in OUT_ORDER[:10]]
    calls = {
        "C interface": lambda: call(
            ctypes.byref(params), None, workspace.data_ptr(), 1 << 20, stream, ctypes.byref(error)
        ),
        "operator, out variant": lambda: ops._verify_out(*positional, l2norm=True),
        "canopy_gdn.verify, o and workspace given": lambda: canopy_gdn.verify(
            **arguments, plan=plan, o=o, workspace=workspace
        ),
        "canopy_gdn.verify": lambda: canopy_gdn.verify(**arguments, plan=plan),
        "torch.add, out given": lambda: torch.add(o, o, out=o),
    }
    with torch.inference_mode():
        measured = host_times(calls)
    for name, value in measured.items():
        say(f"       {value:6.2f} us  {name}")
        record(kind="host", what=name, us=value)
    gpu = microseconds(lambda: canopy_gdn.verify(**arguments, plan=plan, o=o, workspace=workspace))
    say(f"       {gpu:6.2f} us  on the GPU, graph replay")
    record(kind="host", what="on the GPU, graph replay", us=gpu)

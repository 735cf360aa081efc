"""Answers the requests of bench/runner.py for what PyTorch calls: Triton's kernels and peers, beside canopy's own through its operators.

All contenders of a request take the same inputs (raw gates, L2 norm inside, as models call the layer) and are timed in turn in one process:
CUDA events around replays of CUDA graphs, warm (the same buffers) and cold (copies that go round over twice the L2), in rounds that a contender
leaves with its number of replays or its share of time, as in src/host/replays.hpp. The plan of the trees is made before. A contender that
fails is left out and named on standard error. The error is of o in f32, which a call of its own writes, untimed, where the contender can
(canopy's and Triton's), and of o as timed beside it; FLA and SGLang write o in the type of q alone. FLA gets its gates and the keys of every value head ready made, which favours it; it takes chains only.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # errors only, on the CPU

import canopy_gdn
import canopy_gdn.triton as ct
import numpy as np
from canopy_gdn import Tree
from contenders import Contender, same_as_default, torch_contenders
from records import ROOT, four_digits, quantile

LAUNCHES, MOST_COPIES, ROUNDS_AT_ONCE = 40, 80, 5
LIMITS = {"fp32": 1e-5, "precise": 2e-5, "fast": 1e-2, "default": 1e-3}  # of o before it is rounded, docs/math.md
ROUNDING = {"f32": 0.0, "bf16": 2.0**-8, "f16": 2.0**-11}
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
Call = Callable[[], torch.Tensor]  # a launch; returns o [B, T, HV, V]


def trees_of(request: dict[str, Any]) -> list[Tree]:
    if "trees" in request:
        given = [Tree.from_parents(parents) for parents in request["trees"]]
        return [given[row % len(given)] for row in range(request["B"])]
    return [Tree.family(request["family"], request["T"], top_k=request["top_k"], depth=request["depth"], seed=request["seed"] + row)
            for row in range(request["B"])]  # fmt: skip


def problem(request: dict[str, Any], trees: list[Tree], seed: int) -> dict[str, Any]:
    """Arguments of canopy_gdn.verify on the request's device; natural inputs."""
    device = request["device"]
    generator = torch.Generator(device).manual_seed(seed)
    normal = lambda *shape: torch.randn(*shape, device=device, generator=generator)
    B, T, H, HV, K, V = (request[name] for name in ("B", "T", "H", "HV", "K", "V"))
    dtype, state = DTYPES[request["input"]], DTYPES[request["state"]]
    parents, count = (torch.from_numpy(array).to(device) for array in canopy_gdn.batch(trees))
    return {"q": normal(B, T, H, K).to(dtype), "k": normal(B, T, H, K).to(dtype), "v": normal(B, T, HV, V).to(dtype),
            "a": normal(B, T, HV).to(dtype), "b": normal(B, T, HV).to(dtype), "a_log": normal(HV), "dt_bias": normal(HV),
            "state": normal(B, HV, V, K).to(state), "parents": parents, "count": count, "l2norm": True}  # fmt: skip


def sequences(batch: int, most: int) -> list[int]:
    """All, or so many, evenly from the first to the last (cli/parity.cpp)."""
    if batch <= most:
        return list(range(batch))
    return [i * (batch - 1) // (most - 1) for i in range(most)] if most > 1 else [0]


def exact(arguments: dict[str, Any], rows: list[int]) -> np.ndarray:
    """o of the fp64 oracle for these sequences."""
    def on_host(name: str, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        value = value if name in ("a_log", "dt_bias") else value[rows]
        return (value.float() if value.is_floating_point() else value).cpu().numpy()

    return canopy_gdn.oracle(**{name: on_host(name, value) for name, value in arguments.items()})[0]


def canopy_call(arguments: dict[str, Any], max_depth: int, output: torch.dtype | None) -> Call:
    arguments = arguments | {"max_depth": max_depth}
    o = torch.zeros_like(arguments["v"], dtype=output)
    plan = canopy_gdn.plan(parents=arguments["parents"], count=arguments["count"])
    size = canopy_gdn.verify_workspace(**arguments, plan=plan, o=o)
    workspace = torch.empty(max(size, 64), dtype=torch.uint8, device=o.device)
    return lambda: canopy_gdn.verify(**arguments, plan=plan, o=o, workspace=workspace)


def triton_call(contender: Contender, arguments: dict[str, Any], output: torch.dtype | None) -> Call:
    strategy, precision = contender.name.removeprefix("triton_").split()
    rest = {name: value for name, value in arguments.items() if name not in ("parents", "count")}
    plan = ct.plan(arguments["parents"], arguments["count"])
    o = torch.zeros_like(arguments["v"], dtype=output)
    _, stash = ct.verify(**rest, plan=plan, strategy=strategy, precision=precision, o=o)
    return lambda: ct.verify(**rest, plan=plan, strategy=strategy, precision=precision, o=o, stash=stash)[0]


def fla_call(contender: Contender, arguments: dict[str, Any]) -> Call:
    import fla.ops.gated_delta_rule as rule

    name = {"fla_recurrent": "fused_recurrent_gated_delta_rule", "fla_chunk": "chunk_gated_delta_rule"}[contender.name]
    q, k, v, state = (arguments[name] for name in ("q", "k", "v", "state"))
    repeat = v.shape[2] // k.shape[2]
    q, k = (tensor.repeat_interleave(repeat, 2) for tensor in (q, k))
    g = -arguments["a_log"].exp() * torch.nn.functional.softplus(arguments["a"].float() + arguments["dt_bias"])
    beta, initial = arguments["b"].float().sigmoid(), state.float().swapaxes(-1, -2).contiguous()

    def call() -> torch.Tensor:
        with torch.no_grad():
            return getattr(rule, name)(q, k, v, g=g, beta=beta, initial_state=initial, output_final_state=False,
                                       use_qk_l2norm_in_kernel=True)[0]  # fmt: skip

    return call


def sglang_call(arguments: dict[str, Any]) -> Call:
    sys.path.insert(0, str(ROOT / "tests/python/gpu"))
    import peers  # SGLang's kernels one by one from an unpacked wheel

    recur = peers.load(os.environ["CANOPY_SGLANG"]).fused_sigmoid_gating_recurrent.fused_sigmoid_gating_delta_rule_update
    (B, T, _, K), (HV, V) = arguments["q"].shape, arguments["v"].shape[2:]
    device, rows = arguments["q"].device, torch.arange(B, dtype=torch.int32, device=arguments["q"].device)
    snapshots = torch.zeros(B, T, HV, V, K, device=device)
    starts = torch.arange(0, B * T + 1, T, dtype=torch.int32, device=device)
    parent = arguments["parents"].long().clamp(min=0)
    q, k, v = (arguments[name].view(1, B * T, *arguments[name].shape[2:]) for name in ("q", "k", "v"))
    a, b = (arguments[name].view(B * T, HV) for name in ("a", "b"))
    return lambda: recur(
        A_log=arguments["a_log"], dt_bias=arguments["dt_bias"], q=q, k=k, v=v, a=a, b=b, initial_state_source=arguments["state"],
        initial_state_indices=rows, cu_seqlens=starts, use_qk_l2norm_in_kernel=True, softplus_beta=1.0, softplus_threshold=20.0,
        is_kda=False, disable_state_update=True, intermediate_states_buffer=snapshots, intermediate_state_indices=rows,
        cache_steps=T, retrieve_parent_token=parent).view(B, T, HV, V)  # fmt: skip


def make(contender: Contender, arguments: dict[str, Any], max_depth: int, output: torch.dtype | None = None) -> Call:
    """`output`: the type of o, of those that write more than one; absent: that of v."""
    if contender.name.startswith("triton_"):
        return triton_call(contender, arguments, output)
    if contender.name.startswith("fla_"):
        return fla_call(contender, arguments)
    return sglang_call(arguments) if contender.name.startswith("sglang_") else canopy_call(arguments, max_depth, output)


def writes_f32(contender: Contender) -> bool:
    return contender.name.startswith(("triton_", "dispatched"))


@contextlib.contextmanager
def as_tuned() -> Iterator[None]:
    """Triton's tuned kernels run in the configuration that they ran in last: another type of o is another kernel to Triton, which would
    tune it anew, at the cost of compiling every configuration."""
    from triton.runtime.autotuner import Autotuner

    every = Autotuner.prune_configs

    def last(self: Any, kwargs: dict[str, Any]) -> list[Any]:
        best = getattr(self, "best_config", None)
        return [best] if best is not None else every(self, kwargs)

    Autotuner.prune_configs = last
    try:
        yield
    finally:
        Autotuner.prune_configs = every


def graph_of(calls: list[Call]) -> Any:
    """A CUDA graph of these calls, one after the other."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for call in dict.fromkeys(calls):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return graph


def timed(graph: Any) -> tuple[Any, Any]:
    """Events around a replay."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    graph.replay()
    end.record()
    return start, end


def capture(copies: list[Call], seconds: float) -> tuple[Any, int]:
    """A graph that goes over the copies in turn, whole times, for about so long; and its launches."""
    calls = copies if len(copies) > 1 else copies * 8
    graph = graph_of(calls)
    graph.replay()
    start, end = timed(graph)
    end.synchronize()
    turns = round(min(seconds / (start.elapsed_time(end) * 1e-3), LAUNCHES / len(calls)))
    return (graph_of(calls * turns), len(calls) * turns) if turns > 1 else (graph, len(calls))


def times(calls: dict[str, list[Call]], request: dict[str, Any]) -> dict[str, list[float]]:
    """Microseconds of a launch, a value a replay; the contenders in turn, several rounds at once, so that the GPU never waits for Python."""
    graphs = {name: capture(copies, request["replay_seconds"]) for name, copies in calls.items()}
    all_replays: dict[str, list[float]] = {name: [] for name in calls}  # milliseconds
    warm_ups = request["warm_ups"]

    def goes_on(name: str) -> bool:
        kept, spent = len(all_replays[name]) - warm_ups, sum(all_replays[name]) * 1e-3
        return kept < request["repeat"] and (kept < request["least"] or spent < request["share"])

    while present := [name for name in calls if goes_on(name)]:
        graphs[present[-1]][0].replay()  # not timed: while it runs, Python gets ahead
        events = [(name, *timed(graphs[name][0])) for _ in range(ROUNDS_AT_ONCE) for name in present]
        events[-1][2].synchronize()
        for name, start, end in events:
            all_replays[name].append(start.elapsed_time(end))
    return {name: [ms * 1000 / graphs[name][1] for ms in taken[warm_ups : warm_ups + request["repeat"]]] for name, taken in all_replays.items()}


def check(contender: Contender, o: torch.Tensor, expected: np.ndarray, rows: list[int]) -> dict[str, Any]:
    """Error of o over the live rows of the sequences that the oracle ran, and whether it is within the precision's tolerance and the
    rounding of its type."""
    written = next(name for name, dtype in DTYPES.items() if dtype == o.dtype)
    difference = o[rows].double().cpu().numpy() - expected
    off = float(np.linalg.norm(difference) / np.linalg.norm(expected))
    if not np.isfinite(off):
        return {"relative": None, "max_abs": None, "passed": False, "error_of": f"o in {written}"}
    precision = contender.name.partition(" ")[2] or "default"
    allowed = (LIMITS["fp32"] if contender.serial and contender.name.startswith("triton_") else LIMITS[precision]) + ROUNDING[written]
    return {"relative": four_digits(off), "max_abs": four_digits(float(np.abs(difference).max())), "passed": off <= allowed,
            "error_of": f"o in {written}"}  # fmt: skip


def errors(contender: Contender, own: Call, in_f32: Callable[[], Call], expected: np.ndarray, rows: list[int]) -> dict[str, Any]:
    """The error of o in f32 where the contender can write it, and of o as timed beside it; else the latter alone, which says so."""
    timed = check(contender, own(), expected, rows)
    if timed["error_of"] == "o in f32" or not writes_f32(contender):
        return timed
    try:
        with as_tuned():
            found = check(contender, in_f32()(), expected, rows)
    except Exception as why:  # noqa: BLE001, what is timed works
        print(f"{contender.name} does not write o in f32: {type(why).__name__}: {str(why).strip()[:300]}", file=sys.stderr, flush=True)
        return timed
    return found | {"passed": found["passed"] and timed["passed"], "relative_timed": timed["relative"]}


def base_record(contender: Contender, request: dict[str, Any], depth: int) -> dict[str, Any]:
    precision = contender.name.partition(" ")[2] or "default"
    record = {"type": "cell", "schema": 1, "contender": contender.name, "strategy": contender.strategy, "device": request["device"],
              "precision": precision}  # fmt: skip
    if precision == "default":
        record["same_as"] = same_as_default(contender.name)
    record |= {name: request[name] for name in ("B", "T")} | {"depth": depth, "family": request.get("name", request["family"])}
    return record | {name: request[name] for name in ("seed", "H", "HV", "K", "V", "input", "state")}


def bytes_of(arguments: dict[str, Any]) -> float:
    """Inputs, state and outputs, each once."""
    tensors = [value for value in arguments.values() if isinstance(value, torch.Tensor)] + [arguments["v"]]
    return float(sum(tensor.numel() * tensor.element_size() for tensor in tensors))


def another(arguments: dict[str, Any]) -> dict[str, Any]:
    """The same problem in other memory."""
    return {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in arguments.items()}


def left_out(name: str, why: Exception) -> None:
    print(f"{name} is left out: {type(why).__name__}: {str(why).strip()[:300]}", file=sys.stderr, flush=True)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def answer(request: dict[str, Any]) -> list[dict[str, Any]]:
    trees = trees_of(request)
    arguments = problem(request, trees, request["seed"])
    with_times = request.get("measure", "time") == "time"
    if with_times and request["device"] == "cpu":
        raise ValueError("measure time: expected device cuda; on a CPU Triton's kernels are interpreted, only measure accuracy means something")
    rows = sequences(request["B"], request.get("checked", request["B"]))
    expected = exact(arguments, rows)
    wanted = [c for c in torch_contenders() if not c.chains_only or all(tree.depth == len(tree) - 1 for tree in trees)]
    sets = [arguments]
    if request["device"] == "cuda":
        copies = min(MOST_COPIES, int(2 * torch.cuda.get_device_properties(0).L2_cache_size / bytes_of(arguments)) + 1)
        sets += [another(arguments) for _ in range(copies - 1)]
    found, calls = {}, {}
    depth = max(tree.depth for tree in trees)
    for contender in wanted:
        try:
            own = [make(contender, one, depth) for one in sets]
            checked = errors(contender, own[0], lambda: make(contender, arguments, depth, torch.float32), expected, rows)  # noqa: B023, at once
        except Exception as why:  # noqa: BLE001, the others are measured all the same
            left_out(contender.name, why)
            continue
        found[contender.name] = base_record(contender, request, depth) | checked
        if len(rows) < request["B"]:
            found[contender.name]["checked_sequences"] = len(rows)
        calls[contender.name] = own
    if not found:
        raise RuntimeError("every contender failed")
    if not with_times:
        return [record | {"type": "accuracy"} for record in found.values()]
    out = []
    for cache in request["caches"]:
        seconds = times({name: own if cache == "cold" else own[:1] for name, own in calls.items()}, request)
        for name, record in found.items():
            median, p10, p90 = (four_digits(quantile(seconds[name], q)) for q in (0.5, 0.1, 0.9))
            out.append(record | {"cache": cache, "n": len(seconds[name]), "median_us": median, "p10_us": p10, "p90_us": p90,
                                 "bytes": bytes_of(arguments)})  # fmt: skip
    return out


def main() -> None:
    for line in sys.stdin:
        try:
            for record in answer(json.loads(line)):
                print(json.dumps(record))
            print('{"type": "done"}', flush=True)
        except Exception as error:  # noqa: BLE001, the asker says what failed and goes on
            print(json.dumps({"type": "failed", "message": f"{type(error).__name__}: {str(error)[:300]}"}), flush=True)


if __name__ == "__main__":
    main()

"""What the checks on a GPU share: cases, errors, clocks, and a report that goes on after a failure and ends in a table."""

from __future__ import annotations

import contextlib
import json
import pathlib
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import canopy_gdn
import numpy as np
import torch
from canopy_gdn import Tree

started = time.monotonic()
kept: pathlib.Path | None = None  # where record() writes, a line each


@dataclass
class Section:
    name: str
    passed: int = 0
    failed: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)  # what was not run, and why
    seconds: float = 0


sections: list[Section] = [Section("before")]  # the last one is the current one


@contextlib.contextmanager
def section(name: str) -> Iterator[None]:
    """What check() and not_run() are told meanwhile counts here; a section of the same name goes on."""
    known = next((s for s in sections if s.name == name), Section(name))
    with contextlib.suppress(ValueError):
        sections.remove(known)
    sections.append(known)
    start = time.monotonic()
    try:
        yield
    finally:
        known.seconds += time.monotonic() - start


def not_run(what: str, why: str) -> None:
    sections[-1].absent.append(f"{what}: {why}")
    say(f"not run {what}: {why}")


def verdict() -> int:
    """Prints the table; 1 when a check failed or none passed."""
    ran = [s for s in sections if s.passed or s.failed or s.absent]
    print(f"\n{'section':14}{'passed':>8}{'failed':>8}{'not run':>9}{'s':>8}")
    for s in ran:
        print(f"{s.name:14}{s.passed:8}{len(s.failed):8}{len(s.absent):9}{s.seconds:8.1f}")
    passed, failed = sum(s.passed for s in ran), sum(len(s.failed) for s in ran)
    print(f"{'all':14}{passed:8}{failed:8}{sum(len(s.absent) for s in ran):9}{time.monotonic() - started:8.1f}")
    for s in ran:
        for title, names in (("FAILED", s.failed), ("not run", s.absent)):
            for name in names:
                print(f"{title:8}{s.name}: {name}")
    print(f"{passed} passed, {failed} failed", flush=True)
    return int(failed > 0 or passed == 0)


def say(*words: Any) -> None:
    print(f"[{time.monotonic() - started:5.1f} s]", *words, flush=True)


def check(name: str, run: Callable[[], Any]) -> Any:
    """Runs a check; a failure is a line, its traceback goes to standard error, and the rest goes on."""
    try:
        value = run()
    except Exception as error:  # noqa: BLE001, whatever breaks is a result
        sections[-1].failed.append(name)
        failure(name, error)
        return None
    sections[-1].passed += 1
    say(f"ok     {name}" + (f": {value}" if value is not None else ""))
    return value


def failure(name: str, error: Exception) -> None:
    first = str(error).strip().partition("\n")[0]
    say(f"FAILED {name}: {type(error).__name__}: {first[:300]}")
    print(f"---- {name}\n{''.join(traceback.format_exception(error))}", file=sys.stderr, flush=True)


def record(**values: Any) -> None:
    """Kept at once: what was measured outlives whatever comes after it."""
    if kept is not None:
        with kept.open("a") as file:
            file.write(json.dumps(values) + "\n")


def keep(path: str | None) -> None:
    """Where record() writes from now on, an empty file."""
    global kept
    kept = pathlib.Path(path) if path else None
    if kept is not None:
        kept.write_text("")


def case(trees: list[Tree], heads: tuple[int, int] = (16, 32), dtype: torch.dtype = torch.bfloat16, seed: int = 0, raw: bool = False,
         similar: bool = False) -> dict[str, Any]:  # fmt: skip
    """Arguments of canopy_gdn.verify on the GPU: K = V = 128, fp32 pool with a slot more than sequences, slots shuffled."""
    generator = torch.Generator("cuda").manual_seed(seed)
    normal = lambda *shape: torch.randn(*shape, device="cuda", generator=generator)
    parents, count = (torch.from_numpy(t).cuda() for t in canopy_gdn.batch(trees))
    B, T = parents.shape
    H, HV = heads
    k = normal(B, T, H, 128)
    if similar:
        k = normal(1, 1, H, 128) + 0.1 * k
    arguments = {"q": normal(B, T, H, 128).to(dtype), "k": torch.nn.functional.normalize(k, dim=-1).to(dtype),
                 "v": normal(B, T, HV, 128).to(dtype), "state": normal(B + 1, HV, 128, 128), "parents": parents, "count": count,
                 "slot_index": torch.randperm(B + 1, generator=torch.Generator().manual_seed(seed))[:B].int().cuda()}  # fmt: skip
    if raw:
        return arguments | {"a": normal(B, T, HV).to(dtype), "b": normal(B, T, HV).to(dtype), "a_log": normal(HV), "dt_bias": normal(HV),
                            "l2norm": True}  # fmt: skip
    beta = torch.rand(B, T, HV, device="cuda", generator=generator)
    return arguments | {
        "l2norm": True,  # as models call it, and one form to compile
        "g": -0.1 * normal(B, T, HV).abs(),
        "beta": 0.95 + 0.05 * beta if similar else beta,
    }


def exact(arguments: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """o, U and l of the fp64 oracle on the same values."""
    return canopy_gdn.oracle(**on_host(arguments))


def on_host(arguments: dict[str, Any]) -> dict[str, Any]:
    def one(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return (value.float() if value.is_floating_point() else value).cpu().numpy()

    return {name: one(value) for name, value in arguments.items()}


def relative(got: Any, expected: np.ndarray) -> float:
    got = got.double().cpu().numpy() if isinstance(got, torch.Tensor) else np.asarray(got, np.float64)
    return float(np.linalg.norm(got - expected) / np.linalg.norm(expected))


def within(error: float, limit: float, what: str = "") -> str:
    assert error < limit, f"{what} {error:.2e}, allowed {limit:.0e}"  # NaN fails
    return f"{what} {error:.1e}"


def microseconds(run: Callable[[], Any], calls: int = 10, replays: int = 40) -> float:
    """Median time of a call in a CUDA graph of `calls` of them, buffers warm."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            run()
    times = []
    for _ in range(replays):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1000 / calls)
    return sorted(times)[len(times) // 2]


def host_times(calls: dict[str, Callable[[], Any]], repeat: int = 300) -> dict[str, float]:
    """Microseconds of host time a call, the queue never full: the least of 12 rounds in which every call has its turn, so that a
    processor that slows down or speeds up does so for all."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(12):
        for name, call in calls.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(repeat):
                call()
            best[name] = min(best[name], (time.perf_counter() - start) / repeat * 1e6)
            torch.cuda.synchronize()
    return best


def captured(call: Callable[[], None], allocates: bool = False) -> Callable[[], None]:
    """The call as a CUDA graph, to be replayed. It must have run before, and allocate nothing unless it is said to."""
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    with torch.cuda.graph(graph):
        call()
    assert allocates or torch.cuda.memory_allocated() == before, "the captured round allocates"
    return graph.replay


def copies(arguments: dict[str, Any]) -> dict[str, Any]:
    """The same arguments with tensors of their own."""
    return {n: v.clone() if isinstance(v, torch.Tensor) else v for n, v in arguments.items()}


def copy_into(buffers: dict[str, Any], arguments: dict[str, Any]) -> None:
    for name, value in arguments.items():
        if isinstance(value, torch.Tensor):
            buffers[name].copy_(value)


def best_first(nodes: int, batch: int = 1) -> list[Tree]:
    return [Tree.family("best-first", nodes, seed=seed) for seed in range(batch)]

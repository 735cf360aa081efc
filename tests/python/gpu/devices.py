"""Several GPUs in one process: every operator on the second while the first is current. Skipped, and said, with one GPU."""

from __future__ import annotations

from typing import Any

import canopy_gdn
import convolution
import torch
from common import best_first, case, check, not_run


def run() -> None:
    if torch.cuda.device_count() < 2:
        not_run("several devices", f"{torch.cuda.device_count()} GPU here")
        return
    check("a round on the second GPU while the first is current", lambda: second(None))
    check("a round on a side stream of the second GPU", lambda: second(torch.cuda.Stream(1)))
    check("both GPUs in turn", in_turn)
    check("tensors of two GPUs are refused", mixed)


def moved(arguments: dict[str, Any], device: str) -> dict[str, Any]:
    return {n: v.to(device) if isinstance(v, torch.Tensor) else v for n, v in arguments.items()}


def inputs() -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments of verify and of conv1d_tree on cuda:0."""
    return case(best_first(40, 2), (2, 4)), convolution.case(best_first(40, 2), 1024)


def whole_round(layer: dict[str, Any], conv: dict[str, Any]) -> list[torch.Tensor]:
    """What every operator gives: plan, convolution, verify, both commits, with workspaces of their own."""
    parents, count = layer["parents"], layer["count"]
    layer, conv = layer | {"state": layer["state"].clone()}, conv | {"state": conv["state"].clone()}
    leaf = torch.tensor([39, 7], dtype=torch.int32, device=parents.device)
    plan = canopy_gdn.plan(parents=parents, count=count)
    found = [plan, canopy_gdn.plan(parents=parents, count=count, out=torch.zeros_like(plan))]
    found += [canopy_gdn.conv1d_tree(**conv), canopy_gdn.conv1d_tree(**conv, plan=plan, o=torch.zeros_like(conv["x"]))]
    found += [canopy_gdn.verify(**layer), canopy_gdn.verify(**layer, plan=plan, o=torch.zeros_like(layer["v"]))]
    canopy_gdn.commit(**{n: v for n, v in layer.items() if n != "q"}, leaf=leaf)
    canopy_gdn.conv1d_commit(**{n: v for n, v in conv.items() if n not in convolution.NOT_OF_COMMIT}, leaf=leaf)
    return [*found, layer["state"], conv["state"]]


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> None:
    for index, (a, b) in enumerate(zip(one, other, strict=True)):
        assert torch.equal(a.cpu(), b.cpu()), f"result {index}"


def second(stream: torch.cuda.Stream | None) -> str:
    layer, conv = inputs()
    expected = whole_round(layer, conv)
    on_second = moved(layer, "cuda:1"), moved(conv, "cuda:1")
    torch.cuda.synchronize(1)
    if stream is None:
        got = whole_round(*on_second)
    else:
        late = on_second[1]["x"].clone()
        on_second[1]["x"].zero_()
        torch.cuda.synchronize(1)
        with torch.cuda.stream(stream), torch.cuda.device(0):  # the stream of cuda:1, cuda:0 current
            with torch.cuda.device(1):
                torch.cuda._sleep(20_000_000)  # a call on another stream would read zeros
            on_second[1]["x"].copy_(late)
            got = whole_round(*on_second)
        stream.synchronize()
    assert torch.cuda.current_device() == 0, "the caller's device is as it was"
    assert all(tensor.device.index == 1 for tensor in got)
    same(got, expected)
    return f"{len(got)} results bitwise"


def in_turn() -> None:
    layer, conv = inputs()
    there = moved(layer, "cuda:1"), moved(conv, "cuda:1")
    results = [whole_round(*(there if turn % 2 else (layer, conv))) for turn in range(4)]
    for other in results[1:]:
        same(other, results[0])


def mixed() -> None:
    layer, conv = inputs()
    for call, arguments, name, model in (
        (canopy_gdn.verify, layer, "state", "q"),
        (canopy_gdn.conv1d_tree, conv, "weight", "x"),
    ):
        try:
            call(**arguments | {name: arguments[name].to("cuda:1")})
        except RuntimeError as error:
            expected = f"{name}: expected a tensor on cuda:0, the device of {model}, got one on cuda:1"
            assert expected in str(error), str(error)
        else:
            raise AssertionError(f"{name} on another GPU was not refused")

"""A real, small sweep of the CPU implementations: the program, the records, the schema, and nothing asked twice."""

import command
import contenders
import env
import memory
import numerics
import pytest
import records
import rounds
import runner
import schema
import shapes
import sweep
from cells import cell

SMALL = {"H": 2, "HV": 4, "K": 32, "V": 32, "repeat": 3, "most_seconds": 5.0}


def small(requests):
    return [request | SMALL for request in requests]


@pytest.fixture
def chosen(program, tmp_path):
    return command.parse(command.options(""), ["--program", program, "--device", "cpu", "--quick", "--out", str(tmp_path)])


def test_every_shape_of_the_quick_sweep(chosen, tmp_path, monkeypatch):
    """Small heads: every family, the published trees and the grid; errors within tolerance; a second run asks nothing."""
    trees = shapes.published_trees(chosen.program)
    requests = small(shapes.sweep("cpu", trees, quick=True))
    requests += small([{**request, **shapes.EFFORT["cpu"]} for request in [*shapes.grid("cpu", 1), *shapes.specla("cpu", 1)]])
    requests += small([shapes.of_family("cpu", label, 24, 2, **shapes.EFFORT["cpu"]) for label, *_ in shapes.FAMILIES])
    assert command.measure(chosen, "sweep", requests) == []
    path = tmp_path / "sweep.jsonl"
    held = records.read(path)
    assert schema.check_lines(path.read_text().splitlines(), str(path)) == len(held) == 1 + 3 * len(requests)
    assert all(cell["passed"] and cell["n"] == 3 and cell["error_of"] == "o in f32" for cell in held[1:])
    assert {cell["contender"] for cell in held[1:]} == {"cpu_closed_form", "cpu_serial_resident", "cpu_serial_snapshot"}
    published = {cell["family"] for cell in held[1:]}
    assert {name for name, _ in trees} <= published and "specla-2 depth 12" in published
    monkeypatch.setattr(runner.Program, "ask", lambda self, request: pytest.fail("asked") if request.get("measure") != "environment" else [held[0]])
    assert command.measure(chosen, "sweep", requests) == []
    assert records.read(path) == held


@pytest.mark.parametrize("part, kind", [(memory, "memory"), (numerics, "accuracy"), (rounds, "rounds")])
def test_the_other_measurements(chosen, tmp_path, monkeypatch, part, kind):
    requests = [request | {"H": 1, "HV": 2, "K": 16, "V": 16} | ({"rounds": 3} if kind == "rounds" else {}) for request in part.requests("cpu", True)]
    failures = command.measure(chosen, kind, requests)
    if kind == "memory" and failures and all("clear_refs" in failure for failure in failures):
        pytest.skip("this system does not let a process reset its peak memory; the program said so")
    assert failures == []
    path = tmp_path / f"{kind}.jsonl"
    held = records.read(path)
    assert schema.check_lines(path.read_text().splitlines(), str(path)) == len(held) > 1
    assert {record["type"] for record in held[1:]} == {kind}
    known = {runner.answered(record) for record in held[1:]}
    assert all(known.issuperset(runner.asked(request)) for request in requests)  # so that resuming asks none of them again
    if kind == "accuracy":
        assert all(record["passed"] for record in held[1:])
    if kind == "rounds":
        assert all(record["state_error"][-1] < (1e-5 if record["state"] == "f32" else 1e-2) for record in held[1:])
    if kind == "memory":
        peak = {(record["way"], record["layers"]): record["peak_bytes"] for record in held[1:]}
        assert peak["snapshots", 24] > 10 * peak["resolve", 24]


def test_who_stays_in_the_running(gpu_environment):
    """Near the best on one of the cells is enough; what only a caller who names it gets, what was wrong and other precisions are not asked."""

    def at(name, time, **more):
        return cell(name, time, gpu_environment, **more)

    cells = [at("cuda_fused", 10.0), at("cuda_serial_resident", 90.0), at("cuda_serial_snapshot", 200.0), at("cuda_dense", 12.0), at("cuda_split", 10.9),
             at("cuda_neumann", 9.9, named_only=True), at("cuda_squaring", 9.9, passed=False), at("cuda_fused fast", 1.0, precision="fast"),
             at("cuda_commit_stash", 9.0, T=64, family="commit, 24 layers"), at("floor", 2.0), at("triton_fused precise", 5.0), at("cuda_dense", 30.0, T=64), at("cuda_fused", 20.0, T=64), at("cuda_hybrid", 21.0, T=64)]  # fmt: skip
    assert contenders.contending(cells) == ["cuda_fused", "cuda_hybrid", "cuda_serial_resident", "cuda_serial_snapshot", "cuda_split"]
    stored = [at(name, time, stash=True) for name, time in (("cuda_fused", 40.0), ("cuda_serial_resident", 10.0), ("cuda_dense", 10.5), ("cuda_split", 30.0))]
    assert contenders.contending(cells + stored) == contenders.contending(cells), "cells with a stash say nothing of others"
    assert contenders.contending(cells + stored, stash=True) == ["cuda_dense", "cuda_fused", "cuda_serial_resident"]
    assert contenders.contending([]) == []


def test_the_last_sequence_is_looked_at_too(program):
    """Of three: two are the ends, so what they and the middle one are off together is what all three are."""
    own = command.serve(program)
    request = shapes.of_family("cpu", "random", 30, 3, measure="accuracy", contenders="cpu_closed_form", H=1, HV=2, K=32, V=32)
    found = {checked: own.ask(request | {"checked": checked})[0] for checked in (1, 2, 3)}
    own.close()
    assert found[1]["checked_sequences"] == 1 and found[2]["checked_sequences"] == 2 and "checked_sequences" not in found[3]
    assert len({record["relative"] for record in found.values()}) == 3
    assert found[1]["max_abs"] <= found[2]["max_abs"] <= found[3]["max_abs"] and all(record["passed"] for record in found.values())


def test_bad_requests_are_answered_with_what_was_expected(program):
    own = command.serve(program)
    wrong = [({"colour": 1}, "no such field"), ({"measure": "luck"}, "expected time, accuracy"), ({"keys": "odd"}, "expected one of random"),
             ({"family": "palm"}, "palm"), ({"trees": [[0]]}, "trees"), ({"threads": 0}, "expected 1 or more"),
             ({"share": 0}, "share: expected more than 0"), ({"stash": True}, "stash: expected with device cuda and measure time or accuracy, got device cpu"),
             ({"measure": "conv"}, "measure conv: expected device cuda, got cpu"), ({"stash": 1}, "stash: expected true or false, got 1"), ({"contenders": "cpu_closed_form,palm"}, "palm")]  # fmt: skip
    if command.default_device(program) == "cpu":
        wrong.append(({"device": "cuda"}, "device cuda"))
    for request, message in wrong:
        with pytest.raises(runner.Failed, match=message):
            own.ask(request)
    assert env.environment(own, "cpu")["type"] == "environment"  # and it goes on
    own.close()


def test_the_command_itself(program, tmp_path):
    """python3 bench/sweep.py of one family, twice."""
    arguments = ["--program", program, "--device", "cpu", "--quick", "--only", "vllm-token-tree 1", "--out", str(tmp_path)]
    assert sweep.main(arguments) == 0
    before = (tmp_path / "sweep.jsonl").read_text()
    assert sweep.main(arguments) == 0 and (tmp_path / "sweep.jsonl").read_text() == before

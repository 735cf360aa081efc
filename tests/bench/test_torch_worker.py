"""The PyTorch worker: its protocol and its errors, on the CPU under Triton's interpreter. Times need a GPU."""

import sys
from pathlib import Path

import pytest
import runner
import schema
import shapes

for package in ("torch", "triton", "canopy_gdn"):
    pytest.importorskip(package)
WORKER = [sys.executable, str(Path(runner.__file__).with_name("torch_worker.py"))]
SMALL = {"H": 1, "HV": 2, "K": 16, "V": 16, "input": "f32"}


@pytest.fixture(scope="module")
def worker():
    program = runner.Program(WORKER, patience=120)
    yield program
    program.close()


def test_every_contender_is_within_tolerance(worker):
    import torch

    if torch.cuda.is_available():
        pytest.skip("the CPU's part")
    request = shapes.of_family("cpu", "best-first-4", 20, 2, measure="accuracy", checked=1, **SMALL)
    found = worker.ask(request)
    assert {record["contender"] for record in found} >= {"dispatched", "triton_fused precise", "triton_squaring precise", "triton_resident fp32"}
    checker = schema.validator()
    for record in found:
        checker.validate(record | {"commit": "0123456789ab", "environment": "01234567"})
        assert record["passed"] and record["checked_sequences"] == 1, record
        assert runner.answered(record) in runner.asked(request)


def test_errors_before_rounding_and_after_it(worker):
    """bf16 inputs: o in f32 by a call of its own, within the precision's tolerance alone, over the first and the last sequence."""
    request = shapes.of_family("cpu", "best-first-4", 5, 3, measure="accuracy", checked=2, **SMALL | {"HV": 1, "input": "bf16"})
    checker = schema.validator()
    for record in worker.ask(request):
        checker.validate(record | {"commit": "0123456789ab", "environment": "01234567"})
        assert record["error_of"] == "o in f32" and record["checked_sequences"] == 2, record
        limit = {"fp32": 1e-5, "precise": 2e-5, "fast": 1e-2, "default": 1e-3}[record["precision"]]
        assert record["passed"] and record["relative"] <= limit and 1e-3 < record["relative_timed"] < 2.0**-8 + limit, record


def test_what_writes_bf16_alone_says_so():
    """FLA's and SGLang's: judged with the rounding, and nothing before it is claimed; so with a contender whose call in f32 fails."""
    sys.path.insert(0, str(Path(runner.__file__).parent))
    import contenders
    import numpy as np
    import torch
    import torch_worker

    exact = torch.linspace(-1, 1, 24).reshape(2, 3, 2, 2)
    rounded, expected = exact.bfloat16(), exact.double().numpy()
    peer, own = contenders.PEERS[0], contenders.ANCHOR

    def fails():
        raise RuntimeError("no f32")

    for contender, in_f32 in ((peer, lambda: lambda: exact), (own, fails)):
        found = torch_worker.errors(contender, lambda: rounded, in_f32, expected, [0, 1])
        assert found["error_of"] == "o in bf16" and found["passed"] and "relative_timed" not in found and found["relative"] > 1e-4
    found = torch_worker.errors(own, lambda: rounded, lambda: lambda: exact, expected, [0, 1])
    assert found["error_of"] == "o in f32" and found["relative"] < 1e-7 and found["relative_timed"] > 1e-4 and found["passed"]
    wrong = torch_worker.errors(own, lambda: rounded * 1.01, lambda: lambda: exact, expected, [0, 1])
    assert not wrong["passed"]  # what is timed is judged too
    off = exact.clone()
    off[1] *= 1.01
    assert not torch_worker.errors(own, lambda: rounded, lambda: lambda: off, expected, [0, 1])["passed"]
    assert torch_worker.sequences(16, 2) == [0, 15] and torch_worker.sequences(2, 2) == [0, 1] and torch_worker.sequences(4, 1) == [0]
    assert np.isfinite(found["max_abs"])


def test_another_type_of_o_is_not_tuned_again():
    """Of a tuned kernel's configurations the one that it ran in last; before any run, and afterwards, all."""
    sys.path.insert(0, str(Path(runner.__file__).parent))
    import torch_worker
    from triton.runtime.autotuner import Autotuner

    kernel = Autotuner.__new__(Autotuner)
    kernel.configs, kernel.early_config_prune, kernel.perf_model = ["a", "b", "c"], None, None
    with torch_worker.as_tuned():
        assert kernel.prune_configs({}) == ["a", "b", "c"]
        kernel.best_config = "b"
        assert kernel.prune_configs({}) == ["b"]
    assert kernel.prune_configs({}) == ["a", "b", "c"]


def test_it_says_what_it_cannot_do_and_goes_on(worker):
    with pytest.raises(runner.Failed, match="expected device cuda"):
        worker.ask(shapes.of_family("cpu", "chain", 4, 1, measure="time", caches=["warm"], **SMALL))
    assert worker.ask(shapes.of_family("cpu", "chain", 4, 1, measure="accuracy", **SMALL))

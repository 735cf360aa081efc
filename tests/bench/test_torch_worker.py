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


def test_it_says_what_it_cannot_do_and_goes_on(worker):
    with pytest.raises(runner.Failed, match="expected device cuda"):
        worker.ask(shapes.of_family("cpu", "chain", 4, 1, measure="time", caches=["warm"], **SMALL))
    assert worker.ask(shapes.of_family("cpu", "chain", 4, 1, measure="accuracy", **SMALL))

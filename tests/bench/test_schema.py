"""bench/schema.json: what it takes, what it refuses and in which words; the committed result files."""

import copy
import json

import contenders
import pytest
import records
import schema
from cells import cell, conv


def check(*lines):
    return schema.check_lines([json.dumps(line) for line in lines], "x.jsonl")


def test_every_committed_file_is_as_the_schema_says():
    assert schema.main([]) == 0


def test_every_committed_contender_is_known():
    for path in records.all_files():
        lines = records.read(path)
        environment = next((line for line in lines if line["type"] == "environment"), None)
        for line in lines:
            assert "contender" not in line or contenders.known(line["contender"], environment), line["contender"]


def test_a_good_file(gpu_environment):
    stored = {"stash": True, "relative_u": 1e-6}
    assert check(gpu_environment, cell("cuda_fused", 10.0, gpu_environment), cell("cuda_fused", 30.0, gpu_environment, **stored)) == 3


BAD = [
    ({"median_us": -1.0}, r"x.jsonl:2: median_us: expected more than 0, got -1.0"),
    ({"median_us": "fast"}, r"median_us: expected number, got \"fast\""),
    ({"B": True}, r"B: expected integer, got true"),
    ({"B": 1.5}, r"B: expected integer, got 1.5"),
    ({"T": 257}, r"T: expected at most 256, got 257"),
    ({"device": "tpu"}, r"device: expected one of cpu, cuda, got \"tpu\""),
    ({"cache": None}, r"cache: expected one of warm, cold, got null"),
    ({"relative": -0.1}, r"relative: expected at least 0, got -0.1"),
    ({"colour": "red"}, r"no such field: colour"),
    ({"same_as": ["double"]}, r"same_as\[0\]: expected one of"),
    ({"error_of": "u in f32"}, r"error_of: expected one of o in f32, .*, got \"u in f32\""),
    ({"stash": False}, r"stash: expected true, got false"),
    ({"relative_u": -1.0}, r"relative_u: expected at least 0, got -1.0"),
    ({"relative_timed": -1.0}, r"relative_timed: expected at least 0, got -1.0"),
    ({"environment": "ffffffff"}, r"environment: expected the id of a record before it, got 'ffffffff'"),
    ({"environment": "cpu"}, r"environment: expected text like"),
    ({"p10_us": 11.0}, r"p10_us, median_us, p90_us: expected them in order"),
    ({"type": "plot"}, r"type: expected one of environment, cell, .*, got \"plot\""),
    ({"schema": 2}, r"schema: expected 1, got 2"),
]


@pytest.mark.parametrize("wrong, message", BAD, ids=[json.dumps(wrong) for wrong, _ in BAD])
def test_a_bad_cell_is_refused(gpu_environment, wrong, message):
    with pytest.raises(schema.BadRecord, match=message):
        check(gpu_environment, cell("cuda_fused", 10.0, gpu_environment) | wrong)


def test_a_convolution_is_no_cell_of_verification(gpu_environment):
    assert check(gpu_environment, conv("cuda_conv", 15.0, gpu_environment), conv("copy", 11.0, gpu_environment)) == 3
    for wrong, message in (({"width": 5}, "width: expected at most 4, got 5"), ({"HV": 32}, "no such field: HV"), ({"p10_us": 20.0}, "expected them in order"),
                           ({"cache": "hot"}, "cache: expected one of warm, cold"), ({"bytes": 0}, "bytes: expected more than 0")):  # fmt: skip
        with pytest.raises(schema.BadRecord, match=message):
            check(gpu_environment, conv("cuda_conv", 15.0, gpu_environment) | wrong)
    assert contenders.known("cuda_conv", gpu_environment) and contenders.known("cuda_conv_commit", gpu_environment)


def test_what_the_error_is_of_and_the_driver_are_said(gpu_environment):
    """Both are younger than the first files, which stay as they are: a cell without the field is of o as it was timed."""
    told = gpu_environment | {"cuda_compiler": "nvcc 13.0.88", "gpu": gpu_environment["gpu"] | {"driver_version": "580.159.03"}}
    assert check(told, cell("cuda_fused", 10.0, told, error_of="o in f32", relative_timed=1.7e-3)) == 2
    with pytest.raises(schema.BadRecord, match="driver_version: expected text like"):
        check(told | {"gpu": told["gpu"] | {"driver_version": "newest"}})
    old = cell("cuda_fused", 10.0, told)
    assert records.error_of(old) == "o in bf16" and records.error_of(old | {"device": "cpu"}) == "o in f32"
    assert records.error_of(old | {"input": "f16"}) == "o in f16" and records.error_of(old | {"error_of": "state in f32"}) == "state in f32"


@pytest.mark.parametrize("missing", ["contender", "median_us", "state", "commit", "environment"])
def test_what_a_cell_must_have(gpu_environment, missing):
    line = cell("cuda_fused", 10.0, gpu_environment)
    del line[missing]
    with pytest.raises(schema.BadRecord, match=f"expected {missing}, absent"):
        check(gpu_environment, line)


def test_overflow_is_null_and_never_nan(gpu_environment):
    line = cell("cuda_neumann", 10.0, gpu_environment, relative=None, max_abs=None, passed=False)
    assert check(gpu_environment, line) == 2
    with pytest.raises(schema.BadRecord, match="NaN is not JSON"):
        schema.check_lines([json.dumps(gpu_environment), json.dumps(line | {"relative": float("nan")})], "x.jsonl")


def test_the_validator_refuses_a_schema_that_it_does_not_know():
    wider = copy.deepcopy(schema.validator().schema)
    wider["$defs"]["cell"]["properties"]["B"] = {"multipleOf": 2}
    with pytest.raises(ValueError, match="'multipleOf' is not one that bench/schema.py knows"):
        schema.Validator(wider).validate(2, wider["$defs"]["cell"]["properties"]["B"])

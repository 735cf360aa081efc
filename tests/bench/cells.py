"""Cells of result files for the tests."""

SHAPE = {"B": 1, "T": 128, "depth": 8, "family": "best-first-4", "seed": 0, "H": 16, "HV": 32, "K": 128, "V": 128, "input": "bf16", "state": "f32"}


def conv(contender, median, environment, **more):
    errors = {} if contender == "copy" else {"relative": 5e-8, "max_abs": 1e-6, "passed": True, "error_of": "o in f32", "relative_timed": 1.7e-3}
    return {"type": "conv", "schema": 1, "contender": contender, "device": "cuda", "B": 16, "T": 64, "depth": 8, "family": "best-first-4", "seed": 0,
            "channels": 8192, "width": 4, "layers": 1, "input": "bf16", "silu": True, "cache": "cold", "n": 50, "median_us": median, "p10_us": median,
            "p90_us": median, "bytes": 34406400.0, "commit": environment["commit"], "environment": environment["id"]} | errors | more  # fmt: skip


def cell(contender, median, environment, **more):
    return {"type": "cell", "schema": 1, "contender": contender, "strategy": contender.partition("_")[2] or contender, "device": "cuda",
            "precision": "default", "cache": "cold", "n": 200, "median_us": median, "p10_us": median, "p90_us": median, "bytes": 1.0,
            "relative": 1e-3, "max_abs": 1e-3, "passed": True, "commit": environment["commit"], "environment": environment["id"]} | SHAPE | more  # fmt: skip

"""Cells of result files for the tests."""

SHAPE = {"B": 1, "T": 128, "depth": 8, "family": "best-first-4", "seed": 0, "H": 16, "HV": 32, "K": 128, "V": 128, "input": "bf16", "state": "f32"}


def cell(contender, median, environment, **more):
    return {"type": "cell", "schema": 1, "contender": contender, "strategy": contender.partition("_")[2] or contender, "device": "cuda",
            "precision": "default", "cache": "cold", "n": 200, "median_us": median, "p10_us": median, "p90_us": median, "bytes": 1.0,
            "relative": 1e-3, "max_abs": 1e-3, "passed": True, "commit": environment["commit"], "environment": environment["id"]} | SHAPE | more  # fmt: skip

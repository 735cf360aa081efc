"""The program's GPU path on the emulated GPU: python3 tests/emulated/program.py build/canopy_emulated.

Errors are real, times mean nothing. Records of bench are held against bench/schema.json and the tolerances of docs/math.md.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
import records
import schema

LAYER = {"device": "cuda", "H": 1, "HV": 2, "K": 64, "V": 64}
SHAPE = ("--heads", "1", "--heads-v", "2", "--dim-k", "64", "--dim-v", "64")
EFFORT = {"repeat": 1, "warm_ups": 0, "least": 1, "share": 1e-3, "replay_seconds": 1e-6}
CONV = {"device": "cuda", "channels": 70, "caches": ["warm", "cold"]}
REFUSED = [
    ({"measure": "conv", "width": 5} | CONV, "width: expected 2 to 4, got 5"),
    ({"measure": "conv", "layers": 2} | CONV, "layers: expected 1 of measure conv, got 2; measure conv_commit takes several"),
    ({"measure": "conv"} | CONV | {"channels": 0}, "channels: expected 1 to 1048576, got 0"),
    ({"measure": "conv", "B": 0} | CONV, "B: expected 1 to 65535, got 0"),
    ({"measure": "conv", "T": 300} | CONV, "family best-first: nodes = 300: expected 1 to 256"),
    ({"measure": "commit", "stash": True} | LAYER, "stash: expected with device cuda and measure time or accuracy, got device cuda, measure commit"),
    ({"contenders": "cuda_fused_pair", "stash": True} | LAYER, "cuda_fused_pair: "),
]
REQUESTS = [
    {"measure": "environment", "device": "cuda"},
    {"family": "best-first", "T": 12, "B": 3, "contenders": "all", "caches": ["warm"], "checked": 2} | LAYER | EFFORT,
    {"measure": "accuracy", "family": "chain", "T": 4, "B": 2, "contenders": "cuda_fused,cuda_serial_resident", "input": "f32"} | LAYER,
    {"family": "best-first", "T": 12, "B": 3, "name": "best-first, u stored", "stash": True, "contenders": "fast", "caches": ["warm", "cold"], "checked": 2} | LAYER | EFFORT,
    {"measure": "conv", "T": 12, "B": 3, "checked": 2} | CONV | EFFORT,
    {"measure": "conv", "T": 3, "B": 1, "width": 2, "silu": False, "input": "f32"} | CONV | EFFORT,
    {"measure": "conv_commit", "T": 12, "B": 3, "layers": 3} | CONV | EFFORT,
    {"measure": "commit", "B": 3, "layers": 3} | LAYER | EFFORT,
    {"measure": "commit", "B": 1, "layers": 1, "state": "bf16"} | LAYER | EFFORT,
]
# Relative, of o in f32: by precision, and by default by what the default is.
LIMITS = {"fp32": 1e-5, "precise": 2e-5, "half": 1e-3, "fast": 1e-2}
DEFAULTS = {"cuda_fused": "half", "cuda_split": "half", "cuda_dense": "half", "cuda_neumann": "precise", "cuda_squaring": "precise",
            "cuda_serial_resident": "fp32", "cuda_serial_snapshot": "fp32", "cuda_hybrid": "fp32"}  # fmt: skip
BF16 = 2.0**-8


def run(program, *arguments, text=None, environment=None):
    done = subprocess.run([program, *arguments], input=text, capture_output=True, text=True, env=os.environ | (environment or {}))
    assert done.returncode == 0, f"{arguments}: status {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def answers(program):
    """The records of each request."""
    found = [[]]
    for line in run(program, "bench", "--requests", "-", text="".join(json.dumps(one) + "\n" for one in REQUESTS)).splitlines():
        record = json.loads(line)
        assert record["type"] != "failed", record
        if record["type"] == "done":
            found.append([])
        else:
            found[-1].append(record)
    return found[:-1]


def check_verify(cells):
    assert {cell["contender"] for cell in cells} >= {*DEFAULTS, "cuda_fused precise", "cuda_fused fp32", "cuda_fused fast", "cuda_split precise", "plan"}
    for cell in cells:
        if cell["contender"] in ("plan", "floor"):
            assert not {"relative", "error_of", "passed"} & cell.keys(), cell
            continue
        name, _, precision = cell["contender"].partition(" ")
        limit = LIMITS[precision or DEFAULTS[name]]
        assert cell["error_of"] == "o in f32" and cell["checked_sequences"] == 2, cell
        # Rounding of o to bf16 alone is 1.7e-3: more than all but the fast one may be off.
        assert cell["passed"] and 0 < cell["relative"] <= limit and 1e-3 < cell["relative_timed"] <= limit + BF16, cell


def check_stash(cells):
    """o and u by everyone that stores u, in fp32 or precise; u in memory of its own in each copy, so cold runs are right too."""
    assert {cell["contender"] for cell in cells} == DEFAULTS.keys() and len(cells) == 2 * len(DEFAULTS)
    for cell in cells:
        assert cell["stash"] is True and cell["passed"] and cell["cache"] in ("warm", "cold"), cell
        limit = LIMITS["fp32" if DEFAULTS[cell["contender"]] == "fp32" else "precise"]
        assert 0 < cell["relative"] <= limit and 0 < cell["relative_u"] <= limit and cell["same_as"] != ["half"], cell
        assert cell["bytes"] > 3 * 12 * 2 * 65 * 4, cell


def check_conv(outputs, exact, windows):
    def kinds(name):
        return [(contender, cache) for cache in ("warm", "cold") for contender in (name, "copy")]

    for records_of, name in ((outputs, "cuda_conv"), (exact, "cuda_conv"), (windows, "cuda_conv_commit")):
        assert [(record["contender"], record["cache"]) for record in records_of] == kinds(name)
    for record in outputs[::2]:
        assert record["passed"] and 0 < record["relative"] <= 1e-6 and 1e-3 < record["relative_timed"] <= BF16 and record["checked_sequences"] == 2, record
        assert record["bytes"] == 70 * 2 * (3 * (2 * 12 + 3) + 4) and outputs[1]["bytes"] == 2 * 70 * 2 * 3 * 12
    assert exact[0]["passed"] and exact[0]["relative"] <= 1e-6 and "relative_timed" not in exact[0] and exact[0]["error_of"] == "o in f32"
    for record in windows[::2]:
        assert record["passed"] and record["relative"] == 0 and record["error_of"] == "state in bf16" and record["bytes"] == 2 * 3 * 3 * 70 * 3 * 2


def check_refusals(program):
    for request, message in REFUSED:
        done = subprocess.run([program, "bench", "--requests", "-"], input=json.dumps(request) + "\n", capture_output=True, text=True)
        said = json.loads(done.stdout.splitlines()[-1])
        assert done.returncode != 0 and said["type"] == "failed" and message in said["message"], (request, said)


def check_explain(program, folder):
    """A call with a stash asks the rows for one, and says so; where a table has none, those of precise."""
    table = Path(folder) / "own"
    rows = "stash and nodes <= 8 -> cuda_serial_resident\nprecision precise -> cuda_split\nalways -> cuda_fused\n"
    table.write_text(f"canopy dispatch 1\nfor cuda: emulated\n{rows}")

    def because(nodes, *more):
        said = run(program, "explain", "--device", "cuda", "--nodes", str(nodes), *more, *SHAPE, "--json", environment={"CANOPY_DISPATCH": str(table)})
        return json.loads(said)["because"]

    assert because(8, "--stash").endswith("row 1 of the " + f"{table}, table of emulated: stash and nodes <= 8 -> cuda_serial_resident")
    assert because(9, "--stash").endswith("row 2 of the " + f"{table}, table of emulated: precision precise -> cuda_split; with stash_u, default asks the rows of precise")
    assert because(8).endswith("always -> cuda_fused")
    assert because(8, "--stash", "--precision", "precise").endswith("precision precise -> cuda_split"), "a precision by name has its own rows"


def check_commit(cells, dtype, sequences):
    assert [cell["contender"] for cell in cells] == ["cuda_commit_resolve", "cuda_commit_stash", "cuda_commit_replay", "copy"]
    for cell in cells[:-1]:
        limit = 1e-5 + (BF16 if dtype == "bf16" else 0)
        assert cell["passed"] and 0 < cell["relative"] <= limit and cell["error_of"] == f"state in {dtype}", cell
        assert cell.get("checked_sequences") == sequences and "relative_timed" not in cell, cell
    assert "relative" not in cells[-1]


def main(program):
    (environment,), verify, exact, stash, outputs, exact_outputs, windows, commits, one_commit = answers(program)
    environment = records.tidy_environment(environment)
    held = [environment, *(records.attach(record, environment) for record in (*verify, *exact, *stash, *outputs, *exact_outputs, *windows, *commits, *one_commit))]
    assert schema.check_lines([json.dumps(record) for record in held], "emulated") == len(held)
    check_verify(verify)
    check_stash(stash)
    check_conv(outputs, exact_outputs, windows)
    check_refusals(program)
    for record in exact:  # nothing is rounded: one call says it all
        assert record["type"] == "accuracy" and record["passed"] and record["error_of"] == "o in f32" and "relative_timed" not in record, record
    check_commit(commits, "f32", 2)
    check_commit(one_commit, "bf16", None)
    with tempfile.TemporaryDirectory() as folder:
        check_explain(program, folder)
    layer = ("--device", "cuda", "--batch", "2", *SHAPE, "--nodes", "8")
    for command in (("verify",), ("commit", "--leaf", "3")):
        run(program, *command, *layer, "--impl", "all")
    print(f"ok: {len(held)} records")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The tables on small recorded data: numbers worked out by hand."""

import re

import crossover
import pytest
import records
import strategies
import tables
from cells import cell, conv
from results import Results


@pytest.fixture
def seen(tmp_path, gpu_environment):
    """One GPU: a chain of 4 where walking wins, a best-first tree of 128 and spines of a grid where one solve does."""

    def times(fused, resident, snapshot, **shape):
        names = ("cuda_fused", "cuda_serial_resident", "cuda_serial_snapshot")
        return [cell(name, median, gpu_environment, **shape) for name, median in zip(names, (fused, resident, snapshot), strict=True)]

    lines = [gpu_environment, *times(6.0, 4.0, 5.0, T=4, depth=3, family="chain"), *times(10.0, 60.0, 100.0), *times(45.0, 450.0, 1500.0, B=16),
             *times(8.0, 8.0, 16.0, T=8, depth=3, family="spine"), *times(8.0, 12.0, 80.0, T=16, depth=3, family="spine"),
             *times(7.0, 3.5, 7.7, T=16, depth=12, family="specla-2 depth 12"), cell("floor", 4.0, gpu_environment),
             cell("cuda_dense", 15.0, gpu_environment), cell("cuda_neumann", 30.0, gpu_environment), cell("cuda_neumann fast", 3.0, gpu_environment),
             cell("cuda_fused", 1.0, gpu_environment, depth=12), cell("triton_fused precise", 25.0, gpu_environment),
             cell("fla_chunk", 20.0, gpu_environment, T=64, depth=63, family="chain")]  # fmt: skip
    base = {"schema": 1, "contender": "cuda_fused", "device": "cuda", "state": "f32", "commit": "c", "environment": gpu_environment["id"]}
    memory = [base | {"type": "memory", "way": way, "layers": layers, "T": 128, "B": 1, "peak_bytes": peak * layers}
              for layers in (1, 24) for way, peak in (("snapshots", 1 << 28), ("stash", 1 << 21))]  # fmt: skip
    rounds = [base | {"type": "rounds", "rounds": [1, 500], "state_error": [1e-8, 1.8e-7], "output_error": [1e-4, 2e-4], "gates": "zero",
                      "argmax": {"words": 256, "nodes": 8000, "flips": 5}}]  # fmt: skip
    error = base | {"type": "accuracy", "contender": "cuda_neumann", "precision": "half", "gates": "zero", "betas": "one"}
    accuracy = [error | {"keys": "similar", "cosine": 0.99, "relative": 2e-3, "passed": True},
                error | {"keys": "similar", "cosine": 0.99, "relative": None, "passed": False}, error | {"keys": "random", "relative": 3e-4, "passed": True},
                error | {"keys": "random", "relative": 5e-4, "passed": True}]  # fmt: skip
    alike = {"keys": "similar", "cosine": 0.9, "family": "chain, keys alike"}
    for depth, time, off in ((15, 20.0, 4e-4), (31, 30.0, None)):
        lines += [cell("cuda_neumann", time, gpu_environment, T=depth + 1, depth=depth, relative=off, **alike),
                  cell("cuda_neumann precise", 1.0, gpu_environment, T=depth + 1, depth=depth, precision="precise", **alike)]  # fmt: skip
    lines += times(7.0, 1.0, 9.0, T=16, depth=15, **alike)
    lines += [cell("cuda_fused", time, gpu_environment, T=64, depth=8, **more) for time, more in (
        (7.25, {"family": "best-first-4"}), (8.0, {"family": "best-first-4, raw gates and norm", "raw_gates": True, "l2norm": True}))]
    for name, own in (("sweep", lines), ("memory", memory), ("rounds", rounds), ("accuracy", accuracy)):
        records.write(tmp_path / f"gpu-test/{name}.jsonl", own)
    return Results(tmp_path)


def row(table, *start):
    """The cells of the only line that begins with these."""
    lines = [[part.strip() for part in line.strip("|").split("|")] for line in table.splitlines()]
    found = [line for line in lines if line[: len(start)] == list(start)]
    assert len(found) == 1, f"{len(found)} lines begin with {start} in\n{table}"
    return found[0][len(start) :]


def test_the_crossover_names_the_trees_that_one_solve_loses(seen):
    said = crossover.crossover(seen)
    assert row(said, "gpu-test, HV 32, state f32", "1", "cold", "serial resident") == [
        "5", "0.50 to 6.0x", "chain T=4 (0.67x), specla-2 depth 12 T=16 (0.50x)", "T=128"]  # fmt: skip
    assert row(said, "gpu-test, HV 32, state f32", "1", "cold", "serial snapshot") == ["5", "0.83 to 10.0x", "chain T=4 (0.83x)", "T=8"]
    assert row(said, "gpu-test, HV 32, state f32", "16", "cold", "serial resident") == ["1", "10.00 to 10.0x", "nowhere", "T=128"]


def test_the_maps(seen):
    assert crossover.depth_by_width(seen, "gpu-test", 1) == {(4, 1): (4 / 6, 5 / 6), (4, 2): (1.0, 2.0), (4, 4): (1.5, 10.0)}
    assert crossover.nodes_by_batch(seen, "gpu-test", ("best-first-4",)) == {(128, 1): (6.0, 10.0), (128, 16): (10.0, 1500 / 45)}
    said = crossover.maps(seen)
    assert row(said, "4", "0.67 / 0.83", "1.00 / 2.00") == ["1.50 / 10"]
    assert row(said, "128") == ["6.00 / 10", "10 / 33"]


def test_times_at_boles_shape(seen):
    assert row(tables.bole_shape(seen), "NVIDIA GeForce RTX 5090 (commit 0123456789ab)", "1", "cold") == ["10.0", "60.0", "6.0x", "100", "10.0x", "4.00"]
    assert row(tables.readme(seen), "NVIDIA GeForce RTX 5090", "16") == ["45.0", "450 (10.0x)", "1,500 (33.3x)", ""]


def test_the_target_that_nobody_measured_is_said_to_be_so(tmp_path):
    assert row(tables.readme(Results(tmp_path)), "RTX 5090 (the target)") == ["", "not measured", "not measured", "not measured", ""]


def test_memory_counted_and_measured(seen):
    said = tables.memory(seen)
    assert row(said, "kept, snapshots (counted)") == ["256.0 MiB", "6.00 GiB", ""]
    assert row(said, "kept, commit by stash (counted)") == ["2.0 MiB", "48.4 MiB", "127x less"]
    assert row(said, "peak, stash (measured, gpu-test)") == ["2.0 MiB", "48.0 MiB", "128x less"]


def test_drift_and_accuracy(seen):
    assert row(tables.drift(seen), "`cuda_fused`") == ["gpu-test", "f32", "forgets nothing", "500", "1.8e-7", "2.0e-4", "5 of 8,000"]
    assert row(tables.accuracy(seen), "`cuda_neumann`", "half", "gpu-test") == [
        "o in bf16", "not measured", "5.0e-4", "not measured", "not measured", "overflow (1 of 2 out of tolerance)", "not measured"]  # fmt: skip


def test_errors_of_old_and_new_records_stand_apart(tmp_path, gpu_environment):
    """An old cell's error is of o rounded to bf16, which hides the kernel's own; a commit's is of the state."""
    lines = [gpu_environment, cell("cuda_fused", 10.0, gpu_environment, relative=1.7e-3),
             cell("cuda_fused", 10.0, gpu_environment, relative=2.2e-4, error_of="o in f32", relative_timed=1.7e-3),
             cell("cuda_fused", 10.0, gpu_environment, relative=3.3e-4, error_of="o in f32", relative_timed=1.7e-3, T=64),
             cell("cuda_commit_stash", 10.0, gpu_environment, relative=1.1e-7, error_of="state in f32", T=64)]  # fmt: skip
    records.write(tmp_path / "gpu-test/sweep.jsonl", lines)
    said = tables.parity(Results(tmp_path))
    assert row(said, "`cuda_fused`", "default", "f32", "gpu-test", "1") == ["o in bf16", "1.7e-3", "best-first-4, T=128, B=1", "none"]
    assert row(said, "`cuda_fused`", "default", "f32", "gpu-test", "2") == ["o in f32", "3.3e-4", "best-first-4, T=64, B=1", "none"]
    assert row(said, "`cuda_commit_stash`", "default", "f32", "gpu-test")[1:3] == ["state in f32", "1.1e-7"]
    accuracy = [gpu_environment, *({"type": "accuracy", "contender": "cuda_fused", "device": "cuda", "precision": "default", "keys": "equal", "gates": "zero",
                                    "input": "bf16", "passed": True, "relative": off} | more
                                   for off, more in ((1.7e-3, {}), (2.5e-4, {"error_of": "o in f32"})))]  # fmt: skip
    records.write(tmp_path / "gpu-test/accuracy.jsonl", accuracy)
    said = tables.accuracy(Results(tmp_path))
    assert row(said, "`cuda_fused`", "default", "gpu-test", "o in bf16")[-1] == "1.7e-3"
    assert row(said, "`cuda_fused`", "default", "gpu-test", "o in f32")[-1] == "2.5e-4"


def test_one_form_against_another(seen):
    assert row(strategies.compressed(seen), "gpu-test", "1", "best-first 128") == ["10.0", "15.0", "1.50x"]
    assert row(strategies.solver_times(seen), "Neumann", "gpu-test", "1") == ["not measured"] * 4 + ["30.0", "not measured"]
    assert row(strategies.peers(seen), "`fla_chunk`", "gpu-test", "1")[1] == "20.0"
    assert row(strategies.peers(seen), "`triton_fused precise`", "gpu-test", "1")[4] == "25.0"
    assert row(tables.specla(seen), "NVIDIA GeForce RTX 5090", "specla-2 depth 12") == ["16", "12", "1", "7.00", "0.50x", "1.10x"]


def test_solvers_by_depth(seen):
    """Default precision alone; keys that are alike are no further tree of the crossover."""
    said = strategies.solver_depths(seen)
    nothing = "not measured"
    assert row(said, "Neumann", "gpu-test", "1", "cosine 0.9") == ["o in bf16"] + [nothing] * 3 + ["20.0 (4.0e-4)", "30.0 (overflow)"] + [nothing] * 3
    assert row(said, "substitution", "gpu-test", "1", "cosine 0.9") == ["o in bf16"] + [nothing] * 3 + ["7.00 (1.0e-3)"] + [nothing] * 4
    assert row(said, "substitution", "gpu-test", "1", "random")[2] == "6.00 (1.0e-3)" and "16 | random" not in said
    assert "keys alike" not in crossover.crossover(seen)


def test_nothing_measured_says_so_everywhere(tmp_path):
    empty = Results(tmp_path)
    for block in ("drift", "accuracy", "specla", "compressed", "peers", "peers-elsewhere", "solver-depths", "as-called", "stash", "conv"):
        assert "not measured" in tables.BLOCKS[block](empty), block


def test_what_raw_gates_and_the_norm_cost(seen):
    said = strategies.as_called(seen)
    assert row(said, "gpu-test", "1", "64", "cold") == ["7.25", "8.00", "+0.75"]
    assert "raw gates" not in crossover.crossover(seen)


def test_calls_with_a_stash_have_a_table_and_are_in_no_other(seen, tmp_path, gpu_environment):
    before = {name: make(seen) for name, make in tables.BLOCKS.items() if name in ("crossover", "contenders", "bole-shape", "readme", "maps", "as-called", "solver-times")}
    assert "not measured" in tables.BLOCKS["stash"](seen)
    lines = [cell(name, time, gpu_environment, T=16, depth=8, family="best-first-4, u stored", stash=True, error_of="o in f32", relative=1e-6, relative_u=2e-6)
             for name, time in (("cuda_fused", 19.0), ("cuda_serial_resident", 10.5), ("cuda_serial_snapshot", 12.0))]  # fmt: skip
    records.write(tmp_path / "gpu-test/more.jsonl", [gpu_environment, cell("cuda_fused", 3.6, gpu_environment, T=16), *lines])
    both = Results(tmp_path)
    said = strategies.stash(both)
    at = 2 + strategies.STASH_NODES.index(16)
    of = lambda outputs, name: row(said, "gpu-test", "1", "best-first-4", outputs, f"`{name}`")
    assert len(of("o alone", "cuda_fused")) == len(strategies.STASH_NODES)
    assert [of(*which)[at - 2] for which in (("o alone", "cuda_fused"), ("o and u", "cuda_fused"), ("o and u", "cuda_serial_resident"), ("o and u", "cuda_split"))] == [
        "3.60", "19.0", "10.5", "not measured"]  # fmt: skip
    for name in before.keys() - {"contenders"}:  # the cell on o alone is of theirs
        assert tables.BLOCKS[name](both) == before[name], name
    assert "19.0" not in tables.contenders(both)
    assert row(tables.parity(both), "`cuda_fused`", "default, u stored", "f32", "gpu-test", "1", "u in f32")[0] == "2.0e-6"


def test_the_tree_convolution_beside_its_copy(tmp_path, gpu_environment):
    h200 = gpu_environment | {"gpu": gpu_environment["gpu"] | {"name": "NVIDIA H200"}}
    kernel = [conv("cuda_conv", time, h200, cache=cache) for time, cache in ((13.3, "warm"), (16.0, "cold"))]
    commit = conv("cuda_conv_commit", 30.1, h200, layers=24, bytes=37748736.0, relative=0.0, error_of="state in bf16")
    lines = [h200, *kernel, *(conv("copy", time, h200, cache=cache) for time, cache in ((7.3, "warm"), (10.0, "cold"))), commit]
    for folder, environment in (("gpu-h200", h200), ("gpu-test", gpu_environment)):
        records.write(tmp_path / f"{folder}/conv.jsonl", lines if folder == "gpu-h200" else [environment, *kernel])
        records.write(tmp_path / f"{folder}/sweep.jsonl", [environment, cell("cuda_fused", 10.0, environment)])
    said = tables.conv(Results(tmp_path))
    assert row(said, "`cuda_conv`", "gpu-h200", "16", "64") == ["32.8 MiB", "8.00", "13.3", "16.0", "2,150", "2.00x", "7.30", "10.0", "1.60x", "5.0e-8"]
    assert row(said, "`cuda_conv_commit`, 24 layers", "gpu-h200") == [
        "16", "64", "36.0 MiB", "8.78", "not measured", "30.1", "1,254", "3.43x", "not measured", "not measured", "", "exact"]  # fmt: skip
    # What a large copy reaches on another GPU nobody wrote down.
    assert row(said, "`cuda_conv`", "gpu-test", "16", "64") == ["32.8 MiB", "", "13.3", "16.0", "2,150", "", "not measured", "not measured", "", "5.0e-8"]


def test_the_dispatch_tables_in_words(seen):
    said = strategies.dispatch(seen)
    words, _, choice = row(said, "The table of NVIDIA H200 (compute capability 9.0)")
    assert words.endswith(" and stash")  # calls that store U come first
    assert "| nodes >= 17 and heads <= 32 and depth <= 8 and precision FP32 | `cuda_hybrid` |" in said
    assert re.fullmatch(r"takes at most 1\.\d\d times the best; 1\.\d\d where the caller names no depth", choice)
    assert "| precision FP32 | `cuda_serial_resident` |" in said
    generated = (records.ROOT / "src/dispatch/nvidia_h200.inc").read_text()
    bounds = re.findall(r'^\{.max_nodes = (\d+), .max_heads = (\d+), .implementation = "(\w+)"\}', generated, re.MULTILINE)
    assert bounds and all(f"| nodes <= {nodes} and heads <= {heads} | `{name}` |" in said for nodes, heads, name in bounds)
    assert row(said, "The cpu table (AMD EPYC)")[:2] == ["always", "`cpu_closed_form`"]


def test_a_machine_is_named_after_what_timed_it(tmp_path, gpu_environment):
    """Other files of its folder may be of another commit."""
    other = records.tidy_environment(gpu_environment | {"commit": "ba9876543210"})
    records.write(tmp_path / "gpu-test/accuracy.jsonl", [other])
    records.write(tmp_path / "gpu-test/sweep.jsonl", [gpu_environment, cell("cuda_fused", 10.0, gpu_environment)])
    records.write(tmp_path / "gpu-test/third.jsonl", [other, cell("cuda_fused", 10.0, other, T=64)])
    assert Results(tmp_path).name("gpu-test") == "NVIDIA GeForce RTX 5090 (commit 0123456789ab)"


def test_a_machine_is_named_by_the_commit_of_most_of_its_cells(tmp_path, gpu_environment):
    """peers.jsonl, which comes before sweep.jsonl, may be of an older one."""
    older = records.tidy_environment(gpu_environment | {"commit": "ba9876543210"})
    records.write(tmp_path / "gpu-test/peers.jsonl", [older, cell("fla_chunk", 10.0, older)])
    records.write(tmp_path / "gpu-test/sweep.jsonl", [gpu_environment, *(cell("cuda_fused", 10.0, gpu_environment, T=T) for T in (64, 128))])
    both = Results(tmp_path)
    assert both.name("gpu-test") == "NVIDIA GeForce RTX 5090 (commit 0123456789ab)"
    assert row(tables.coverage(both), "gpu-test: NVIDIA GeForce RTX 5090 (commit 0123456789ab)")[0] == "3, 1 of commit ba9876543210"

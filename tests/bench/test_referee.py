"""The path of somebody with a GPU that nobody has measured: one command, a folder to commit, its dispatch table, its lines in the tables."""

import json
import re
import subprocess

import dispatch
import pytest
import records
import referee
import report
import results
import schema
import tables

MACHINE = "gpu-rtx-5090"


def run(fake, tmp_path, *more):
    return referee.main(["--program", fake.path, "--device", "cuda", "--out", str(tmp_path / "out"), "--results", str(tmp_path / "results"), *more])


@pytest.fixture(autouse=True)
def without_peers(monkeypatch):
    monkeypatch.setattr(referee.sweep, "torch_has_a_gpu", lambda: False)


def few(monkeypatch):
    """A whole run of few shapes: every kind is asked."""
    everything = referee.sweep.shapes.sweep
    monkeypatch.setattr(referee.sweep.shapes, "sweep", lambda device, trees, quick, threads: everything(device, trees, True, threads))


def test_a_new_gpu_from_nothing_to_a_folder(fake, tmp_path, monkeypatch, capsys):
    few(monkeypatch)
    assert run(fake, tmp_path) == 0
    folder = tmp_path / "results" / MACHINE
    assert sorted(path.name for path in folder.iterdir()) == ["accuracy.jsonl", "conv.jsonl", "memory.jsonl", "rounds.jsonl", "sweep.jsonl"]
    assert schema.main([str(path) for path in folder.iterdir()]) == 0
    environment = records.read(folder / "sweep.jsonl")[0]
    assert environment["gpu"]["name"] == "NVIDIA GeForce RTX 5090" and re.fullmatch(r"\d{4}-\d\d-\d\d", environment["date"])
    assert environment["gpu"]["before"] and environment["gpu"]["after"]
    # Again: nothing is asked. At another commit: everything is.
    asked = fake.asked()
    assert run(fake, tmp_path) == 0 and fake.asked() == asked
    monkeypatch.setenv("FAKE_COMMIT", "ba9876543210")
    assert run(fake, tmp_path) == 0 and fake.asked() == 2 * asked
    assert records.read(folder / "sweep.jsonl")[0]["commit"] == "ba9876543210"
    # Its dispatch table, made by canopy tune from the files.
    made = dispatch.generate(fake.path, tmp_path / "results")
    assert '{"NVIDIA GeForce RTX 5090", "cuda table of NVIDIA GeForce RTX 5090", 120, kNvidiaGeforceRtx5090}' in made["gpus.inc"]
    rows = made["nvidia_geforce_rtx_5090.inc"]
    assert "compute capability 12.0" in rows and "results/gpu-rtx-5090/sweep.jsonl" in rows
    assert '.implementation = "cuda_serial_resident"' in rows and '.implementation = "cuda_fused"' in rows
    # Its lines in the tables.
    seen = results.Results(tmp_path / "results")
    assert "NVIDIA GeForce RTX 5090" in tables.readme(seen) and "not measured" not in tables.readme(seen)
    for block in ("crossover", "maps", "bole-shape", "memory", "drift", "accuracy", "parity", "coverage", "contenders", "conv", "stash"):
        assert "5090" in tables.BLOCKS[block](seen).lower(), block


def test_a_quick_run_replaces_nothing(fake, tmp_path, capsys):
    assert run(fake, tmp_path, "--quick") == 0
    assert not (tmp_path / "results").exists() and (tmp_path / "out/sweep.jsonl").exists()


def test_a_run_whose_time_is_over_is_published_only_if_asked(fake, tmp_path, monkeypatch, capsys):
    few(monkeypatch)
    assert run(fake, tmp_path, "--seconds", "1e-6") == 0
    assert fake.asked() == 0 and not (tmp_path / "results").exists()
    assert "the same command again goes on" in capsys.readouterr().err
    monkeypatch.setattr(referee.sweep, "core", lambda chosen: [])
    monkeypatch.setattr(referee.sweep, "rest", lambda chosen: setattr(chosen, "cut", 1) or [])
    assert run(fake, tmp_path, "--seconds", "600", "--publish") == 0
    assert sorted(path.name for path in (tmp_path / "results" / MACHINE).iterdir()) == [
        "accuracy.jsonl", "conv.jsonl", "memory.jsonl", "rounds.jsonl"]  # fmt: skip


@pytest.mark.parametrize("seconds", ["-5", "nan", "inf"])
def test_a_time_that_is_none_is_refused(fake, tmp_path, capsys, seconds):
    with pytest.raises(SystemExit):
        run(fake, tmp_path, f"--seconds={seconds}")
    assert f"--seconds {seconds}: expected 0 (no limit) or more" in capsys.readouterr().err


def test_the_rest_is_asked_of_those_in_the_running(fake, tmp_path, monkeypatch, capsys):
    """The core is answered first; dense stands no chance on trees of 128 and is as fast as the best on those of 8."""
    shapes = referee.sweep.shapes
    whole = shapes.sweep("cuda", [])
    time = lambda r, B, stash: r["B"] == B and r.get("measure", "time") == "time" and r.get("stash", False) == stash
    pick = lambda core, T, B=1, stash=False: next(r for r in whole if shapes.in_core(r) == core and r["T"] == T and time(r, B, stash))
    some = [pick(True, 128), pick(True, 8), pick(False, 128), pick(False, 16), pick(False, 3)]
    some += [pick(True, 128, stash=True), pick(False, 128, 4, stash=True)]
    monkeypatch.setattr(shapes, "sweep", lambda device, trees, quick, threads: some[::-1])
    assert run(fake, tmp_path) == 0
    asked = [json.loads(line) for line in (tmp_path / "asked").read_text().splitlines()]
    timed = [request for request in asked if request.get("measure", "time") == "time"]
    three = "cuda_fused,cuda_serial_resident,cuda_serial_snapshot,floor"
    wanted = {(128, True): "all", (8, True): "all", (128, False): three, (16, False): f"cuda_dense,{three}", (3, False): "fast"}
    assert [shapes.in_core(request) for request in timed] == [True] * 3 + [False] * 4
    assert {(request["T"], shapes.in_core(request)): request["contenders"] for request in timed if not request.get("stash")} == wanted
    # With a stash the fake's fused kernel takes thrice its time, so that dense is the best there.
    assert [request["contenders"] for request in timed if request.get("stash")] == ["fast", "cuda_dense,cuda_fused,cuda_serial_resident,cuda_serial_snapshot"]


def test_a_core_that_a_contender_spoils_is_asked_of_the_others(fake, tmp_path, monkeypatch, capsys):
    shapes = referee.sweep.shapes
    some = [request for request in shapes.sweep("cuda", []) if shapes.in_core(request)][:2]
    monkeypatch.setattr(shapes, "sweep", lambda device, trees, quick, threads: some)
    monkeypatch.setenv("FAKE_REFUSE", "all")
    assert run(fake, tmp_path) == 1 and capsys.readouterr().err.count("refused") >= 2
    held = records.read(tmp_path / "out/sweep.jsonl")
    assert {record["T"] for record in held[1:]} == {request["T"] for request in some}


def test_what_failed_is_said_and_the_rest_is_published(fake, tmp_path, monkeypatch, capsys):
    few(monkeypatch)
    monkeypatch.setenv("FAKE_REFUSE", "chain")
    assert run(fake, tmp_path) == 1
    assert "failed: sweep: chain T=3 B=1: refused" in capsys.readouterr().err
    assert (tmp_path / "results" / MACHINE / "sweep.jsonl").exists()


def test_a_part_that_was_not_run_keeps_its_file(tmp_path):
    measured, kept = tmp_path / "out", tmp_path / "results/gpu-x"
    measured.mkdir()
    kept.mkdir(parents=True)
    new, old = ([{"type": "environment"}, {"type": "cell", "commit": commit}] for commit in ("new", "old"))
    records.write(measured / "sweep.jsonl", new)
    records.write(measured / "memory.jsonl", new[:1])  # its time was over before the first answer
    for name in ("sweep", "peers", "memory"):
        records.write(kept / f"{name}.jsonl", old)
    referee.publish(measured, "gpu-x", tmp_path / "results")
    assert {path.stem: records.read(path)[1]["commit"] for path in kept.iterdir()} == {"sweep": "new", "peers": "old", "memory": "old"}


def test_machines_have_folders_without_odd_letters():
    name = lambda gpu: records.machine_id({"gpu": {"name": gpu}, "cpu": "x"})
    assert [name("NVIDIA GeForce RTX 5090"), name("NVIDIA H200"), name("NVIDIA RTX PRO 6000 Blackwell")] == [
        "gpu-rtx-5090", "gpu-h200", "gpu-rtx-pro-6000-blackwell"]  # fmt: skip
    cpu = lambda model: records.machine_id({"gpu": "none found", "cpu": model})
    assert [cpu("AMD EPYC"), cpu("Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz")] == ["cpu-amd-epyc", "cpu-intel-xeon-e5-2680-v4"]


def table_of(program, folder, gpu_environment, trees):
    """The generated table of a GPU where, on trees of 128 nodes, cuda_fused and cuda_serial_resident took these times."""
    from cells import cell

    lines = [gpu_environment]
    for family, depth, times in trees:
        for name, time in zip(("cuda_fused", "cuda_serial_resident"), times, strict=True):
            lines.append(cell(name, time, gpu_environment, family=family, depth=depth))
    records.write(folder / "results/gpu-x/sweep.jsonl", lines)
    (table,) = (text for name, text in dispatch.generate(program, folder / "results").items() if name not in ("gpus.inc", "cpu.inc"))
    return table.splitlines()


def test_a_table_keeps_the_rule_by_depth(program, tmp_path, gpu_environment):
    """Two trees of one size that want different kernels: no row on T and heads can serve both within 5%, one on the depth can."""
    table = table_of(program, tmp_path, gpu_environment, [("chain", 127, (20.0, 10.0)), ("star", 1, (10.0, 40.0))])
    assert table[-3:] == ['{.min_depth = 2, .implementation = "cuda_serial_resident"},', '{.implementation = "cuda_fused"},', '{.implementation = "cuda_serial_resident"},']
    assert "the table's choice is the fastest everywhere; 2.00 where the caller names no depth" in table[1]
    assert not any("what no table sees" in line for line in table)


def test_cells_with_a_stash_make_rows_of_their_own(program, tmp_path, gpu_environment):
    """The rule holds for them too: a table in which the fused kernel served them all would not be written."""
    from cells import cell

    times = {False: {"cuda_fused": 10.0, "cuda_serial_resident": 60.0}, True: {"cuda_fused": 50.0, "cuda_serial_resident": 61.0}}
    small = {False: {"cuda_fused": 3.5, "cuda_serial_resident": 10.0}, True: {"cuda_fused": 19.0, "cuda_serial_resident": 10.5}}
    lines = [cell(name, time, gpu_environment, **size, **({"stash": True, "family": "best-first-4, u stored"} if stash else {}))
             for size, both in (({"T": 16}, small), ({}, times)) for stash, own in both.items() for name, time in own.items()]  # fmt: skip
    records.write(tmp_path / "results/gpu-x/sweep.jsonl", [gpu_environment, *lines])
    table = dispatch.generate(program, tmp_path / "results")["nvidia_geforce_rtx_5090.inc"].splitlines()
    assert table[2:4] == ['{.max_nodes = 16, .stash = true, .implementation = "cuda_serial_resident"},', '{.stash = true, .implementation = "cuda_fused"},']
    assert table[4] == '{.implementation = "cuda_fused"},' and "the fastest everywhere" in table[1]
    records.write(tmp_path / "only.jsonl", [gpu_environment, *(line for line in lines if line.get("stash"))])
    done = subprocess.run([program, "tune", "--device", "cuda", "--from", str(tmp_path / "only.jsonl")], capture_output=True, text=True)
    assert done.returncode == 2 and "expected cells of calls without a stash" in done.stderr and "got 4 with one" in done.stderr


def test_a_table_names_the_cells_that_no_choice_serves(program, tmp_path, gpu_environment):
    """Two trees of one size and depth that want different kernels: the mean decides."""
    table = table_of(program, tmp_path, gpu_environment, [("balanced-2", 7, (20.0, 10.0)), ("random", 7, (10.0, 40.0))])
    named = [line for line in table if "what no table sees" in line]
    assert len(named) == 1 and named[0].startswith("// ") and " balanced-2 " in named[0] and "cuda_fused takes 2.00 times cuda_serial_resident" in named[0]
    assert table[-2:] == ['{.implementation = "cuda_fused"},', '{.implementation = "cuda_serial_resident"},']


def test_the_committed_dispatch_tables_are_what_the_results_give(program):
    assert dispatch.main(["--check", "--program", program]) == 0


def test_the_committed_documents_are_what_the_results_say(capsys):
    assert report.main(["--check"]) == 0, capsys.readouterr().err


def test_the_result_files_name_no_place(capsys):
    """Environment records hold what the machine is, not where it stands."""
    text = "".join(path.read_text() for path in records.all_files())
    for word in ("/home", "/tmp", "/work", "hostname", "@"):
        assert word not in text, word
    assert json.dumps("/") not in text

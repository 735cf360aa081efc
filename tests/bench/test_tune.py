"""canopy tune on this machine's CPU, and the dispatcher with its table."""

import json
import os
import subprocess

import pytest
import records

SMALL = ["--heads", "1", "--heads-v", "2", "--dim-k", "16", "--dim-v", "16"]


def run(program, *arguments, table=None):
    environment = {name: value for name, value in os.environ.items() if name != "CANOPY_DISPATCH"} | ({"CANOPY_DISPATCH": str(table)} if table else {})
    return subprocess.run([program, *arguments], capture_output=True, text=True, env=environment)


def because(program, nodes, table=None, *options):
    done = run(program, "explain", "--nodes", str(nodes), *SMALL, "--json", *options, table=table)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_table_is_measured_written_and_used(program, tmp_path):
    table = tmp_path / "own"
    done = run(program, "tune", "--seconds", "1", "--threads", "1", *SMALL, "--out", str(table))
    assert done.returncode == 0 and f"export CANOPY_DISPATCH={table}" in done.stdout
    text = table.read_text()
    machine = json.loads(run(program, "env", "--json").stdout)["cpu"]
    assert text.startswith("canopy dispatch 1\n") and f"\nfor cpu: {machine}\n" in text
    assert f"of the {table}, table of {machine}" in because(program, 16, table)["because"]
    assert "of the cpu table" in because(program, 16)["because"]


def test_the_row_that_holds_decides(program, tmp_path):
    machine = json.loads(run(program, "env", "--json").stdout)["cpu"]
    table = tmp_path / "own"
    table.write_text(f"canopy dispatch 1\nfor cpu: {machine}\nnodes <= 8 -> cpu_serial_snapshot\nalways -> cpu_serial_resident\n")
    small, large = because(program, 8, table), because(program, 9, table)
    assert small["choice"] == "cpu_serial_snapshot" and small["because"].startswith("row 1 ") and "nodes <= 8" in small["because"]
    assert large["choice"] == "cpu_serial_resident" and large["because"].startswith("row 2 ")


def test_a_depth_decides_where_it_is_named(program, tmp_path):
    machine = json.loads(run(program, "env", "--json").stdout)["cpu"]
    table = tmp_path / "own"
    table.write_text(f"canopy dispatch 1\nfor cpu: {machine}\nprecision fp32 -> cpu_closed_form\ndepth >= 12 -> cpu_serial_snapshot\nalways -> cpu_serial_resident\n")
    choice = lambda nodes, *options: because(program, nodes, table, *options)["choice"]
    assert choice(16, "--family", "chain") == "cpu_serial_snapshot"
    assert choice(16, "--family", "star") == "cpu_serial_resident"
    assert choice(16, "--family", "chain", "--max-depth", "0") == "cpu_serial_resident", "none named"
    assert choice(16, "--family", "star", "--max-depth", "1000") == "cpu_serial_snapshot", "a loose bound says: at most 15"
    assert choice(12, "--family", "star", "--max-depth", "1000") == "cpu_serial_resident", "at most 11"
    assert choice(16, "--family", "chain", "--precision", "fp32") == "cpu_closed_form"
    for option, value in (("--precision", "double"), ("--max-depth", "-1")):
        done = run(program, "explain", "--nodes", "4", option, value, *SMALL)
        assert done.returncode == 2 and option in done.stderr and value in done.stderr, done.stderr


def test_another_machines_table_is_left_alone(program, tmp_path):
    table = tmp_path / "own"
    table.write_text("canopy dispatch 1\nfor cpu: another machine\nalways -> cpu_serial_snapshot\n")
    assert because(program, 16, table)["choice"] == "cpu_closed_form"


@pytest.mark.parametrize("text, message", [(None, "cannot open"), ("nonsense\n", "expected 'canopy dispatch 1'")])
def test_a_bad_table_is_an_error(program, tmp_path, text, message):
    table = tmp_path / "own"
    if text:
        table.write_text(text)
    done = run(program, "explain", "--nodes", "4", *SMALL, "--json", table=table)
    assert done.returncode == 2 and message in done.stderr, done.stderr
    assert "runs nothing" in (said := run(program, "explain", "--nodes", "4", *SMALL, table=table).stdout) and message in said


def test_tune_from_files_judges_the_rule(program):
    recorded = str(records.RESULTS / "cpu-amd-epyc/sweep.jsonl")
    done = run(program, "tune", "--from", recorded, "--json")
    said = json.loads(done.stdout)
    assert said["machine"] == "AMD EPYC" and said["cells"] > 600 and said["broken"] == [] and said["worst"] < 1.05
    done = run(program, "tune", "--device", "cuda", "--from", recorded)
    assert done.returncode == 2 and "no cell of an implementation on cuda" in done.stderr

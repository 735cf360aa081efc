"""scripts/tune_tiles.py without nvcc and GPU: variants, reports, the choice, the row, both steps with stand-ins."""

import json
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "scripts"), str(ROOT / "bench/tiles")]

import tile_rows as rows
import tile_timing as timing
import tune_tiles as tiles

TABLE = tiles.TABLE.read_text()
ROWS = {architecture: TABLE[slice(*rows.find_row(TABLE, architecture))] for architecture in rows.TARGETS}
REPORT = """ptxas info    : 33 bytes gmem, 32 bytes cmem[3]
ptxas info    : Compiling entry function '_ZN6canopy4cuda12fused_kernelINS0_4WideEEEvNS0_14FusedArgumentsE' for 'sm_90a'
ptxas info    : Function properties for _ZN6canopy4cuda12fused_kernelINS0_4WideEEEvNS0_14FusedArgumentsE
    {stack} bytes stack frame, {stores} bytes spill stores, {loads} bytes spill loads
ptxas info    : Used {registers} registers, used 1 barriers, {stack} bytes cumulative stack size
"""


def module_of(architecture=90, threads=192, columns=128, heads=1, ctas=2, shared_bytes=98912):
    return (
        b"\x7fELF"
        + bytes(60)
        + b"canopyCT"
        + struct.pack("<6i", architecture, threads, columns, heads, ctas, shared_bytes)
        + bytes(8)
    )


# ---- the table ------------------------------------------------------------------------------------------------------
def test_the_row_that_serves_an_architecture():
    assert [
        rows.architecture_of(text)
        for text in ("80", "sm_86", "8.9", "90a", "9.0", "sm_90", "120", "12.0", "12.1", "sm_121")
    ] == [80] * 3 + [90] * 3 + [120] * 4
    for wrong in ("75", "10.0", "100a", "110", "hopper", ""):
        with pytest.raises(SystemExit, match="expected an architecture"):
            rows.architecture_of(wrong)


def test_rows_are_found_whole():
    assert sorted(ROWS) == [80, 90, 120]
    for architecture, row in ROWS.items():
        assert (
            row.startswith(f"{{.architecture = {architecture},")
            and row.endswith("}")
            and row.count("{") == row.count("}")
        )
        assert row.count(".architecture") == 1 and ".conv_ctas" in row
    with pytest.raises(SystemExit, match="no row"):
        rows.find_row(TABLE, 100)


def test_another_cta_changes_that_field_alone():
    row = ROWS[90]
    assert rows.cta_of(row, "wide") == (128, 2, 2, 2, 0, 0) and rows.cta_of(row, "few") == (128, 4, 1, 1, 0, 0)
    changed = rows.with_cta(row, "wide", (64, 2, 1, 4, 0, 0))
    assert changed.replace(".wide = {64, 2, 1, 4}", ".wide = {128, 2, 2, 2}") == row
    assert ".split_wide = {128, 1, 4, 2}" in changed and ".few_from_heads = 34" in rows.with_cta(row, "few", (64, 4, 2))
    for family in rows.SIZES:
        assert rows.with_cta(row, family, rows.cta_of(row, family)) == row
    assert rows.cta_of(rows.with_cta(row, "narrow", (32, 8, 1, 1, 120, 232)), "narrow") == (32, 8, 1, 1, 120, 232)


@pytest.mark.skipif(not shutil.which("g++"), reason="no g++")
def test_the_compiler_reads_the_row_as_the_script_does(tmp_path):
    def compiles(lines):
        source = tmp_path / "row.cpp"
        source.write_text("\n".join(lines))
        done = subprocess.run(
            ["g++", "-std=c++20", "-fsyntax-only", f"-I{ROOT}/src", str(source)], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr

    def says(architecture, family, cta):
        names = ("columns", "prep_warps", "depth", "ctas", "prep_registers", "solver_registers")
        return [
            f"static_assert(canopy::cuda::tuning_of({architecture}).{family}.{name} == {value});"
            for name, value in zip(names, cta)
        ]

    present = ['#include "cuda/tuning.hpp"']
    for architecture, row in ROWS.items():
        for family in rows.SIZES:
            present += says(architecture, family, rows.cta_of(row, family))
    compiles(present)
    row = " ".join(rows.with_cta(ROWS[120], "pair", (32, 4, 1, 2)).split())
    tried = [f"#define CANOPY_TUNING_ROW {row}", '#include "cuda/tuning.hpp"']
    compiles(
        tried
        + says(120, "pair", (32, 4, 1, 2, 0, 0))
        + says(120, "narrow", rows.cta_of(ROWS[120], "narrow"))
        + ["static_assert(sizeof canopy::cuda::kTuning == sizeof canopy::cuda::Tuning{});"]
    )


# ---- variants -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("architecture", list(rows.TARGETS))
def test_variants_can_be_made_into_shapes(architecture):
    variants = rows.variants_of(ROWS[architecture], architecture, list(rows.SIZES), 1000)
    assert len({v["name"] for v in variants}) == len(variants)
    for family in rows.SIZES:
        own = [v for v in variants if v["family"] == family]
        assert [v["present"] for v in own] == [True] + [False] * (len(own) - 1) and len(own) >= 5
        assert tuple(own[0]["cta"]) == rows.cta_of(ROWS[architecture], family)
    for v in variants:
        columns, prep_warps, depth, ctas, prep_registers, solver_registers = v["cta"]
        narrow, heads = v["family"] == "narrow", 2 if v["family"] == "pair" else 1
        assert 64 % columns == 0 or columns == 128, "V is 64 or 128"
        assert columns % (16 if narrow else 32) == 0 and prep_warps >= 1 and depth >= 1 and ctas >= 1
        solver_warps = 2 * columns // 16 if narrow else heads * columns // 32
        if prep_registers or solver_registers:
            assert architecture == 90, "setmaxnreg"
            assert (
                solver_warps % 4 == 0 and prep_warps % 4 == 0 and prep_registers % 8 == 0 and solver_registers % 8 == 0
            )
            launched = 65536 // (32 * (solver_warps + prep_warps) * ctas) // 8 * 8
            assert 24 <= prep_registers <= launched <= solver_registers <= 256
            assert (
                prep_warps * prep_registers + solver_warps * solver_registers <= (prep_warps + solver_warps) * launched
            ), "what some give, others take"


def test_the_budget_is_shared():
    names = [v["name"] for v in rows.variants_of(ROWS[90], 90, list(rows.SIZES), tiles.MOST)]
    assert len(names) == tiles.MOST and names[0] == "narrow-32x8x1" and names[6] == "wide-128x2x2x2"
    assert len(rows.variants_of(ROWS[90], 90, ["wide"], tiles.MOST)) == 1 + len(rows.VARIANTS["large"]["wide"])
    assert [v["present"] for v in rows.variants_of(ROWS[120], 120, ["few", "pair"], 1)] == [True, False] * 2, (
        "nothing is learnt from one alone"
    )
    # A row that took a variant: that one is the present CTA, and the others stay.
    taken = rows.with_cta(ROWS[90], "wide", (64, 2, 2, 3))
    others = [rows.name_of("wide", cta) for cta in rows.VARIANTS["large"]["wide"] if cta != (64, 2, 2, 3)]
    assert [v["name"] for v in rows.variants_of(taken, 90, ["wide"], 3)] == ["wide-64x2x2x3", *others[:2]]


def test_shapes_are_where_a_family_is_used():
    assert rows.shapes_of("narrow") == [
        "chain,1,31,32,1",
        "chain,1,63,64,1",
        "chain,1,127,128,1",
        "chain,1,255,256,1",
        "best-first,4,8,32,1",
        "best-first,4,8,64,1",
        "best-first,4,8,128,1",
        "best-first,4,8,256,1",
    ]
    import shapes

    core = {(r["family"], r["T"], r["B"]) for batch in (1, 16) for r in shapes.core(batch)}
    for family in ("narrow", "wide", "pair"):
        for shape in rows.shapes_of(family):
            tree, _, _, nodes, batch = shape.split(",")
            assert (tree, int(nodes), int(batch)) in core and int(nodes) > 16, (
                "smaller trees have a kernel of their own"
            )


# ---- reports --------------------------------------------------------------------------------------------------------
def test_ptxas_report():
    assert tiles.parse_report(REPORT.format(stack=0, stores=0, loads=0, registers=168)) == {
        "registers": 168,
        "spilled": 0,
    }
    assert tiles.parse_report(REPORT.format(stack=48, stores=52, loads=60, registers=128)) == {
        "registers": 128,
        "spilled": 112,
    }
    with pytest.raises(ValueError, match="nothing of registers"):
        tiles.parse_report("nvcc fatal   : Unsupported gpu architecture 'compute_42'")


def test_module_record_has_the_order_of_the_header():
    read = tiles.parse_module(module_of())
    assert read == {"architecture": 90, "threads": 192, "columns": 128, "heads": 1, "ctas": 2, "shared_bytes": 98912}
    header = (ROOT / "bench/tiles/cta.hpp").read_text()
    assert re.search(r"std::int32_t ([\w, ]+);", header)[1].split(", ") == list(read)
    assert "".join(re.findall(r"'(.)'", header)) == "canopyCT"
    with pytest.raises(ValueError, match="no CtaRecord"):
        tiles.parse_module(b"\x7fELF")


def test_what_does_not_fit_is_dropped():
    fits = {"architecture": 90, "shared_bytes": 98912, "ctas": 2, "spilled": 0, "threads": 192, "registers": 168}
    fits["cta"] = [128, 2, 2, 2, 0, 0]
    assert tiles.why_dropped(fits) == ""
    assert "spills 8 bytes" in tiles.why_dropped(fits | {"spilled": 8})
    assert "an SM has 233,472" in tiles.why_dropped(fits | {"ctas": 3})
    assert "a block has 101,376" in tiles.why_dropped(fits | {"architecture": 120, "shared_bytes": 101392, "ctas": 1})
    assert tiles.why_dropped(fits | {"architecture": 120, "shared_bytes": 101376, "ctas": 1}) == ""
    roles = fits | {"threads": 256, "registers": 128, "cta": [128, 4, 1, 2, 112, 144]}
    assert tiles.why_dropped(roles) == "" and tiles.why_dropped(roles | {"registers": 126}) == ""
    for wrong in ({"registers": 120}, {"cta": [128, 4, 1, 2, 112, 152]}, {"cta": [128, 4, 1, 2, 136, 144]}):
        assert "that a thread is launched with" in tiles.why_dropped(roles | wrong)


def test_flags_are_those_of_the_build():
    build = (ROOT / "cmake/cuda.cmake").read_text()
    for flag in tiles.FLAGS:
        assert flag.removeprefix("-D") in build, flag
    options = re.search(r"target_compile_options\(\$\{name\} PRIVATE ([^)]*?)\)", build)[1].split()
    assert [o for o in options if not o.startswith(("-gencode", "-Xcompiler"))] == [
        f for f in tiles.FLAGS if not f.startswith("-D")
    ]


# ---- the choice -----------------------------------------------------------------------------------------------------
def state_of(*names, family="wide", architecture=90):
    variants = [
        {
            "name": name,
            "family": family,
            "cta": list(map(int, name.split("-")[1].split("x"))),
            "present": i == 0,
            "dropped": "",
            "file": name + ".cubin",
        }
        for i, name in enumerate(names)
    ]
    for variant in variants:
        variant["cta"] += rows.DEFAULTS[len(variant["cta"]) :]
    return {
        "architecture": architecture,
        "target": rows.TARGETS[architecture][0],
        "row": ROWS[architecture],
        "variants": variants,
    }


def times_of(name, by, family="wide", **more):
    return [
        {
            "variant": name,
            "shape": shape,
            "cache": cache,
            "us": by * (i + 1) * (1 if cache == "warm" else 1.5),
            "gpu": "G",
        }
        | more
        for i, shape in enumerate(rows.shapes_of(family))
        for cache in ("cold", "warm")
    ]


def test_the_fastest_is_taken_if_it_is_worth_it():
    state = state_of("wide-128x2x2x2", "wide-64x2x2x3", "wide-128x3x1x2")
    base = times_of("wide-128x2x2x2", 10)
    taken = timing.Recorded(base + times_of("wide-64x2x2x3", 9.7) + times_of("wide-128x3x1x2", 9.8))
    assert timing.choose(state, taken) == {"wide": "wide-64x2x2x3"}
    assert timing.best_row(state, {"wide": "wide-64x2x2x3"}) == rows.with_cta(ROWS[90], "wide", (64, 2, 2, 3))
    kept = timing.Recorded(base + times_of("wide-64x2x2x3", 9.95) + times_of("wide-128x3x1x2", 12))
    assert (
        timing.choose(state, kept) == {"wide": "wide-128x2x2x2"}
        and timing.best_row(state, timing.choose(state, kept)) == ROWS[90]
    )


def test_what_failed_is_out_and_what_is_missing_decides_nothing(capsys):
    state = state_of("wide-128x2x2x2", "wide-64x2x2x3", "wide-128x3x1x2")
    records = times_of("wide-128x2x2x2", 10) + times_of("wide-64x2x2x3", 5) + times_of("wide-128x3x1x2", 9)
    cut = timing.Recorded(records[:-1])
    assert cut.left("wide", ["wide-128x3x1x2"]) == [rows.shapes_of("wide")[-1]] and timing.choose(state, cut) == {}
    timing.show(state, cut, {})
    assert "left: 1 of 6 shapes" in capsys.readouterr().out
    wrong = timing.Recorded(records + [{"variant": "wide-64x2x2x3", "failed": "wrong outputs"}])
    assert timing.choose(state, wrong) == {"wide": "wide-128x3x1x2"}
    timing.show(state, wrong, timing.choose(state, wrong))
    shown = capsys.readouterr().out
    assert "wide-64x2x2x3     wrong outputs" in shown and "0.900  best" in shown and "15.00/10.00" in shown
    again = timing.Recorded(records + times_of("wide-64x2x2x3", 20))
    assert timing.choose(state, again) == {"wide": "wide-128x3x1x2"}, "the last time counts"


def test_the_row_is_written_where_it_was(tmp_path):
    table = tmp_path / "tuning.hpp"
    table.write_text(TABLE)
    state, row = state_of("wide-128x2x2x2"), rows.with_cta(ROWS[90], "wide", (64, 2, 2, 3))
    timing.write_row(state, row, table)
    assert table.read_text() == TABLE.replace(".wide = {128, 2, 2, 2}", ".wide = {64, 2, 2, 3}")
    with pytest.raises(SystemExit, match="no longer what was built"):
        timing.write_row(state, row, table)
    with pytest.raises(SystemExit, match="is missing"):
        timing.write_row(state, row, tmp_path / "elsewhere")


# ---- both steps, with stand-ins -------------------------------------------------------------------------------------
FAKE_NVCC = """import os, sys
out, source = sys.argv[sys.argv.index("-o") + 1], open(sys.argv[-1]).read()
with open(os.environ["FAKE_LOG"], "a") as log:
    log.write(source.replace(chr(10), " ") + chr(10))
if ".wide = {64, 2, 2, 3}" in source:
    sys.exit("tile/shape.cuh(1): error: static assertion failed")
spilt = 16 if ".wide = {128, 3, 1, 2}" in source else 0
open(out, "wb").write(bytes.fromhex(os.environ["FAKE_MODULE"]))
sys.stderr.write(f"    0 bytes stack frame, {spilt} bytes spill stores, {spilt} bytes spill loads\\n")
sys.stderr.write("ptxas info    : Used 168 registers, used 1 barriers\\n")
"""
FAKE_TIMES = """import json, os, sys, time
with open(os.environ["FAKE_LOG"], "a") as log:
    log.write(json.dumps(sys.argv[1:]) + chr(10))
say = lambda **line: print(json.dumps(line), flush=True)
say(gpu="Test GPU", architecture=int(os.environ.get("FAKE_ARCHITECTURE", "90")))
names = [a.split("=")[0] for a in sys.argv[1:] if "=" in a]
for shape in [a for a in sys.argv[1:] if "," in a]:
    for name in names:
        say(shape=shape, trying=name)
        if name == "wide-9x9x9":
            os.abort()
        if name == "wide-8x8x8":
            time.sleep(60)
        if name == "wide-7x7x7":
            say(shape=shape, variant=name, failed="wrong outputs")
    say(shape=shape, timing=len(names))
    for cache in ("cold", "warm"):
        for name in names:
            if name != "wide-7x7x7":
                say(shape=shape, variant=name, cache=cache, us=10.0 if name == "wide-128x2x2x2" else 8.0)
    if os.environ.get("FAKE_STOP") == shape:
        sys.exit(1)
"""


def stand_in(path, code):
    path.write_text(f"#!{sys.executable}\n{code}")
    path.chmod(0o755)


@pytest.fixture
def log(tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("FAKE_MODULE", module_of().hex())
    return lambda: (tmp_path / "log").read_text().splitlines() if (tmp_path / "log").exists() else []


def test_build_drops_resumes_and_forgets(tmp_path, monkeypatch, log, capsys):
    stand_in(tmp_path / "nvcc", FAKE_NVCC)
    monkeypatch.setattr(tiles, "find_nvcc", lambda: str(tmp_path / "nvcc"))
    monkeypatch.setattr(tiles, "cutlass", lambda: "/cutlass")
    monkeypatch.setitem(rows.VARIANTS["large"], "wide", ((128, 3, 1, 2), (64, 2, 2, 3)))
    monkeypatch.setattr(tiles, "build_timer", lambda folder, jobs: None)
    folder = tmp_path / "out"
    tiles.build(90, folder, ["wide"], 3, 2)
    variants = {v["name"]: v for v in timing.read_state(folder)["variants"]}
    assert list(variants) == ["wide-128x2x2x2", "wide-128x3x1x2", "wide-64x2x2x3"]
    assert [v["dropped"] for v in variants.values()] == [
        "",
        "spills 32 bytes",
        "does not compile: tile/shape.cuh(1): error: static assertion failed",
    ]
    assert sorted(path.name for path in folder.iterdir()) == [
        "tile_rows.py",
        "tile_timing.py",
        "tiles.json",
        "tune_tiles.py",
        "wide-128x2x2x2.cubin",
    ]
    assert (
        variants["wide-128x2x2x2"]["shared_bytes"] == 98912 and "192 threads, 168 registers" in capsys.readouterr().out
    )
    assert len(log()) == 3 and any(
        "CANOPY_TILE_FAMILY wide" in line and ".wide = {128, 2, 2, 2}" in line for line in log()
    )
    (folder / "times.jsonl").write_text("{}\n")
    tiles.build(90, folder, ["wide"], 3, 2)
    assert len(log()) == 3 and (folder / "times.jsonl").exists(), "nothing to do"
    (folder / "wide-128x2x2x2.cubin").unlink()
    tiles.build(90, folder, ["wide"], 3, 2)
    assert len(log()) == 4 and not (folder / "times.jsonl").exists(), "times of what was built before"
    monkeypatch.setattr(tiles, "sources_hash", lambda row: "other sources")
    tiles.build(90, folder, ["wide"], 3, 2)
    assert len(log()) == 7


def timed(tmp_path, monkeypatch, *names, silence=20.0):
    stand_in(tmp_path / "tile_times", FAKE_TIMES)
    monkeypatch.setattr(timing, "SILENCE", silence)
    state = state_of(*names)
    (tmp_path / "tiles.json").write_text(json.dumps(state))
    return state


def test_times_go_on_where_they_stopped(tmp_path, monkeypatch, log, capsys):
    timed(tmp_path, monkeypatch, "wide-128x2x2x2", "wide-64x2x2x3")
    shapes = rows.shapes_of("wide")
    with monkeypatch.context() as stopped, pytest.raises(SystemExit, match="failed"):
        stopped.setenv("FAKE_STOP", shapes[1])
        timing.time_all(tmp_path, None, 0.05, False)
    timing.time_all(tmp_path, None, 0.05, False)
    assert [argument for argument in json.loads(log()[1]) if "," in argument] == shapes[2:]
    shown = capsys.readouterr().out
    assert f"{len(shapes) - 2} of {len(shapes)} shapes left" in shown and "0.800  best" in shown
    assert "measured on Test GPU" in shown and ".wide = {64, 2, 2, 3}" in shown
    timing.time_all(tmp_path, None, 0.05, False)
    assert len(log()) == 2, "nothing left"
    with (tmp_path / "times.jsonl").open("a") as to:
        to.write('{"variant": "wide-128x2x2x2", "gpu": "another"}\n{"cut o')
    with pytest.raises(SystemExit, match="Test GPU and of another|another and of Test GPU"):
        timing.time_all(tmp_path, None, 0.05, False)


def test_a_variant_that_crashes_hangs_or_is_wrong_is_left_out(tmp_path, monkeypatch, log, capsys):
    state = timed(
        tmp_path, monkeypatch, "wide-128x2x2x2", "wide-9x9x9", "wide-8x8x8", "wide-7x7x7", "wide-64x2x2x3", silence=5.0
    )
    timing.time_all(tmp_path, None, 0.05, False)
    recorded = timing.Recorded(timing.read_times(tmp_path))
    assert set(recorded.failed) == {"wide-9x9x9", "wide-8x8x8", "wide-7x7x7"}
    assert "stops the program" in recorded.failed["wide-9x9x9"] and recorded.failed["wide-8x8x8"] == "does not end"
    assert timing.choose(state, recorded) == {"wide": "wide-64x2x2x3"} and len(log()) == 3
    assert "wide-9x9x9: stops the program" in capsys.readouterr().out


def test_another_gpu_than_it_was_built_for(tmp_path, monkeypatch, log):
    timed(tmp_path, monkeypatch, "wide-128x2x2x2", "wide-64x2x2x3")
    monkeypatch.setenv("FAKE_ARCHITECTURE", "120")
    with pytest.raises(SystemExit, match="built for sm_90a, this is a Test GPU of 120"):
        timing.time_all(tmp_path, None, 0.05, False)
    with pytest.raises(SystemExit, match="build --arch"):
        timing.time_all(tmp_path / "nowhere", None, 0.05, False)

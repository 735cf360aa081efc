#!/usr/bin/env python3
"""The fused kernel's CTAs in other sizes, built and timed: a row for the table of src/cuda/tuning.hpp.

    tune_tiles.py [--write]                        all of it, for the GPU of this machine (make tune-tiles)
    tune_tiles.py build --arch 120 -o FOLDER       where nvcc is: a module a variant, and the program that times them
    tune_tiles.py time FOLDER [--write]            where the GPU is: Python's standard library and the driver suffice
    tune_tiles.py list --arch 120                  the variants

A variant is a row of the table with other numbers for one family of CTAs: narrow (one sequence), few (two to four),
wide (many), pair (many, large trees). It is compiled alone, for bf16 inputs, K = V = 128 and half. What spills, or does
not fit a block's shared memory, is dropped. The others take turns on the same inputs, by graph replays, warm and cold,
each checked against the fp64 oracle first. Both steps go on where they were stopped.

Thresholds (from how many heads a family is used) are not tried: those follow from `canopy bench`.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PARTS = [ROOT / "bench/tiles/tile_rows.py", ROOT / "bench/tiles/tile_timing.py"]  # in a built folder beside this file
sys.path.append(str(PARTS[0].parent))

from tile_rows import SIZES, TARGETS, architecture_of, find_row, variants_of, with_cta
from tile_timing import read_state, time_all

TABLE = ROOT / "src/cuda/tuning.hpp"
FOLDER = ROOT / "out/tiles"
# As cmake/cuda.cmake has them.
FLAGS = ("-std=c++20", "-O3", "--expt-relaxed-constexpr", "-Xptxas=-v", "-DCANOPY_WITH_CUDA=1")
MOST = 12  # variants in all, unless told otherwise: 10 to 40 s of a core each


def parse_report(report: str) -> dict[str, int]:
    """Registers and spilled bytes, of ptxas -v."""
    registers = re.search(r"Used (\d+) registers", report)
    if not registers:
        raise ValueError("ptxas said nothing of registers")
    stores, loads = (sum(map(int, re.findall(rf"(\d+) bytes spill {kind}", report))) for kind in ("stores", "loads"))
    return {"registers": int(registers[1]), "spilled": stores + loads}


def parse_module(image: bytes) -> dict[str, int]:
    """The CtaRecord of a module (bench/tiles/cta.hpp)."""
    at = image.find(b"canopyCT")
    if at < 0:
        raise ValueError("no CtaRecord in the module")
    names = ("architecture", "threads", "columns", "heads", "ctas", "shared_bytes")
    return dict(zip(names, struct.unpack_from("<6i", image, at + 8)))


def why_dropped(variant: dict[str, Any]) -> str:
    """Empty if it can be used."""
    _, block, sm = TARGETS[variant["architecture"]]
    shared, ctas = variant["shared_bytes"], variant["ctas"]
    if shared > block:
        return f"{shared:,} bytes of shared memory, a block has {block:,}"
    if ctas * (shared + 1024) > sm:
        return f"{ctas} CTAs of {shared:,} bytes of shared memory, an SM has {sm:,}"
    if variant["spilled"]:
        return f"spills {variant['spilled']} bytes"
    _, prep_warps, _, _, prep, solver = variant["cta"]
    if prep or solver:  # setmaxnreg would wait for registers for ever
        warps, each = variant["threads"] // 32, (variant["registers"] + 7) // 8 * 8
        asked = prep_warps * (prep or each) + (warps - prep_warps) * (solver or each)
        if asked > warps * each or prep > each or 0 < solver < each:
            return f"{prep} and {solver} registers out of the {each} that a thread is launched with"
    return ""


def sources_hash(row: str) -> str:
    digest = hashlib.sha256(row.encode() + " ".join(FLAGS).encode())
    for path in sorted(
        [
            *(ROOT / "src").glob("*.hpp"),
            *(ROOT / "src/cuda").rglob("*.*h"),
            *(ROOT / "src/cuda").rglob("*.hpp"),
            ROOT / "bench/tiles/variant.cu",
            ROOT / "bench/tiles/cta.hpp",
        ]
    ):
        if path != TABLE:  # the row stands for it
            digest.update(path.read_bytes())
    return digest.hexdigest()


def find_nvcc() -> str:
    found = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    if not found:
        raise SystemExit("tune-tiles: no nvcc found; `build` where it is, `time` here")
    return found


def cutlass() -> str:
    path = os.environ.get("CANOPY_CUTLASS_INCLUDE", ROOT / "build-cutlass/cutlass_library/source/include")
    if not Path(path, "cute").is_dir():
        raise SystemExit(
            "tune-tiles: no CUTLASS headers (scripts/setup.sh gpu installs them; or set CANOPY_CUTLASS_INCLUDE)"
        )
    return str(path)


def compile_variant(variant: dict[str, Any], row: str, architecture: int, folder: Path, nvcc: str) -> None:
    """Fills in what the module and ptxas say."""
    own = " ".join(with_cta(row, variant["family"], tuple(variant["cta"])).split())
    variant["file"] = variant["name"] + ".cubin"
    module, source = folder / variant["file"], folder / (variant["name"] + ".cu")
    module.unlink(missing_ok=True)
    # A file, since nvcc takes a comma in -D for the end of the macro.
    source.write_text(
        f"#define CANOPY_TUNING_ROW {own}\n#define CANOPY_TILE_FAMILY {variant['family']}\n"
        f'#include "{ROOT}/bench/tiles/variant.cu"\n'
    )
    command = [
        nvcc,
        "-cubin",
        f"-arch={TARGETS[architecture][0]}",
        *FLAGS,
        *(f"-I{ROOT / path}" for path in ("include", "src", "src/cuda")),
        "-isystem",
        cutlass(),
        "-o",
        str(module),
        str(source),
    ]
    started = time.monotonic()
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    variant["build_seconds"] = round(time.monotonic() - started, 1)
    source.unlink()
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error" in line]
        if not errors:  # killed
            raise SystemExit(f"tune-tiles: {' '.join(command[:3])} ...: status {done.returncode} {done.stderr[-200:]}")
        variant["dropped"] = "does not compile: " + errors[0]
        return
    variant |= parse_report(done.stderr)
    variant |= parse_module(module.read_bytes())
    why = why_dropped(variant)
    if variant["present"] and variant["spilled"] and why.startswith("spills"):
        why = ""  # what the others are held to, whatever it does
    variant["dropped"] = why


def build_timer(folder: Path, jobs: int) -> None:
    tree = ROOT / "build-tiles"
    log = folder / "build.log"
    commands = (
        [
            "cmake",
            "--preset",
            "default",
            "-B",
            str(tree),
            "-DCANOPY_CUDA=ON",
            "-DCANOPY_TESTS=OFF",
            "-DCANOPY_BENCH=OFF",
        ],
        ["ninja", "-C", str(tree), "-j", str(jobs), "tile_times"],
        ["strip", "-o", str(folder / "tile_times"), str(tree / "tile_times")],
    )
    with log.open("w") as to:
        for command in commands:
            if subprocess.run(command, check=False, cwd=ROOT, stdout=to, stderr=subprocess.STDOUT).returncode:
                raise SystemExit(
                    f"tune-tiles: {' '.join(command[:2])} failed: {log}\n"
                    + "\n".join(log.read_text().splitlines()[-10:])
                )


def build(architecture: int, folder: Path, families: list[str], most: int, jobs: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    nvcc, table = find_nvcc(), TABLE.read_text()
    row = table[slice(*find_row(table, architecture))]
    wanted = variants_of(row, architecture, families, most)
    state = {
        "target": TARGETS[architecture][0],
        "architecture": architecture,
        "row": row,
        "sources": sources_hash(row),
        "variants": wanted,
    }
    known = read_state(folder, missing_ok=True)
    built = {}
    if known.get("sources") == state["sources"]:
        built = {v["name"]: v for v in known["variants"] if "dropped" in v}
        built = {name: v for name, v in built.items() if v["dropped"] or (folder / v["file"]).exists()}
    todo = [variant for variant in wanted if variant["name"] not in built]
    wanted[:] = [built.get(variant["name"], variant) for variant in wanted]
    if todo:
        (folder / "times.jsonl").unlink(missing_ok=True)  # of other code, or without these beside them
    print(f"{state['target']}: {len(wanted)} variants, {len(todo)} to build, into {folder}", flush=True)
    for path in (Path(__file__).resolve(), *PARTS):
        if path.exists() and path.parent != folder.resolve():
            shutil.copy(path, folder)
    pool = concurrent.futures.ThreadPoolExecutor(jobs)
    try:
        timer = pool.submit(build_timer, folder, jobs)
        running = {pool.submit(compile_variant, variant, row, architecture, folder, nvcc): variant for variant in todo}
        for count, future in enumerate(concurrent.futures.as_completed(running), 1):
            future.result()
            variant = running[future]
            if variant["dropped"]:
                (folder / variant["file"]).unlink(missing_ok=True)
            (folder / "tiles.json").write_text(json.dumps(state, indent=1) + "\n")
            seconds, left = variant["build_seconds"], len(todo) - count
            print(f"  {variant['name']}: {describe(variant)}; {seconds:.0f} s, {left} left", flush=True)
        timer.result()
    finally:
        pool.shutdown(cancel_futures=True)
    (folder / "tiles.json").write_text(json.dumps(state, indent=1) + "\n")


def describe(variant: dict[str, Any]) -> str:
    if "registers" not in variant:
        return "dropped, " + variant["dropped"]
    text = f"{variant['threads']} threads, {variant['registers']} registers, {variant['shared_bytes']:,} B shared"
    return text + (f": dropped, {variant['dropped']}" if variant["dropped"] else "")


def gpu_architecture() -> int:
    try:
        said = subprocess.run(
            ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        raise SystemExit(
            "tune-tiles: no NVIDIA GPU here; `build --arch 120 -o FOLDER` builds for one elsewhere"
        ) from None
    return architecture_of(said.stdout.splitlines()[0])


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", nargs="?", choices=["all", "build", "time", "list"], default="all")
    parser.add_argument("folder", nargs="?", type=Path, help="what `build -o` named (time)")
    parser.add_argument("--arch", help="80, 90a or 120; otherwise this machine's GPU")
    parser.add_argument("-o", "--out", type=Path, default=FOLDER, help="where to build (out/tiles)")
    parser.add_argument("--family", nargs="+", choices=list(SIZES), help="otherwise all four")
    parser.add_argument("--most", type=int, default=MOST, help=f"variants to build in all ({MOST})")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="compilers at once")
    parser.add_argument(
        "--share",
        type=float,
        default=0.05,
        help="seconds of replays of a variant, shape and state of the caches (0.05)",
    )
    parser.add_argument("--write", action="store_true", help="put the best row into src/cuda/tuning.hpp")
    given = parser.parse_args(arguments)
    table = TABLE if given.write else None
    if given.step == "time":
        return time_all(given.folder or given.out, given.family, given.share, table)
    if not TABLE.exists():
        raise SystemExit(f"tune-tiles: {TABLE} is missing: outside a checkout there is `time FOLDER` alone")
    architecture = architecture_of(given.arch) if given.arch else gpu_architecture()
    families = given.family or list(SIZES)
    if given.step == "list":
        text = TABLE.read_text()
        for variant in variants_of(text[slice(*find_row(text, architecture))], architecture, families, given.most):
            print(variant["name"] + ("  present" if variant["present"] else ""))
        return None
    build(architecture, given.out, families, given.most, given.jobs)
    return time_all(given.out, families, given.share, table) if given.step == "all" else None


if __name__ == "__main__":
    main(sys.argv[1:])

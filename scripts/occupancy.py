"""CTAs and warps an SM of the main kernels, of sm_90a and sm_120: python3 scripts/occupancy.py [BUILD] [--write].

Registers are ptxas's (the reports beside the objects of a build with CUDA), threads and dynamic shared memory the launches' own
(scripts/occupancy.cpp). Only the objects that it names need to be built; it says which are not, and leaves a "-". --write puts the table into
docs/kernels.md.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT, BEGIN, END = ROOT / "docs/kernels.md", "<!-- begin: occupancy -->\n", "<!-- end: occupancy -->\n"
SIZES = (16, 64, 256)
# Of an SM: bytes of shared memory (1 KB more a CTA is the system's), warps, CTAs. CUDA C++ Programming Guide, compute capabilities.
SM = {90: ("sm_90a", 228 * 1024, 64, 32), 120: ("sm_120", 100 * 1024, 48, 24)}
REGISTERS, QUARTERS = 64 * 1024, 4  # a warp's registers come in 256s from its quarter of the SM


def launches() -> list[dict]:
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for half in (1, 0):
            program = f"{folder}/launches{half}"
            include = [f"-I{ROOT / name}" for name in ("tests/emulated", "include", "src")]
            defines = ["-DCANOPY_WITH_CUDA=1", "-D__CUDA_ARCH__=900", f"-DCANOPY_TENSOR_CORES={half}"]
            flags = ["-std=c++20", "-O1", "-w", "-fno-strict-aliasing"]
            subprocess.run(["g++", *flags, *include, *defines, str(ROOT / "scripts/occupancy.cpp"), "-o", program], check=True)
            for line in subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines():
                name, kernel, architecture, threads, *shared, title = line.split("|")
                found.append({"object": name, "kernel": kernel, "architecture": int(architecture), "threads": int(threads),
                              "shared": [int(size) for size in shared], "title": title})  # fmt: skip
    return found


def report(build: Path, name: str, kernel: str, architecture: str) -> tuple[int, int]:
    """Registers a thread and bytes of static shared memory."""
    path = build / f"CMakeFiles/canopy_cuda.dir/src/cuda/{name}.cu.o.ptxas"
    if not path.exists():
        raise LookupError(f"{path}: not there; build it with CUDA, CANOPY_BATCH=0: ninja -C {build} {path.relative_to(build).with_suffix('')}")
    text = subprocess.run(["c++filt"], input=path.read_text(), capture_output=True, text=True, check=True).stdout
    for part in text.split("Compiling entry function")[1:]:
        if f"'{architecture}'" in part and kernel in part.split("\n")[0].replace("canopy::cuda::", ""):
            used = re.search(r"Used (\d+) registers", part)
            static = re.search(r"(\d+) bytes smem", part)
            return int(used[1]), int(static[1]) if static else 0
    raise LookupError(f"{path}: no {kernel} for {architecture}; build it again")


def resident(architecture: int, threads: int, registers: int, shared: int) -> tuple[int, str]:
    """CTAs an SM, and what allows no more."""
    _, memory, most_warps, most_ctas = SM[architecture]
    warps = -(-threads // 32)
    a_warp = -(-registers * 32 // 256) * 256
    limits = {
        "shared memory": memory // (-(-(shared + 1024) // 128) * 128),
        "registers": REGISTERS // QUARTERS // a_warp * QUARTERS // warps,
        "warps": most_warps // warps,
        "CTAs": most_ctas,
    }
    least = min(limits, key=lambda name: limits[name])
    return limits[least], least


def cell(build: Path, launch: dict) -> list[str]:
    """[threads x registers, bytes; CTAs (warps): limit]; where T matters, a value for each of SIZES."""
    architecture, threads = launch["architecture"], launch["threads"]
    registers, static = report(build, launch["object"], launch["kernel"], SM[architecture][0])
    sizes = [static + dynamic for dynamic in launch["shared"]]
    ctas = [resident(architecture, threads, registers, size) for size in sizes]
    each = lambda values: " / ".join(values if len(set(values)) > 1 else values[:1])
    counts = each([f"{count} ({count * -(-threads // 32)})" for count, _ in ctas])
    limits = ", then ".join(dict.fromkeys(limit for _, limit in ctas))
    return [f"{threads} x {registers}, {each([f'{size:,}' for size in sizes])}", f"{counts}: {limits}"]


def table(build: Path) -> str:
    rows: dict[str, list[str]] = {}
    for launch in sorted(launches(), key=lambda launch: launch["architecture"]):
        try:
            cells = cell(build, launch)
        except LookupError as error:
            print(f"occupancy: {error}", file=sys.stderr)
            cells = ["-", "-"]
        rows.setdefault(launch["title"], []).extend(cells)
    text = "| kernel | sm_90a: threads x registers, bytes | CTAs (warps) an SM | sm_120 | CTAs (warps) an SM |\n|---|---|---|---|---|\n"
    return text + "".join(f"| {' | '.join([title, *cells])} |\n" for title, cells in rows.items())


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("build", nargs="?", default="build", help="a build folder with CUDA")
    parser.add_argument("--write", action="store_true", help="into docs/kernels.md")
    options = parser.parse_args()
    if next(Path(options.build).rglob("*.ptxas"), None) is None:
        print(f"{options.build}: expected a build with CUDA, got no report of ptxas; cmake -DCANOPY_CUDA=ON, then ninja", file=sys.stderr)
        return 1
    text = table(Path(options.build))
    if not options.write:
        print(text, end="")
        return 0
    before, _, rest = DOCUMENT.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        print(f"{DOCUMENT}: expected the lines {BEGIN.strip()} and {END.strip()}; put them back", file=sys.stderr)
        return 1
    DOCUMENT.write_text(before + BEGIN + text + END + after)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Everything of the Python package that needs a GPU: python tests/python/gpu/run.py [--sglang FOLDER] [--json FILE]

| section | what it checks |
|---|---|
| operators | the operators on CUDA: parity, opcheck, compilation, graphs, streams, views, refusals; the convolution's bits |
| devices | several GPUs in one process |
| contenders | the Triton kernels: parity, commit |
| peers | flash-linear-attention on chains; SGLang's kernels beside the adapter |

Times follow the checks of a section. A table at the end; exit status 1 when a check failed or none ran, 2 when nothing can run here,
with the reason. Triton kernels are compiled by several processes first: tuning is what takes the time.
"""

from __future__ import annotations

import argparse
import importlib.util
import pathlib
import subprocess
import sys
import time

import canopy_gdn
import common
import contenders
import convolution
import devices
import operators
import peers
import torch
from common import say


SECTIONS = ("operators", "devices", "contenders", "peers")


def missing() -> str:
    """Why nothing can be checked here, "" where it can."""
    if not torch.cuda.is_available():
        build = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "a CPU build"
        return f"GPU: expected one that PyTorch sees, got none (torch {torch.__version__}, {build}); nvidia-smi says whether there is one"
    entries = [entry for entry in canopy_gdn.implementations() if entry.device == "cuda"]
    if not entries:
        return "canopy_gdn: expected a build with CUDA kernels, got one without; build the wheel where nvcc 12.8 or newer is found (make wheel)"
    unusable = [f"{entry.name}: {entry.missing}" for entry in entries if not entry.usable]
    return unusable[0] if len(unusable) == len(entries) else ""


def compile_ahead(only: list[str]) -> dict[str, subprocess.Popen]:
    """Processes that compile and tune what the sections will use."""
    jobs = []
    if "contenders" in only:
        jobs += [f"{strategy}:{precision}" for strategy, precision in contenders.VARIANTS]
    if "peers" in only and importlib.util.find_spec("fla"):
        jobs += ["fla:fused_recurrent_gated_delta_rule", "fla:chunk_gated_delta_rule"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return {job: subprocess.Popen([sys.executable, __file__, "--warm", job], **quiet) for job in jobs}


def compiled(compiling: dict[str, subprocess.Popen], seconds: float = 240) -> None:
    """Waits for them. One that fails or hangs is said and not fatal: the check that needs its kernels compiles them, or fails itself."""
    until = time.monotonic() + seconds
    for job, process in compiling.items():
        try:
            status = process.wait(timeout=max(until - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            process.kill()
            status = f"nothing after {seconds:.0f} s"
        if status:
            say(f"       compiling {job} ahead ended with {status}")


def warm(what: str) -> None:
    kind, _, rest = what.partition(":")
    peers.fla(rest) if kind == "fla" else contenders.warm(kind, rest)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sglang", help="folder that holds an unpacked sglang/ (pip download --no-deps sglang, unzip)")
    parser.add_argument("--json", help="write the measurements there, a line each")
    parser.add_argument(
        "--only", default=",".join(SECTIONS), help="sections in the order to run (default: %(default)s)"
    )
    parser.add_argument("--no-ahead", action="store_true", help="do not compile ahead (Triton's cache is full)")
    parser.add_argument("--warm", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.only = options.only.split(",")
    unknown = [name for name in options.only if name not in SECTIONS]
    if unknown:
        parser.error(f"--only {unknown[0]}: expected sections of {', '.join(SECTIONS)}, separated by commas")
    if options.sglang and not (pathlib.Path(options.sglang) / "sglang" / "kernels").is_dir():
        parser.error(
            f"--sglang {options.sglang}: expected a folder with sglang/kernels in it, found none; unpack the sglang wheel there"
        )
    if options.json and not pathlib.Path(options.json).resolve().parent.is_dir():
        parser.error(f"--json {options.json}: expected a file in a folder that exists")
    return options


def main() -> int:
    options = arguments()
    if why := missing():
        print(f"run.py: {why}", file=sys.stderr)
        return 2
    if options.warm:
        warm(options.warm)
        return 0
    say(
        f"torch {torch.__version__}, canopy-gdn {canopy_gdn.__version__}, {torch.cuda.device_count()} x {torch.cuda.get_device_name()}"
    )
    compiling = {} if options.no_ahead else compile_ahead(options.only)
    try:
        if "operators" in options.only:
            with common.section("operators"):  # while the others compile
                operators.run()
                convolution.run()
        compiled(compiling)
        runs = {
            "operators": lambda: (operators.cost(), convolution.cost()),
            "devices": devices.run,
            "contenders": contenders.run,
            "peers": lambda: peers.run(options.sglang),
        }
        for name in options.only:
            with common.section(name):
                runs[name]()
    finally:
        for process in compiling.values():
            process.kill()
        if options.json:
            common.save(options.json)
    return common.verdict()


if __name__ == "__main__":
    sys.exit(main())

"""Everything of the Python package that needs a GPU: python tests/python/gpu/run.py [--sglang FOLDER] [--json FILE]

Operators on CUDA, the convolution's, several devices, the Triton contenders, flash-linear-attention on chains, SGLang's kernels
beside the adapter. Exit status 1 when a check fails. Triton kernels are compiled by several processes first: tuning is what takes the time.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

import common
import contenders
import convolution
import devices
import operators
import peers
import torch
from common import say


def compile_ahead() -> list[subprocess.Popen]:
    jobs = [["--warm", f"{strategy}:{precision}"] for strategy, precision in contenders.VARIANTS if precision != "fp32"]
    jobs += [["--warm", "fla:fused_recurrent_gated_delta_rule"], ["--warm", "fla:chunk_gated_delta_rule"]]
    return [
        subprocess.Popen([sys.executable, __file__, *job], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for job in jobs
    ]


def warm(what: str) -> None:
    kind, _, rest = what.partition(":")
    peers.fla(rest) if kind == "fla" else contenders.warm(kind, rest)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sglang", help="folder that holds an unpacked sglang/")
    parser.add_argument("--json", help="write the measurements there, a line each")
    parser.add_argument("--only", default="operators,devices,contenders,peers", help="sections, in the order to run")
    parser.add_argument("--no-ahead", action="store_true", help="do not compile ahead (Triton's cache is full)")
    parser.add_argument("--warm", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.warm:
        warm(options.warm)
        return 0
    only = options.only.split(",")
    say(f"torch {torch.__version__}, {torch.cuda.get_device_name()}")
    compiling = compile_ahead() if set(only) & {"contenders", "peers"} and not options.no_ahead else []
    try:
        if "operators" in only:
            operators.run()
            convolution.run()
        for process in compiling:
            process.wait(timeout=150)
        sections = {
            "operators": lambda: (operators.cost(), convolution.cost()),
            "devices": devices.run,
            "contenders": contenders.run,
            "peers": lambda: peers.run(options.sglang),
        }
        for name in only:
            sections[name]()
    finally:
        for process in compiling:
            process.kill()
        if options.json:
            common.save(options.json)
    say(f"{len(common.failures)} failed" + "".join(f"\n  {name}" for name in common.failures))
    return len(common.failures) > 0


if __name__ == "__main__":
    sys.exit(main())

"""Everything of the Python package that needs a GPU: python tests/python/gpu/run.py [--sglang FOLDER] [--json FILE] [--logs FOLDER]

| section | what it checks |
|---|---|
| operators | the operators on CUDA: parity, opcheck, compilation, graphs, streams, views, refusals; the convolution's bits |
| devices | several GPUs in one process |
| contenders | the Triton kernels: parity, commit |
| transformers | the adapter beside Qwen3_5GatedDeltaNet along every root path; rounds, graphs |
| peers | flash-linear-attention on chains; SGLang's kernels beside the adapter, with padding and tracked states |

Times follow the checks of a section. A table at the end; exit status 1 when a check failed or none ran, 2 when nothing can run here,
with the reason. Standard output has a line a check, standard error the tracebacks. Triton kernels are compiled by as many processes as
there are cores first (ahead.py).
"""

from __future__ import annotations

import argparse
import faulthandler
import pathlib
import signal
import sys
from typing import Any

import ahead
import canopy_gdn
import common
import contenders
import convolution
import devices
import operators
import peers
import torch
import transformers_layer
from common import say


SECTIONS = ("operators", "devices", "contenders", "transformers", "peers")


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


def compile_ahead(options: argparse.Namespace) -> ahead.Compiling:
    """Processes that compile what the sections will use."""
    jobs = peers.jobs(options.sglang) if "peers" in options.only else []
    jobs += contenders.jobs() if "contenders" in options.only else []
    more = ["--sglang", options.sglang] if options.sglang else []
    return ahead.Compiling([__file__, *more], [] if options.no_ahead else jobs, options.logs)


def warm(item: str, sglang: str | None) -> None:
    job, part, parts = ahead.split(item)
    ahead.share_of_configurations(part, parts)
    kind, _, rest = job.partition(":")
    if kind == "triton":
        contenders.warm(*rest.split(":"))
    else:
        peers.warm(kind, rest, sglang)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sglang", help="folder that holds an unpacked sglang/ (pip download --no-deps sglang, unzip)")
    parser.add_argument("--json", help="write the measurements there, a line each, as they are made")
    parser.add_argument("--logs", help="folder for the output of the processes that compile ahead")
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


def stopped(number: int, frame: Any) -> None:
    sys.exit(128 + number)


def main() -> int:
    options = arguments()
    if why := missing():
        print(f"run.py: {why}", file=sys.stderr)
        return 2
    if options.warm:
        warm(options.warm, options.sglang)
        return 0
    signal.signal(signal.SIGTERM, stopped)
    faulthandler.register(signal.SIGTERM, chain=True)  # says where it hangs, also inside a call that does not return
    say(
        f"torch {torch.__version__}, canopy-gdn {canopy_gdn.__version__}, {torch.cuda.device_count()} x {torch.cuda.get_device_name()}"
    )
    common.keep(options.json)
    compiling = compile_ahead(options)
    runs = {
        "operators": lambda: (operators.cost(), convolution.cost()),
        "devices": devices.run,
        "contenders": contenders.run,
        "transformers": transformers_layer.run,
        "peers": lambda: peers.run(options.sglang),
    }
    try:
        if "operators" in options.only:
            with common.section("operators"):  # while the others compile
                operators.run()
                convolution.run()
        compiling.wait()
        for name in options.only:
            with common.section(name):
                runs[name]()
    except SystemExit:  # stopped from outside: what was found until then is said
        common.say("stopped")
        common.sections[-1].failed.append("stopped before its end")
    finally:
        compiling.stop()
    return common.verdict()


if __name__ == "__main__":
    sys.exit(main())

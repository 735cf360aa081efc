"""python -m canopy_gdn.env: versions, GPU, and which implementations can run here and why not. Works when the rest does not.

--json prints the same as one object.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import pathlib
import platform
import sys
from collections.abc import Callable
from typing import Any


def _tried(ask: Callable[[], Any]) -> Any:
    """The answer, or what went wrong in one line: a broken part must not hide the others."""
    try:
        return ask()
    except Exception as error:  # noqa: BLE001, whatever a broken installation throws belongs into the report
        return f"not available: {type(error).__name__}: {error}"


def _package(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _cpu() -> str:
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _gpus() -> list[str] | str:
    import torch

    if not torch.cuda.is_available():
        return f"none that PyTorch sees ({f'built for CUDA {torch.version.cuda}' if torch.version.cuda else 'a CPU build'})"
    names = []
    for index in range(torch.cuda.device_count()):
        p = torch.cuda.get_device_properties(index)
        names.append(
            f"{p.name}, sm_{p.major}{p.minor}, {p.multi_processor_count} SMs, {p.total_memory / 2**30:.0f} GiB"
        )
    return names


def _kernels() -> str:
    from . import _abi

    if _abi.plan_row_bytes("cuda"):
        return "in this build"
    return "none in this build (made without nvcc 12.8 or newer, or told to do without); build the wheel again where it is found"


def _operators() -> str:
    from . import _abi, ops  # noqa: F401, loads the operators

    names = sorted(name.partition("::")[2] for name in _schemas())
    return f"{', '.join(names)} (plans on {', '.join(d for d in ('cpu', 'cuda') if _abi.plan_row_bytes(d))})"


def _schemas() -> list[str]:
    import torch

    return [s.name for s in torch._C._jit_get_all_schemas() if s.name.startswith("canopy_gdn::")]


def report() -> dict[str, Any]:
    """Everything as a dictionary of texts and lists."""
    from . import __version__, _abi

    return {
        "canopy_gdn": __version__,
        "libcanopy": _tried(_abi.library_version),
        "library folder": str(_abi.library_folder()),
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "cpu": _tried(_cpu),
        "packages": {name: _package(name) for name in ("numpy", "torch", "triton", "transformers", "sglang")},
        "gpu": _tried(_gpus),
        "CUDA kernels": _tried(_kernels),
        "operators": _tried(_operators),
        "implementations": _tried(
            lambda: [
                {
                    "kind": i.kind,
                    "name": i.name,
                    "device": i.device,
                    "usable": i.usable,
                    "missing": i.missing,
                    "description": i.description,
                }  # fmt: skip
                for i in _abi.implementations()
            ]
        ),
    }


def _lines(found: dict[str, Any]) -> list[str]:
    lines = [
        f"{name:15} {found[name]}"
        for name in ("canopy_gdn", "libcanopy", "library folder", "python", "platform", "cpu")
    ]
    lines += [f"{name:15} {version}" for name, version in found["packages"].items()]
    gpus = found["gpu"] if isinstance(found["gpu"], list) else [found["gpu"]]
    lines += [f"{'gpu':15} {gpu}" for gpu in gpus]
    lines += [f"{name:15} {found[name]}" for name in ("CUDA kernels", "operators")] + [""]
    if isinstance(found["implementations"], str):
        return [*lines, f"implementations {found['implementations']}"]
    for entry in found["implementations"]:
        state = "usable" if entry["usable"] else f"not here: {entry['missing']}"
        lines.append(f"{entry['kind']:13} {entry['name']:24} {state}")
    return lines


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m canopy_gdn.env", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object")
    found = report()
    print(json.dumps(found, indent=2) if parser.parse_args(arguments).json else "\n".join(_lines(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

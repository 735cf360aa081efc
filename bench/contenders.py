"""The one registry of what is measured: the program's own (`canopy env`), the Triton kernels, the peers.

The program's implementations are not listed here by hand: `from_program` walks its registry, so that a new kernel is swept as soon as
it is registered. Who runs what: `program` is timed by `canopy bench --requests`, `torch` by bench/torch_worker.py.
python3 bench/contenders.py [PROGRAM] lists what this machine can measure.
"""

from __future__ import annotations

import collections
import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from records import ROOT


@dataclass(frozen=True)
class Contender:
    name: str  # as in result files: "cuda_fused", "triton_fused precise", "sglang_tree"
    strategy: str
    device: str  # "cpu", "cuda"
    runner: str  # "program", "torch"
    description: str
    chains_only: bool = False

    @property
    def serial(self) -> bool:
        return "serial" in self.strategy


def strategy_of(name: str) -> str:
    """ "fused" of "cuda_fused precise", "serial_resident" of "cpu_serial_resident"; "floor" stays."""
    name = name.partition(" ")[0]
    for device in ("cpu_", "cuda_", "triton_"):
        if name.startswith(device):
            return name.removeprefix(device)
    return name


def same_as_default(name: str) -> list[str]:
    """Precisions that run the code of the default, without a stash (cli/bench_record.cpp)."""
    return ["fp32"] if name.startswith("cpu_") or "serial" in name else ["half"]


def from_program(environment: dict[str, Any]) -> list[Contender]:
    """Every implementation of verify in the program's registry but the reference."""
    found = []
    for entry in environment["implementations"]:
        name = entry["name"]
        if entry["kind"] == "verify" and not name.startswith("reference_"):
            found.append(Contender(name, strategy_of(name), name.partition("_")[0], "program", entry["description"]))
    return found


TRITON = [Contender(f"triton_{name} {precision}", name, "cuda", "torch", f"python/canopy_gdn/triton, {name}, {precision}")
          for name, precision in (("fused", "precise"), ("fused", "fast"), ("split", "precise"), ("split", "fast"),
                                  ("neumann", "precise"), ("squaring", "precise"), ("serial", "fp32"), ("resident", "fp32"))]  # fmt: skip
PEERS = [
    Contender("fla_recurrent", "serial_resident", "cuda", "torch", "flash-linear-attention fused_recurrent_gated_delta_rule", True),
    Contender("fla_chunk", "chunk", "cuda", "torch", "flash-linear-attention chunk_gated_delta_rule", True),
    Contender("sglang_tree", "serial_snapshot", "cuda", "torch", "SGLang's tree kernel with a snapshot a node"),
]
# Beside the contenders in one process: what the torch worker's times are compared with, across processes too.
ANCHOR = Contender("dispatched", "dispatched", "cuda", "torch", "what canopy's dispatcher picks, called through PyTorch")
NOT_VERIFY = {"floor": "the same loads and stores, nothing computed", "plan": "the plan of the batch's trees", "copy": "a device copy",
              "cuda_conv": "the tree convolution", "cuda_conv_commit": "the commit of its windows"}  # fmt: skip


def importable(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def torch_contenders() -> list[Contender]:
    """What this Python can run: Triton's where torch and triton are, a peer where its package is. SGLang's kernels are loaded from an
    unpacked wheel: CANOPY_SGLANG names the folder that holds its sglang/."""
    if not (importable("torch") and importable("triton") and importable("canopy_gdn")):
        return []
    found = [ANCHOR, *TRITON]
    if importable("fla"):
        found += [peer for peer in PEERS if peer.name.startswith("fla_")]
    if os.environ.get("CANOPY_SGLANG"):
        found += [peer for peer in PEERS if peer.name.startswith("sglang_")]
    return found


def registry(environment: dict[str, Any]) -> list[Contender]:
    """All that this machine can measure."""
    return from_program(environment) + torch_contenders()


def contending(cells: list[dict[str, Any]], near: float = 1.1, stash: bool = False) -> list[str]:
    """Who can win: implementations at default precision that the dispatcher may pick and that on some of these cells took at most `near`
    times the best; with them what tables divide by, however slow, the serial kernels and the fused one. `stash`: of cells that store u."""
    groups: dict[Any, dict[str, float]] = collections.defaultdict(dict)
    for cell in cells:
        free = cell.get("precision") == "default" and bool(cell.get("stash")) == stash and cell.get("passed") and not cell.get("named_only")
        if free and cell["contender"].partition("_")[0] in ("cpu", "cuda") and "_commit_" not in cell["contender"]:
            at = tuple(cell.get(name) for name in ("B", "T", "family", "depth", "HV", "state", "cache"))
            groups[at][cell["contender"]] = cell["median_us"]
    found = {name for times in groups.values() for name, time in times.items() if time <= near * min(times.values())}
    found |= {name for times in groups.values() for name in times if "serial" in name or name.endswith("_fused")}
    return sorted(found)


def known(name: str, environment: dict[str, Any]) -> bool:
    """Whether a result file may hold a contender of this name, by the environment record of its run."""
    everywhere = {contender.name for contender in (ANCHOR, *TRITON, *PEERS)} | NOT_VERIFY.keys()
    own = {entry["name"] for entry in environment["implementations"]}
    return name in everywhere or name.partition(" ")[0] in own


if __name__ == "__main__":
    program = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "build/canopy")
    said = subprocess.run([program, "env", "--json"], capture_output=True, text=True, check=True).stdout
    for contender in registry(json.loads(said)):
        print(f"{contender.name:28} {contender.device:5} {contender.description}")

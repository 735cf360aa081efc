"""The C interface (canopy/canopy.h) through ctypes: the library, its structs and its registry."""

from __future__ import annotations

import ctypes
import functools
import operator
import os
import pathlib
from dataclasses import dataclass

ABI_VERSION = 1
MAX_NODES = 256

F32, BF16, F16, I32, I64 = range(5)
CPU, CUDA = 0, 1
STATE_LAYOUTS = {"vk": 0, "kv": 1}
PRECISIONS = {"default": 0, "fp32": 1, "precise": 2, "half": 3, "fast": 4}
METHODS = {"resolve": 0, "stash": 1, "replay": 2}
STATUS = {1: "invalid", 2: "unsupported", 3: "workspace", 4: "internal"}


class CanopyError(RuntimeError):
    """A call that was refused. The message names the argument, what was expected, what came and the remedy."""

    def __init__(self, message: str, status: str = "invalid") -> None:
        super().__init__(message)
        self.status = status
        """"invalid", "unsupported" (a legal request that no, or not the named, implementation takes), "workspace" or
        "internal"."""


class Error(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int32), ("message", ctypes.c_char * 1020)]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("stride", ctypes.c_int64 * 5),
    ]


class Trees(ctypes.Structure):
    _fields_ = [
        ("parents", ctypes.c_void_p),
        ("next_token", ctypes.c_void_p),
        ("next_sibling", ctypes.c_void_p),
        ("row_stride", ctypes.c_int64),
        ("count", ctypes.c_void_p),
        ("plan", ctypes.c_void_p),
    ]


class Problem(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int32) for name in "abi_version device batch nodes heads_k heads_v dim_k dim_v".split()),
        ("trees", Trees),
        *((name, Tensor) for name in "q k v g beta a b a_log dt_bias".split()),
        ("beta_doubled", ctypes.c_int32),
        ("l2norm", ctypes.c_int32),
        ("l2norm_eps", ctypes.c_float),
        ("scale", ctypes.c_float),
        ("state", Tensor),
        ("state_layout", ctypes.c_int32),
        ("slot_index_dtype", ctypes.c_int32),
        ("slots", ctypes.c_int64),
        ("slot_index", ctypes.c_void_p),
        ("padding_slot", ctypes.c_int64),
    ]


class VerifyParams(ctypes.Structure):
    _fields_ = [
        ("problem", Problem),
        ("precision", ctypes.c_int32),
        ("max_depth", ctypes.c_int32),
        ("o", Tensor),
        ("stash_u", Tensor),
        ("stash_l", Tensor),
        ("row_status", ctypes.c_void_p),
    ]


class CommitParams(ctypes.Structure):
    _fields_ = [
        ("problem", Problem),
        ("layers", ctypes.c_int32),
        ("method", ctypes.c_int32),
        ("leaf", ctypes.c_void_p),
        ("dst_slot", ctypes.c_void_p),
        ("track_leaf", ctypes.c_void_p),
        ("track_slot", ctypes.c_void_p),
        ("stash_u", Tensor),
        ("stash_l", Tensor),
        ("row_status", ctypes.c_void_p),
    ]


class ConvProblem(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int32) for name in "abi_version device batch nodes channels width".split()),
        ("trees", Trees),
        ("x", Tensor),
        ("state", Tensor),
        ("slots", ctypes.c_int64),
        ("slot_index", ctypes.c_void_p),
        ("padding_slot", ctypes.c_int64),
        ("slot_index_dtype", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
    ]


class ConvVerifyParams(ctypes.Structure):
    _fields_ = [
        ("problem", ConvProblem),
        ("weight", Tensor),
        ("bias", Tensor),
        ("silu", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("o", Tensor),
        ("row_status", ctypes.c_void_p),
    ]


class ConvCommitParams(ctypes.Structure):
    _fields_ = [
        ("problem", ConvProblem),
        ("layers", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("leaf", ctypes.c_void_p),
        ("dst_slot", ctypes.c_void_p),
        ("track_leaf", ctypes.c_void_p),
        ("track_slot", ctypes.c_void_p),
        ("row_status", ctypes.c_void_p),
    ]


class ImplementationInfo(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("description", ctypes.c_char_p),
        ("device", ctypes.c_int32),
        ("usable", ctypes.c_int32),
        ("missing", ctypes.c_char_p),
    ]


class TreeArrays(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int32) for name in "nodes depth dense_blocks compressed_blocks".split()),
        *((name, ctypes.c_void_p) for name in "parents depths dfs_order level_order subtree_sizes ancestors".split()),
    ]


def library_folder() -> pathlib.Path:
    """Where the shared libraries lie: beside this file, or in CANOPY_LIBRARY_DIR (a build folder)."""
    chosen = os.environ.get("CANOPY_LIBRARY_DIR")
    return pathlib.Path(chosen) if chosen else pathlib.Path(__file__).parent / "_lib"


_SIGNATURES = {
    "canopy_verify_params_init": "r",
    "canopy_commit_params_init": "r",
    "canopy_conv_verify_params_init": "r",
    "canopy_conv_commit_params_init": "r",
    "canopy_plan_bytes": "r",
    "canopy_plan": "rpzpr",
    "canopy_verify_workspace": "rsrr",
    "canopy_verify": "rspzpr",
    "canopy_commit_workspace": "rsrr",
    "canopy_commit": "rspzpr",
    "canopy_conv_verify_workspace": "rsrr",
    "canopy_conv_verify": "rspzpr",
    "canopy_conv_commit_workspace": "rsrr",
    "canopy_conv_commit": "rspzpr",
    "canopy_implementation_count": "i",
    "canopy_implementation_at": "iir",
    "canopy_explain": "rpzrr",
    "canopy_tree_from_parents": "pirr",
    "canopy_tree_parse": "szsiprr",
    "canopy_tree_write": "pispzrr",
    "canopy_tree_family": "siiiupr",
    "canopy_oracle_verify": "rpppr",
    "canopy_oracle_state": "rppr",
    "canopy_version": "",
}
_KINDS = {
    "r": ctypes.c_void_p,  # byref of a struct, or None
    "p": ctypes.c_void_p,
    "s": ctypes.c_char_p,
    "i": ctypes.c_int32,
    "u": ctypes.c_uint64,
    "z": ctypes.c_size_t,
}


@functools.cache
def library() -> ctypes.CDLL:
    """libcanopy, loaded once. Raises CanopyError when it is missing or has another ABI."""
    folder = library_folder()
    path = next((p for p in (folder / "libcanopy.so.0", folder / "libcanopy.so") if p.exists()), None)
    if path is None:
        raise CanopyError(
            f"libcanopy.so.0: expected it in {folder}, found none; install the package (pip install .), or set "
            "CANOPY_LIBRARY_DIR to a build folder that holds libcanopy.so",
            "internal",
        )
    loaded = ctypes.CDLL(str(path))
    for name, kinds in _SIGNATURES.items():
        function = getattr(loaded, name)
        function.argtypes = [_KINDS[kind] for kind in kinds]
        function.restype = ctypes.c_int32
    loaded.canopy_plan_bytes.restype = ctypes.c_size_t
    loaded.canopy_version.restype = ctypes.c_char_p
    params = VerifyParams()
    loaded.canopy_verify_params_init(ctypes.byref(params))
    if params.problem.abi_version != ABI_VERSION:
        raise CanopyError(
            f"{path}: expected ABI {ABI_VERSION}, got {params.problem.abi_version}; install package and library together",
            "internal",
        )
    return loaded


def call(name: str, *arguments: object) -> None:
    """Calls a function of the C interface whose last parameter is the error; raises its message."""
    error = Error()
    if getattr(library(), name)(*arguments, ctypes.byref(error)) != 0:
        raise CanopyError(error.message.decode(errors="replace"), STATUS.get(error.status, "internal"))


def text_of(name: str, *arguments: object) -> str:
    """Calls a function that writes a text: its size first, then the text."""
    needed = ctypes.c_size_t()
    call(name, *arguments, None, 0, ctypes.byref(needed))
    buffer = ctypes.create_string_buffer(needed.value)
    call(name, *arguments, buffer, needed.value, None)
    return buffer.value.decode()


@functools.cache
def plan_row_bytes(device: str) -> int:
    """Bytes of one sequence's plan on "cpu" or "cuda": the same for every tree and batch. 0 where this build has no such device."""
    params = VerifyParams()
    library().canopy_verify_params_init(ctypes.byref(params))
    params.problem.device = CUDA if device == "cuda" else CPU
    params.problem.batch = params.problem.nodes = 1
    return library().canopy_plan_bytes(ctypes.byref(params.problem))


def integer(argument: str, value: object, bits: int = 64) -> int:
    """An integer of 64 or 32 bits; ctypes would cut a larger one down in silence."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise CanopyError(
            f"{argument} = {value!r}: expected an integer, got {type(value).__name__}; convert it with int()"
        ) from None
    if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        raise CanopyError(f"{argument} = {number}: expected {bits} bits; check where it comes from")
    return number


def choose(argument: str, value: object, names: dict[str, int]) -> int:
    """The number of a name; raises for one that is not among `names`."""
    number = names.get(value) if isinstance(value, str) else None
    if number is None:
        expected = ", ".join(repr(name) for name in names)
        raise CanopyError(f"{argument} = {value!r}: expected one of {expected}")
    return number


def library_version() -> str:
    """Version of the loaded libcanopy."""
    return library().canopy_version().decode()


@dataclass(frozen=True)
class Implementation:
    """An entry of the registry."""

    kind: str  # the call: "verify", "commit", "conv1d_tree" or "conv1d_commit"
    name: str
    description: str
    device: str  # "cpu" or "cuda"
    missing: str  # why it cannot run on this machine; "" when it can

    @property
    def usable(self) -> bool:
        return not self.missing


def implementations() -> list[Implementation]:
    """Every registered implementation of verify, commit, conv1d_tree and conv1d_commit, usable here or not."""
    found = []
    for number, kind in enumerate(("verify", "commit", "conv1d_tree", "conv1d_commit")):
        for index in range(library().canopy_implementation_count(number)):
            info = ImplementationInfo()
            library().canopy_implementation_at(number, index, ctypes.byref(info))
            device = "cuda" if info.device == CUDA else "cpu"
            found.append(
                Implementation(kind, info.name.decode(), info.description.decode(), device, info.missing.decode())
            )
    return found

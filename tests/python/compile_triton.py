"""Compiles every Triton kernel of the package for GPUs that need not be there: tests/python/compile_triton.py [SM...]

Prints a line a kernel with its bytes of shared memory and of code. Exit status 1 where one does not compile. The
interpreter of the tests runs the same sources, but knows neither types nor layouts.
"""

import sys

import triton
import triton.language as tl
from canopy_gdn.triton import committing, fused, gates, planning, serial, split
from canopy_gdn.triton.common import spoilt
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

POINTERS = {
    "q": "*bf16", "k": "*bf16", "v": "*bf16", "o": "*bf16", "a_log": "*fp32", "dt_bias": "*bf16", "g": "*bf16", "beta": "*bf16",
    "state": "*fp32", "u": "*fp32", "gates": "*fp32", "out": "*fp32", "snapshots": "*fp32", "diagonal": "*fp32", "outside": "*fp32",
}  # fmt: skip
FLOATS = {"scale", "eps"}
HEAD = {"K": 128, "V": 128, "BT": 16, "BV": 32, "SLOTS": True, "NORM": True, "PRECISION": "tf32x3"}
GATES = {"RAW": True, "DOUBLED": False, "WIDTH": 128}
KERNELS = {
    "plan ancestors": (planning._ancestors, {"ROUNDS": 7, "WIDTH": 128}),
    "plan ranks": (planning._ranks, {"WIDTH": 128}),
    "plan permute": (planning._permute, {}),
    "plan paths": (planning._paths, {"WIDTH": 128, "BLOCK": 16}),
    "gates": (gates.gates_kernel, GATES),
    "fused substitution": (fused.fused_kernel.fn, HEAD | {"SOLVER": "substitution"}),
    "fused fast": (fused.fused_kernel.fn, HEAD | {"SOLVER": "substitution", "PRECISION": "tf32"}),
    "fused neumann": (fused.fused_kernel.fn, HEAD | {"SOLVER": "neumann"}),
    "fused squaring": (fused.fused_kernel.fn, HEAD | {"SOLVER": "squaring"}),
    "split factors": (split.factors_kernel, HEAD | {"SOLVER": "substitution"}),
    "split apply": (split.apply_kernel.fn, HEAD),
    "serial snapshots": (serial.serial_kernel.fn, HEAD | GATES | {"RESIDENT": False, "BV": 8}),
    "serial resident": (serial.serial_kernel.fn, HEAD | GATES | {"RESIDENT": True, "BV": 8}),
    "commit": (committing.commit_kernel, HEAD),
}


def compiled(function, constants, capability):
    signature, constexprs = {}, {}
    for parameter in function.params:
        name = parameter.name
        if parameter.is_constexpr:
            signature[name] = "constexpr"
            constexprs[name] = constants[name]
        elif name in POINTERS:
            signature[name] = POINTERS[name]
        elif name in FLOATS:
            signature[name] = "fp32"
        elif name.startswith("stride_") or name in {
            "T",
            "H",
            "HV",
            "B",
            "blocks",
            "plane",
            "padding_slot",
            "wide",
            "half",
            "slots",
        }:
            signature[name] = "i32"
        else:
            signature[name] = "*i32"
    source = ASTSource(fn=function, signature=signature, constexprs=constexprs)
    warps = 1 if "snapshots" in signature else 4
    return triton.compile(
        source, target=GPUTarget("cuda", capability, 32), options={"num_warps": warps, "num_stages": 1}
    )


@triton.jit
def _of_a_product(a, b, out):
    i, j = tl.arange(0, 16)[:, None], tl.arange(0, 16)[None, :]
    tl.store(out + tl.arange(0, 16), spoilt(tl.load(a + 16 * i + j) * tl.load(b)).to(tl.int32))


def finite_is_asked_of_the_rounded_product(capability):
    """A test for what is not finite that is contracted with the product before it asks the rounding error instead, and takes
    every node for spoilt; the interpreter does not contract."""
    source = ASTSource(fn=_of_a_product, signature={"a": "*fp32", "b": "*fp32", "out": "*i32"}, constexprs={})
    assert "fma" not in triton.compile(source, target=GPUTarget("cuda", capability, 32)).asm["ptx"]


def main(capabilities):
    failed = 0
    for capability in capabilities:
        finite_is_asked_of_the_rounded_product(capability)
        for name, (function, constants) in KERNELS.items():
            try:
                kernel = compiled(function, constants, capability)
                print(f"sm_{capability} {name:20} {kernel.metadata.shared:7} B shared  {len(kernel.asm['cubin']):7} B")
                assert kernel.metadata.shared <= 101376, "more shared memory than a block has on sm_120"
            except Exception as error:  # noqa: BLE001, the next kernel is still worth trying
                failed += 1
                print(f"sm_{capability} {name:20} FAILED: {type(error).__name__}: {str(error)[:2000]}")
    print(f"{failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main([int(argument) for argument in sys.argv[1:]] or [90]))

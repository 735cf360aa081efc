"""The two ways in: NumPy through the C interface, PyTorch through the operators."""

import os

# Before anything imports Triton: without a GPU its kernels run under its interpreter.
if not os.path.exists("/dev/nvidiactl"):
    os.environ.setdefault("TRITON_INTERPRET", "1")

import problems  # noqa: E402
import pytest  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

# The machine is shared and small: no deadline, few examples; the seeds are Hypothesis's own, printed on failure.
settings.register_profile("canopy", deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("canopy")


@pytest.fixture(params=["numpy", "torch"])
def to(request):
    """Converts the arguments of a call; a test that asks for it runs once each way."""
    if request.param == "numpy":
        return lambda arguments: {n: v.copy() if hasattr(v, "copy") else v for n, v in arguments.items()}
    pytest.importorskip("torch")
    return problems.tensors

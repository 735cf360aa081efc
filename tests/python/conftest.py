"""The two ways in: NumPy through the C interface, PyTorch through the operators."""

import problems
import pytest
from hypothesis import HealthCheck, settings

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

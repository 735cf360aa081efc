"""The modules of bench/ as they import each other, the built program, and a small environment record."""

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))


@pytest.fixture(scope="session")
def program():
    """CANOPY_PROGRAM, or build/canopy."""
    path = Path(os.environ.get("CANOPY_PROGRAM", ROOT / "build/canopy"))
    assert path.exists(), f"{path} is missing: make build, or CANOPY_PROGRAM=a built program"
    return str(path)


@pytest.fixture
def environment():
    import records

    return records.tidy_environment({"type": "environment", "canopy": "0.1.0", "commit": "0123456789ab", "cpu": "Test CPU", "gpu": "none found",
                                     "threads": 1, "implementations": []})  # fmt: skip


@pytest.fixture
def gpu_environment():
    import records

    gpu = {"name": "NVIDIA GeForce RTX 5090", "multiprocessors": 170, "compute_capability": 120, "l2_bytes": 100663296, "before": {}}
    return records.tidy_environment({"type": "environment", "canopy": "0.1.0", "commit": "0123456789ab", "cpu": "Test CPU", "gpu": gpu,
                                     "implementations": []})  # fmt: skip


@pytest.fixture
def fake(tmp_path, program, monkeypatch):
    """A program that answers as one on an RTX 5090 would (fake_canopy.py); `asked()` counts what it was asked."""
    script = tmp_path / "canopy"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} {Path(__file__).with_name("fake_canopy.py")} "$@"\n')
    script.chmod(0o755)
    log = tmp_path / "asked"
    monkeypatch.setenv("CANOPY_PROGRAM", program)
    monkeypatch.setenv("FAKE_LOG", str(log))

    class Fake:
        path = str(script)

        @staticmethod
        def asked():
            return len(log.read_text().splitlines()) if log.exists() else 0

    return Fake

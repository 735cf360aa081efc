"""pod.py against the service of service.py, reached by the SDK's own variable RUNPOD_API_BASE_URL."""

import os
import sys
from pathlib import Path

import pytest

root = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(root / "infra"))
from service import KEY, Service  # noqa: E402


@pytest.fixture(scope="session")
def sdk():
    """The runpod package. Where it cannot be installed the tests that need it are skipped, but never in CI."""
    if os.environ.get("CI"):
        import runpod

        return runpod
    return pytest.importorskip("runpod", reason="the runpod package is not installed: scripts/setup.sh infra")


@pytest.fixture
def service():
    running = Service()
    yield running
    running.close()


@pytest.fixture
def environment(service, tmp_path, monkeypatch):
    """What a user's shell would hold, pointed at the local service; a home folder of its own."""
    for name in list(os.environ):
        if name.startswith("RUNPOD_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.delenv("MAX_POD_HOURS", raising=False)
    monkeypatch.setenv("RUNPOD_API_BASE_URL", service.url)
    monkeypatch.setenv("RUNPOD_API_KEY", KEY)
    monkeypatch.setenv("CANOPY_LEDGER", str(tmp_path / "ledger.json"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return monkeypatch


@pytest.fixture
def pod(sdk, environment, capfd):
    """pod(*arguments) -> (exit code, output and errors); everything printed is also looked through for the key."""
    import pod as program

    environment.setattr(program, "RETRY_PAUSE", 0.01)

    def run(*arguments):
        code = program.main(list(arguments))
        out, err = capfd.readouterr()
        run.printed += out + err
        return code, out + err

    run.printed = ""
    yield run
    assert KEY not in run.printed

"""infra/ledger.py: no doubt may make the spend look smaller."""

import json

import pytest
from ledger import DISK_GB_HOUR, Ledger, LedgerError

HOUR = 3600.0


def seen(status, uptime=0, hourly=2.0, **more):
    return [dict(id="p", name="canopy-p", desiredStatus=status, uptimeSeconds=uptime, costPerHr=hourly, volumeInGb=0, **more)]


@pytest.fixture
def ledger(tmp_path):
    ledger = Ledger(tmp_path / "ledger.json")
    ledger.created("p", "canopy-p", 2.0, 6.0, 0, 0.0)
    return ledger


@pytest.mark.parametrize(
    "sights, dollars",
    [
        ([("RUNNING", HOUR, 1)], 2),  # the clock and the service agree
        ([("RUNNING", 0, 1)], 2),  # the service reports no uptime: the clock counts
        ([("RUNNING", 2 * HOUR, 1)], 4),  # the service says more than the clock
        ([("RUNNING", HOUR, 1), ("EXITED", 0, 3)], 6),  # stopped some time between 1 h and 3 h: charged until 3 h
        ([("RUNNING", HOUR, 1), ("EXITED", 0, 30)], 12),  # but not longer than it could run
        ([("RUNNING", HOUR, 1), ("EXITED", 0, 1), ("EXITED", 0, 20)], 2),  # stopped costs no GPU
        ([("RUNNING", HOUR, 1), ("EXITED", 0, 1), ("RUNNING", HOUR / 2, 20)], 3),  # started again
        ([("RUNNING", HOUR, 1), (None, 0, 2)], 4),  # terminated unseen
        ([("RUNNING", HOUR, 1), (None, 0, 2), (None, 0, 9)], 4),  # and remembered
    ],
)
def test_charges(ledger, sights, dollars):
    for status, uptime, hour in sights:
        ledger.observe([] if status is None else seen(status, uptime), hour * HOUR)
    assert ledger.spent() == pytest.approx(dollars)


def test_price_of_a_stopped_pod_is_not_its_price(ledger):
    ledger.observe(seen("RUNNING", HOUR), HOUR)
    ledger.observe(seen("EXITED", 0, hourly=0.01), HOUR)
    assert ledger.spent() == pytest.approx(2)


def test_dearer_than_it_was_listed(ledger):
    ledger.observe(seen("RUNNING", HOUR, hourly=3.0), HOUR)
    assert ledger.spent() == pytest.approx(3)


def test_committed(ledger):
    assert ledger.committed() == pytest.approx(12)
    ledger.observe(seen("RUNNING", HOUR), HOUR)
    assert ledger.committed() == pytest.approx(10)
    ledger.observe(seen("EXITED"), HOUR)
    assert ledger.committed() == 0


def test_pod_of_unknown_origin(tmp_path):
    ledger = Ledger(tmp_path / "ledger.json")
    ledger.observe(seen("RUNNING", 2 * HOUR, env=["MAX_POD_HOURS=3"]), 100 * HOUR)
    assert (ledger.spent(), ledger.committed()) == (pytest.approx(4), pytest.approx(2))


def test_volume_costs_while_it_exists(tmp_path):
    ledger = Ledger(tmp_path / "ledger.json")
    ledger.created("p", "canopy-p", 0.0, 6.0, 50, 0.0)
    ledger.observe(seen("EXITED", hourly=0.0), 100 * HOUR)
    assert ledger.spent() == pytest.approx(100 * 50 * DISK_GB_HOUR)
    ledger.observe([], 100 * HOUR)
    ledger.observe([], 500 * HOUR)
    assert ledger.spent() == pytest.approx(100 * 50 * DISK_GB_HOUR)


def test_file(ledger):
    ledger.observe(seen("RUNNING", HOUR), HOUR)
    ledger.save()
    again = Ledger(ledger.path)
    assert again.pods == ledger.pods and again.spent() == ledger.spent()
    assert [path.name for path in ledger.path.parent.iterdir()] == ["ledger.json"]


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"pods": {"p": {}}}', '{"pods": {"p": null}}', '{"pods": 3}'])
def test_file_that_cannot_be_read(tmp_path, text):
    path = tmp_path / "ledger.json"
    path.write_text(text)
    with pytest.raises(LedgerError, match="not known"):
        Ledger(path)


def test_file_holds_nothing_but_prices_and_times(ledger):
    ledger.observe(seen("RUNNING", HOUR, env=["RUNPOD_API_KEY=secret"]), HOUR)
    ledger.save()
    entry = json.loads(ledger.path.read_text())["pods"]["p"]
    assert set(entry) == {"name", "hourly", "hours", "disk_gb", "created", "seen", "seconds", "run_seconds", "running", "gone"}

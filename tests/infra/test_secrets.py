"""No key is printed, logged, written or committed."""

import re
import subprocess

import pytest
from conftest import root
from service import KEY, POD_SECRET

# Keys as services make them, written so that this file does not match itself.
SECRETS = re.compile(r"rpa_[A-Z0-9]{30,}|-----BEGIN [A-Z ]*PRIVATE" + r" KEY|AKIA[0-9A-Z]{16}|gh[ps]_\w{36}|hf_[A-Za-z]{30,}|sk-\w{32,}|npm_\w{36}")
ASSIGNED = re.compile(r"(?:RUNPOD_API_KEY|API_KEY|TOKEN|PASSWORD)\s*[=:]\s*[\"']?([\w-]{16,})")


def test_patterns_find_what_they_are_for():
    assert SECRETS.search("rpa_" + "A1" * 20) and SECRETS.search("-----BEGIN OPENSSH PRIVATE" + " KEY-----")
    assert ASSIGNED.search("RUNPOD_API_KEY=" + "x" * 20) and not ASSIGNED.search("RUNPOD_API_KEY=your-key-here")


checkout = pytest.mark.skipif(not (root / ".git").exists(), reason="not a git checkout: an archive has no list of files")


@checkout
def test_nothing_in_the_repository():
    names = subprocess.run(["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"], capture_output=True, check=True, text=True).stdout
    found = []
    for name in filter(None, names.split("\0")):
        path = root / name
        if not path.is_file() or path.stat().st_size > 1 << 20:
            continue
        text = path.read_text(errors="replace")
        found += [f"{name}: {match[0][:12]}..." for match in SECRETS.finditer(text)]
        if not name.startswith("tests/infra/"):
            found += [f"{name}: {match[0][:20]}..." for match in ASSIGNED.finditer(text)]
    assert not found


def test_example_holds_no_key():
    assert "RUNPOD_API_KEY=your-key-here\n" in (root / ".env.example").read_text()


@checkout
def test_files_with_keys_are_ignored():
    ignored = subprocess.run(["git", "-C", root, "check-ignore", ".env", "infra/.env", "infra/ledger.json"], capture_output=True, text=True)
    assert ignored.stdout.split() == [".env", "infra/.env", "infra/ledger.json"]


def test_nothing_printed_or_written(pod, service, tmp_path):
    """Every command, well and badly answered: the key is in no output and in no file that was written."""
    service.add_pod("a1", "canopy-one", uptime=60)
    service.add_pod("a2", "canopy-two", uptime=60)
    calls = [["status"], ["ssh-info", "a1"], ["cost"], ["create"], ["create", "--another"], ["stop", "a1"], ["stop", "nowhere"],
             ["cost", "--enforce"], ["terminate", "a1", "--yes"], ["stop", "--all"], ["create", "--dry-run"]]
    for arguments in calls:
        pod(*arguments)
        for trouble in (["html"] * 3, ["null"], ["hang up"] * 3, [f"no permission for {KEY}"], [f"unknown argument {KEY} in {POD_SECRET}"[:60]]):
            service.trouble = list(trouble)
            pod(*arguments)
            service.trouble = []
    assert "no permission for [key]" in pod.printed and POD_SECRET not in pod.printed.replace(POD_SECRET[:3], "")
    assert KEY not in pod.printed
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert written
    for path in written:
        text = path.read_text()
        assert KEY not in text and POD_SECRET not in text, path


@pytest.mark.parametrize("name", ["watchdog.sh", "bootstrap.sh", "rent.sh"])
def test_scripts_do_not_trace(name):
    """`set -x`, or printing the environment, would show what a test with stand-ins may miss."""
    text = (root / "infra" / name).read_text()
    assert not re.search(r"set -\w*x|^\s*(env|printenv|declare -p|export -p)\b|echo[^\n]*RUNPOD_API_KEY", text, re.M)

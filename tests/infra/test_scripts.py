"""watchdog.sh, bootstrap.sh and rent.sh, with stand-ins for runpodctl, nvidia-smi, nvcc and ssh, and a small repository to run."""

import os
import shutil
import subprocess
import sys
import tarfile
import time

import pytest
from conftest import root
from service import KEY, POD_SECRET

SMI = 'case "$*" in *driver*) echo "NVIDIA GeForce RTX 5090, 580.1" ;; *) echo "NVIDIA GeForce RTX 5090" ;; esac'


class Machine:
    """A folder with programs of its own in front of the machine's, and a pod's environment as its first process would have it."""

    def __init__(self, folder):
        self.folder, self.bin = folder, folder / "bin"
        self.bin.mkdir(parents=True)
        self.first_process = folder / "environ"
        self.first_process.write_bytes(b"PATH=/bin\0RUNPOD_POD_ID=pod1xyz\0RUNPOD_API_KEY=" + POD_SECRET.encode() + b"\0MAX_POD_HOURS=0.0003\0")
        self.program("runpodctl", f'echo "$RUNPOD_API_KEY $*" >> {folder}/ctl; echo "key $RUNPOD_API_KEY"')
        self.program("nvidia-smi", SMI)
        self.program("nvcc", 'echo "Cuda compilation tools, release 12.8, V12.8.93"')
        (folder / "tmp").mkdir()
        self.environment = {"PATH": f"{self.bin}:{os.environ['PATH']}", "HOME": str(folder), "WORKSPACE": str(folder / "workspace"),
                            "TMPDIR": str(folder / "tmp"), "POD_ENVIRONMENT": str(self.first_process), "WATCHDOG_PAUSE": "0.01",
                            "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_ALLOW_PROTOCOL": "file"}

    def program(self, name, text):
        path = self.bin / name
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)

    def run(self, *command, stdin=None, **environment):
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, env=self.environment | environment)
        return done.returncode, done.stdout + done.stderr

    def ctl(self):
        path = self.folder / "ctl"
        return path.read_text().splitlines() if path.exists() else []

    def wait_for(self, condition):
        for _ in range(500):
            if condition():
                return
            time.sleep(0.02)
        raise AssertionError("it did not happen within 10 s")


@pytest.fixture
def machine(tmp_path):
    machine = Machine(tmp_path / "machine")
    yield machine
    # A watchdog that bootstrap.sh left asleep, and its sleep: told by the temporary folder in their environment.
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{process}/environ", "rb") as file:
                if f"TMPDIR={machine.environment['TMPDIR']}\0".encode() in file.read():
                    os.kill(int(process), 9)
        except OSError:
            pass


@pytest.fixture
def sources(tmp_path):
    """A repository with the scripts as they are here, whose gpu-test and bench take no time."""
    folder = tmp_path / "sources"
    (folder / "infra").mkdir(parents=True)
    for path in (root / "infra").iterdir():
        if path.suffix in (".sh", ".py"):
            shutil.copy(path, folder / "infra")
    (folder / ".gitignore").write_text("/build/\n/infra/ledger.json\n__pycache__/\n")
    (folder / "README.md").write_text("table: empty\n")
    (folder / "Makefile").write_text(
        "gpu-test:\n\t@echo 12 passed, 0 failed\n"
        'bench:\n\t@mkdir -p build && touch build/scratch && echo \'{"type": "cell"}\' > results/gpu-rtx-5090.jsonl && echo table: full > README.md\n')
    git = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@t"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "small"]):
        subprocess.run(git + command, check=True, env=os.environ | {"GIT_CONFIG_GLOBAL": "/dev/null"})
    return folder


WATCHDOG = str(root / "infra/watchdog.sh")


def test_watchdog_stops_the_pod_after_its_hours(machine):
    started = time.monotonic()
    code, text = machine.run(WATCHDOG)
    assert code == 0 and time.monotonic() - started >= 1.08
    assert machine.ctl() == [f"{POD_SECRET} stop pod pod1xyz"]
    assert "asked to stop pod1xyz" in text and POD_SECRET not in text


def test_watchdog_sleeps_as_long_as_it_is_told(machine):
    """Six hours unless somebody says otherwise: what `sleep` is asked for."""
    machine.program("sleep", f"echo $1 >> {machine.folder}/slept")
    machine.run(WATCHDOG, MAX_POD_HOURS="2.5")
    machine.first_process.write_bytes(b"RUNPOD_POD_ID=pod1xyz\0")
    machine.run(WATCHDOG)
    assert (machine.folder / "slept").read_text().split() == ["9000", "21600"]


def test_watchdog_tries_again_and_in_the_newer_spelling(machine):
    machine.program("runpodctl", f'echo "$*" >> {machine.folder}/ctl; [ "$1" = pod ] && [ $(grep -c . {machine.folder}/ctl) -ge 6 ]')
    code, text = machine.run(WATCHDOG)
    assert code == 0 and machine.ctl() == ["stop pod pod1xyz", "pod stop pod1xyz"] * 3 and "try 2 of 30" in text


def test_watchdog_gives_up_loudly(machine):
    machine.program("runpodctl", f"echo {POD_SECRET}; exit 1")
    code, text = machine.run(WATCHDOG)
    assert code == 1 and "stop it in the console" in text and POD_SECRET not in text


def test_watchdog_only_once(machine):
    code, text = machine.run("bash", "-c", f"{WATCHDOG} & {WATCHDOG}; wait", MAX_POD_HOURS="0.0004")
    assert "one is running already" in text and len(machine.ctl()) == 1


@pytest.mark.parametrize("hours", ["0", "-1", "25", "six", "1e9", "1; rm x"])
def test_watchdog_hours(machine, hours):
    code, text = machine.run(WATCHDOG, MAX_POD_HOURS=hours)
    assert code == 2 and "expected hours" in text and not machine.ctl()


def test_watchdog_elsewhere(machine):
    machine.first_process.write_bytes(b"")
    assert machine.run(WATCHDOG, "--detach") == (2, "watchdog: no RUNPOD_POD_ID: this is not a pod\n")


def bootstrap(machine, *arguments, **environment):
    """As over SSH: the script comes through standard input."""
    return machine.run("bash", "-s", "--", *arguments, stdin=(root / "infra/bootstrap.sh").read_text(), **{"MAX_POD_HOURS": "1"} | environment)


def test_bootstrap_from_clone_to_results(machine, sources):
    code, text = bootstrap(machine, str(sources))
    assert code == 0, text
    assert "pod1xyz will be stopped in 1 h" in text and "RTX 5090" in text and "12 passed, 0 failed" in text and "done, status 0" in text
    with tarfile.open(machine.folder / "workspace/canopy-run-results.tar.gz") as tar:
        assert sorted(tar.getnames()) == ["README.md", "results/gpu-rtx-5090.jsonl", "results/gpu-test-nvidia-geforce-rtx-5090.txt"]
    # The watchdog outlives it.
    machine.wait_for(lambda: subprocess.run(["flock", "-n", machine.folder / "tmp/canopy-watchdog.lock", "true"]).returncode == 1)
    assert POD_SECRET not in text


def test_bootstrap_parity_failed(machine, sources):
    (sources / "Makefile").write_text((sources / "Makefile").read_text().replace("@echo 12 passed, 0 failed", "@echo 11 passed, 1 failed; exit 1"))
    subprocess.run(["git", "-C", sources, "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qam", "broken"], check=True)
    code, text = bootstrap(machine, str(sources))
    assert code == 1 and "parity FAILED" in text and "done, status 1" in text
    assert (machine.folder / "workspace/canopy-run-results.tar.gz").exists()


def test_bootstrap_follows_what_is_running(machine, sources):
    """The connection drops (its process dies), the work goes on, and the same command finds it."""
    (sources / "Makefile").write_text("gpu-test:\n\t@sleep 1.5; echo slow\nbench:\n\t@echo x >> results/count.jsonl\n")
    subprocess.run(["git", "-C", sources, "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qam", "slow"], check=True)
    first = subprocess.Popen(["bash", "-s", "--", str(sources)], stdin=open(root / "infra/bootstrap.sh"), stdout=subprocess.DEVNULL,
                             env=machine.environment | {"MAX_POD_HOURS": "1"}, start_new_session=True)
    machine.wait_for(lambda: (machine.folder / "workspace/canopy-run.pid").exists() and (machine.folder / "workspace/canopy-run.log").stat().st_size)
    os.killpg(first.pid, 9)
    first.wait()
    code, text = bootstrap(machine, str(sources))
    assert code == 0 and "it is running: following it" in text and "slow" in text
    assert (machine.folder / "workspace/canopy/results/count.jsonl").read_text() == "x\n"


@pytest.mark.parametrize(
    "program, text, words",
    [("runpodctl", None, "nothing is run without a watchdog"), ("nvcc", 'echo "release 12.4, V12.4"', "sm_120 needs 12.8"),
     ("nvcc", 'echo "release 13.0, V13.0"', None), ("nvcc", 'echo "release 12.10, V"', None)])
def test_bootstrap_checks_the_machine(machine, sources, program, text, words):
    if text is None:
        (machine.bin / program).unlink()
    else:
        machine.program(program, text)
    code, out = bootstrap(machine, str(sources))
    assert (code, words is None or words in out) == (0 if words is None else 2, True), out
    assert ("make bench" in out) == (words is None)


def test_bootstrap_without_sources(machine):
    assert "remedy: bootstrap.sh GIT-URL-OR-BUNDLE" in bootstrap(machine)[1]
    code, text = bootstrap(machine, str(machine.folder / "nowhere"))
    assert code == 2 and "git cannot clone" in text


@pytest.fixture
def renting(machine, sources, service, environment, sdk):
    """The owner's checkout, and an ssh that runs its command here: the pod's /workspace is a folder of the machine's."""
    workspace = machine.folder / "workspace"
    workspace.mkdir()
    machine.program("ssh", f'''while [[ $1 == -* || $1 == *@* ]]; do case $1 in -o | -p) echo "$1 $2" >> {machine.folder}/ssh; shift 2 ;; *) echo "$1" >> {machine.folder}/ssh; shift ;; esac; done
exec bash -c "${{*//\\/workspace/{workspace}}}"''')
    machine.environment |= {name: os.environ[name] for name in ("RUNPOD_API_BASE_URL", "RUNPOD_API_KEY", "NO_PROXY", "CANOPY_LEDGER")}
    machine.environment |= {"PYTHON": sys.executable, "PAUSE": "0.05", "WAIT": "2"}
    return lambda *arguments: machine.run(str(sources / "infra/rent.sh"), *arguments, MAX_POD_HOURS="1")


def test_rent_the_whole_loan(renting, machine, sources, service):
    """With a connection that drops once: the script's first trip ends with ssh's own 255."""
    ssh = machine.bin / "ssh"
    once = f'if [[ "$*" == *"bash -s"* && ! -e {machine.folder}/once ]]; then touch {machine.folder}/once; exit 255; fi'
    ssh.write_text(ssh.read_text().replace("exec bash", f"{once}\nexec bash"))
    code, text = renting()
    assert code == 0 and "connection lost, following again" in text, text
    assert (sources / "results/gpu-rtx-5090.jsonl").exists() and (sources / "README.md").read_text() == "table: full\n"
    assert service.pods["pod1xyz"]["desiredStatus"] == "EXITED" and "the results are in this checkout" in text
    said = (machine.folder / "ssh").read_text()
    assert "root@203.0.113.7" in said and "-p 14022" in said
    assert KEY not in text + said and POD_SECRET not in text + said


def test_rent_stops_the_pod_when_something_fails(renting, machine, service):
    machine.program("nvcc", 'echo "release 12.4, V12.4"')
    code, text = renting()
    assert code == 2 and "sm_120 needs 12.8" in text and service.pods["pod1xyz"]["desiredStatus"] == "EXITED"


def test_rent_dry_run(renting, service):
    code, text = renting("--dry-run")
    assert code == 0 and "nothing created" in text and not service.pods

"""infra/pod.py: what it asks of the service, and what it makes of the answers."""

import functools
import json
import time

import pytest
from ledger import Ledger
from service import KEY, NO_CAPACITY, POD_SECRET


def spend(path, dollars, pod_id="old"):
    """A ledger in which a terminated pod has cost so much."""
    ledger = Ledger(path)
    ledger.created(pod_id, "canopy-old", dollars, 6, 0, time.time() - 3600)
    ledger.pods[pod_id].update(seconds=3600.0, running=False, gone=time.time())
    ledger.save()


@pytest.fixture
def ledger_path(tmp_path):
    return tmp_path / "ledger.json"


def test_create_asks_for_what_the_sweep_needs(pod, service):
    code, text = pod("create")
    assert code == 0 and "created pod1xyz" in text and "RTX 5090" in text and "$0.94" in text
    given = service.pods["pod1xyz"]["given"]
    assert given["gpuTypeId"] == "NVIDIA GeForce RTX 5090" and given["gpuCount"] == 1
    assert given["name"].startswith("canopy-rtx-5090-")
    assert (given["volumeInGb"], given["volumeMountPath"]) == (50, "/workspace")
    assert given["startSsh"] == "true" and given["ports"] == "22/tcp" and given["supportPublicIp"] == "true"
    assert "cu1281" in given["imageName"] and '"12.8"' in given["allowedCudaVersions"]
    assert 'key: "MAX_POD_HOURS", value: "6"' in given["env"]
    assert service.roots() == ["myself", "gpuTypes", "gpuTypes", "gpuTypes", "podFindAndDeployOnDemand"]
    assert all(headers["Authorization"] == f"Bearer {KEY}" for _, _, headers in service.requests)
    assert not any(KEY in query for _, query, _ in service.requests)


@pytest.mark.parametrize(
    "full, options, expected",
    [
        (["NVIDIA GeForce RTX 5090"], [], "NVIDIA RTX PRO 6000 Blackwell Server Edition"),
        (["NVIDIA GeForce RTX 5090", "NVIDIA RTX PRO 6000 Blackwell Server Edition"], [], "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"),
        ([], ["--gpu", "pro6000"], "NVIDIA RTX PRO 6000 Blackwell Server Edition"),
        ([], ["--gpu", "h100"], "NVIDIA H100 PCIe"),
    ],
)
def test_preference(pod, service, full, options, expected):
    service.full = set(full)
    code, _ = pod("create", *options)
    assert code == 0
    assert [p["given"]["gpuTypeId"] for p in service.pods.values()] == [expected]


def test_nothing_free(pod, service):
    service.full = {"NVIDIA H100 PCIe"}
    code, text = pod("create", "--gpu", "h100")
    assert code == 4 and "H100 PCIe: none free" in text and not service.pods
    # An H100 is never silently another one.
    assert not [query for root, query, _ in service.requests if root == "podFindAndDeployOnDemand" and "HBM3" in query]


def test_type_not_listed(pod, service, monkeypatch):
    import service as module

    monkeypatch.setattr(module, "TYPES", [t for t in module.TYPES if "5090" not in t[0] and "PRO" not in t[0]])
    code, text = pod("create")
    assert code == 4 and "lists no RTX 5090 or RTX PRO 6000" in text and "A40" in text


def test_price_unknown(pod, service):
    code, text = pod("create", "--gpu", "pro6000", "--cloud", "COMMUNITY")
    assert code == 4 and "no price on the COMMUNITY cloud" in text and not service.pods


def test_other_refusal_is_shown_and_ends_it(pod, service):
    service.trouble = [None, None, None, None, "Your account balance is too low"]
    code, text = pod("create")
    assert code == 1 and "balance is too low" in text
    assert service.roots().count("podFindAndDeployOnDemand") == 1 and not service.pods


def test_dry_run_creates_nothing(pod, service):
    code, text = pod("create", "--dry-run")
    assert code == 0 and "nothing created" in text
    assert "podFindAndDeployOnDemand" not in service.roots()


def test_one_at_a_time(pod, service):
    service.add_pod("a1", "canopy-one")
    code, text = pod("create")
    assert code == 2 and "a1 is running already" in text
    assert pod("create", "--another")[0] == 0


def test_public_key(pod, service, tmp_path):
    good, private = tmp_path / "id.pub", tmp_path / "id"
    good.write_text("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB me@home\n")
    private.write_text("-----BEGIN OPENSSH PRIVATE" + " KEY-----\nb3BlbnNzaC1rZXk\n")
    code, text = pod("create", "--public-key", str(private))
    assert code == 2 and "public SSH key" in text and "b3Blb" not in text and not service.pods
    assert pod("create", "--public-key", str(good))[0] == 0
    assert "AAAAC3NzaC1lZDI1NTE5AAAAIB" in service.pods["pod1xyz"]["given"]["env"]


def test_status_lists_ours_only(pod, service):
    service.add_pod("a1", "canopy-one", uptime=3720)
    service.add_pod("a2", "canopy-two", status="EXITED", ssh=False)
    service.add_pod("zz", "somebody-elses")
    code, text = pod("status")
    assert code == 0 and "somebody" not in text and POD_SECRET not in text
    assert "a1  canopy-one  RTX 5090  RUNNING  $0.94/h  up 1:02 h  ssh ready" in text
    assert "a2  canopy-two  RTX 5090  EXITED" in text and "no ssh yet" in text
    service.pods.clear()
    assert "no pods whose name starts with canopy-" in pod("status")[1]


def test_ssh_info(pod, service):
    service.add_pod("a1", "canopy-one")
    assert pod("ssh-info") == (0, "root@203.0.113.7 -p 14022\n")
    service.add_pod("a2", "canopy-two", ssh=False)
    code, text = pod("ssh-info")
    assert code == 2 and "which pod? there are 2" in text and "a1, a2" in text
    code, text = pod("ssh-info", "a2", "--wait", "0.1")
    assert code == 1 and "no public SSH port yet" in text
    service.pods["a2"]["desiredStatus"] = "EXITED"
    assert "is EXITED, so it has no SSH" in pod("ssh-info", "canopy-two")[1]


def test_stop_and_terminate(pod, service):
    service.add_pod("a1", "canopy-one")
    service.add_pod("zz", "somebody-elses")
    code, text = pod("stop", "a1")
    assert code == 0 and "a1 EXITED" in text and "volume stays and costs $0.33 a day" in text
    assert pod("stop", "zz")[0] == 2 and service.pods["zz"]["desiredStatus"] == "RUNNING"
    code, text = pod("terminate", "a1")
    assert code == 2 and "--yes" in text and "a1" in service.pods
    assert pod("terminate", "a1", "--yes")[0] == 0 and "a1" not in service.pods
    assert pod("terminate", "zz", "--yes")[0] == 2 and "zz" in service.pods


def test_stop_all(pod, service):
    for i in range(3):
        service.add_pod(f"a{i}", f"canopy-{i}", status="RUNNING" if i else "EXITED")
    service.add_pod("zz", "somebody-elses")
    assert pod("stop", "--all")[0] == 0
    assert service.roots().count("podStop") == 2 and service.pods["zz"]["desiredStatus"] == "RUNNING"
    assert "nothing is running" in pod("stop", "--all")[1]


@pytest.mark.parametrize("dollars, code, words", [(31.99, 3, "hard cap"), (32.0, 3, "nothing more is created"), (45.0, 3, "nothing more is created")])
def test_budget_refuses(pod, service, ledger_path, dollars, code, words):
    spend(ledger_path, dollars)
    # At 31.99 the six hours at 1.79 of an RTX PRO 6000 would pass 40.
    got, text = pod("create", "--gpu", "pro6000")
    assert (got, words in text) == (code, True), text
    assert not service.pods and "podFindAndDeployOnDemand" not in service.roots()


def test_budget_allows_fewer_hours(pod, service, ledger_path):
    spend(ledger_path, 31.99)
    text = pod("create", "--gpu", "pro6000")[1]
    hours = text.split("--hours ")[1].split(",")[0]
    assert hours == "4.4"  # 8.01 / (1.79 + 50 GB * 0.20 / 730)
    assert pod("create", "--gpu", "pro6000", "--hours", hours)[0] == 0
    assert 'value: "4.4"' in service.pods["pod1xyz"]["given"]["env"]


def test_budget_counts_what_running_pods_may_still_cost(pod, service, ledger_path):
    service.add_pod("a1", "canopy-one", hourly=6.5)
    code, text = pod("create", "--another")
    assert code == 3 and "$39.08 promised" in text  # 6 h at 6.50, and the volume


def test_budget_stop_is_said_by_cost(pod, service, ledger_path):
    spend(ledger_path, 33.0)
    code, text = pod("cost")
    assert code == 0 and "spent $33.00" in text and "create refuses from now on" in text


def test_hard_cap(pod, service, ledger_path):
    spend(ledger_path, 40.5)
    service.add_pod("a1", "canopy-one")
    code, text = pod("cost")
    assert code == 3 and "hard cap of $40 is passed; remedy: pod.py stop a1" in text
    assert service.pods["a1"]["desiredStatus"] == "RUNNING"
    assert pod("cost", "--enforce")[0] == 3
    assert service.pods["a1"]["desiredStatus"] == "EXITED"


def test_cost_remembers_terminated_pods(pod, service):
    service.add_pod("a1", "canopy-one", hourly=1.0, uptime=7200)
    assert "a1  canopy-one  running  up 2:00 h  $1.00/h  $2.03" in pod("cost")[1]
    pod("terminate", "a1", "--yes")
    code, text = pod("cost")
    assert code == 0 and "a1  canopy-one  terminated  up 2:00 h  $1.00/h  $2.03" in text and "spent $2.03" in text


def test_ledger_that_cannot_be_read_refuses(pod, service, ledger_path):
    ledger_path.write_text('{"pods": {"a":')
    code, text = pod("create")
    assert code == 3 and "the spend so far is not known" in text and not service.pods


def test_no_key(pod, service, environment, tmp_path):
    environment.delenv("RUNPOD_API_KEY")
    code, text = pod("status")
    assert code == 2 and "RUNPOD_API_KEY is not set" in text and not service.requests


def test_key_of_the_home_folder_is_not_used(environment, service, sdk, tmp_path):
    """The SDK would read it; a fresh process shows that pod.py does not."""
    import os
    import subprocess
    import sys

    from conftest import root

    config = tmp_path / "home/.runpod/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'[default]\napi_key = "{KEY}"\n')
    bare = {name: value for name, value in os.environ.items() if name != "RUNPOD_API_KEY"}
    command = [sys.executable, str(root / "infra/pod.py"), "status"]
    done = subprocess.run(command, env=bare, capture_output=True, text=True)
    assert done.returncode == 2 and not service.requests
    done = subprocess.run(command, env=bare | {"RUNPOD_API_KEY": "another"}, capture_output=True, text=True)
    assert done.returncode == 1 and "refused the key (401)" in done.stderr and KEY not in done.stdout + done.stderr
    assert [headers["Authorization"] for _, _, headers in service.requests] == ["Bearer another"]


@pytest.mark.parametrize("trouble, words", [("html", "not JSON"), ("hang up", "hung up"), ("null", "unexpected shape"), ("Something broke", "Something broke")])
def test_service_in_trouble(pod, service, trouble, words):
    service.trouble = [trouble] * 3
    code, text = pod("status")
    assert code == 1 and words in text and "Traceback" not in text


def test_reading_is_tried_again(pod, service):
    service.add_pod("a1", "canopy-one")
    service.trouble = ["html", "hang up"]
    code, text = pod("status")
    assert code == 0 and "a1" in text and len(service.requests) == 3


def test_service_away(pod, service):
    service.close()
    code, text = pod("stop", "a1")
    assert code == 1 and "cannot be reached" in text


@pytest.fixture
def impatient(sdk, monkeypatch):
    """The SDK waits 30 s for an answer, a number written into its source: here it waits 0.3 s."""
    import runpod.api.graphql as graphql

    monkeypatch.setattr(graphql.requests, "post", functools.partial(lambda post, *a, **o: post(*a, **o | {"timeout": 0.3}), graphql.requests.post))


def test_timeout(pod, service, impatient):
    service.trouble = ["hang"] * 3
    code, text = pod("cost")
    assert code == 1 and "did not answer in 30 s" in text and "asked 3 times" in text


@pytest.mark.parametrize("lost", ["hang", "hang up", "html"])
def test_lost_answer_to_create_finds_the_pod(pod, service, impatient, lost, ledger_path):
    service.trouble = [None, None, None, None, f"after:{lost}"]
    code, text = pod("create")
    assert code == 0 and "the answer was lost, but the pod was made" in text and "created pod1xyz" in text
    assert len(service.pods) == 1 and service.roots().count("podFindAndDeployOnDemand") == 1
    assert list(json.loads(ledger_path.read_text())["pods"]) == ["pod1xyz"]


@pytest.mark.parametrize("lost", ["hang", "hang up", "html", "null"])
def test_lost_request_to_create_is_not_repeated(pod, service, impatient, lost):
    service.trouble = [None, None, None, None, lost]
    code, text = pod("create")
    assert code == 1 and "may still appear" in text and not service.pods
    assert service.roots().count("podFindAndDeployOnDemand") == 1


def test_no_capacity_is_told_from_other_errors(sdk):
    import pod

    for message in [NO_CAPACITY, "There are no longer any instances available with enough disk space.", "This machine does not have the resources to deploy your pod."]:
        assert pod.NO_CAPACITY.search(message)
    assert not pod.NO_CAPACITY.search("Your account balance is too low")


@pytest.mark.parametrize("arguments", [["create", "--hours", "0"], ["create", "--hours", "25"], ["create", "--hours", "six"],
                                       ["create", "--image", 'x", env: ['], ["create", "--gpu", "h200"], ["launch"], []])
def test_called_wrongly(pod, service, arguments):
    with pytest.raises(SystemExit) as left:
        pod(*arguments)
    assert left.value.code == 2 and not service.requests

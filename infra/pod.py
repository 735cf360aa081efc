#!/usr/bin/env python3
"""Rents a GPU from RunPod for the sweep, within a budget: pod.py create|status|ssh-info|cost|stop|terminate (--help).

The key comes from the environment variable RUNPOD_API_KEY and from nowhere else. It is never printed or written: every
message passes through redact(). Only pods whose name starts with "canopy-" are looked at or touched.
Exit codes: 0 done, 1 the service failed, 2 called wrongly, 3 refused by the budget, 4 no such GPU free.
"""

import argparse
import os
import re
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from ledger import DISK_GB_HOUR, Ledger, LedgerError, hourly  # noqa: E402

STOP, CAP = 32.0, 40.0  # dollars: at STOP nothing more is created, CAP is never to be passed
PREFIX = "canopy-"
VOLUME_GB, DISK_GB = 50, 40
# CUDA 12.8 is the first to compile for sm_120; Ubuntu 24.04 has the compiler and the libraries that the build wants.
IMAGE = "runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404"
CUDA_VERSIONS = ["12.8", "12.9", "13.0"]
# What --gpu means: display names, best first. Ids are asked of the service, since they differ from these names and change.
GPUS = {"rtx5090": ["RTX 5090"], "pro6000": ["RTX PRO 6000"], "h100": ["H100 PCIe"]}
GPUS["auto"] = GPUS["rtx5090"] + GPUS["pro6000"]
RETRY_PAUSE = 1.0  # seconds, doubled each time
NO_CAPACITY = re.compile(r"no longer any instances available|no instances|not have the resources|not enough free GPUs", re.I)


class Failure(Exception):
    """A sentence for the user, and the exit code."""

    def __init__(self, message, code=1):
        super().__init__(message)
        self.code = code


class Unanswered(Failure):
    """The service did not answer, or not intelligibly: whether it did what was asked is not known."""


def redact(text):
    key = os.environ.get("RUNPOD_API_KEY")
    return text.replace(key, "[key]") if key else text


def say(text, file=None):
    print(redact(text), file=file or sys.stdout, flush=True)


def sdk():
    """The runpod package with the key of the environment: it would take one from a file in the home folder by itself."""
    key = os.environ.get("RUNPOD_API_KEY", "").strip()
    if not key:
        raise Failure("RUNPOD_API_KEY is not set; remedy: copy .env.example to .env, fill it in, then: set -a; . ./.env; set +a", 2)
    try:
        import runpod
    except ImportError:
        raise Failure("the runpod package is not installed; remedy: python3 -m pip install -r infra/requirements.txt", 2) from None
    runpod.api_key = key
    return runpod


def call(function, *arguments, tries=3, **options):
    """One call of the SDK, its failures in sentences. What only reads, stops or terminates may be asked again; create may not."""
    import requests
    from runpod.error import AuthenticationError, QueryError

    for left in reversed(range(tries)):
        try:
            return function(*arguments, **options)
        except AuthenticationError:
            raise Failure("the service refused the key (401); remedy: check RUNPOD_API_KEY, or make a new key in the console") from None
        except QueryError as error:
            raise Failure(f"the service answered: {error}") from None
        except requests.Timeout:
            trouble = "did not answer in 30 s"
        except requests.ConnectionError:
            trouble = "cannot be reached, or hung up"
        except requests.JSONDecodeError:
            trouble = "answered with something that is not JSON"
        except ValueError as error:  # the SDK's own checks
            raise Failure(str(error)) from None
        except (KeyError, TypeError, IndexError):
            raise Unanswered(f"the service's answer to {function.__name__} has an unexpected shape; remedy: see whether the pinned "
                             "runpod package is too old") from None
        if left:
            time.sleep(RETRY_PAUSE * 2 ** (tries - 1 - left))
    raise Unanswered(f"the service {trouble} ({function.__name__}, asked {tries} time{'s' * (tries > 1)}); remedy: try again in a minute")


def listed(function):
    """A call that must answer with a list."""
    answer = call(function)
    if not isinstance(answer, list):
        raise Unanswered(f"the service's answer to {function.__name__} is no list")
    return answer


def our_pods(runpod):
    return [pod for pod in listed(runpod.get_pods) if str(pod.get("name", "")).startswith(PREFIX)]


def open_ledger(options, pods):
    ledger = Ledger(options.ledger)
    ledger.observe(pods, time.time())
    ledger.save()
    return ledger


def choose(runpod, pods, pod_id):
    """The pod that is meant; with no id, the only one."""
    if pod_id is None:
        if len(pods) == 1:
            return pods[0]
        names = ", ".join(pod["id"] for pod in pods) or "none"
        raise Failure(f"which pod? there are {len(pods)} whose name starts with {PREFIX}: {names}", 2)
    for pod in pods:
        if pod_id in (pod["id"], pod["name"]):
            return pod
    raise Failure(f"no pod {pod_id} whose name starts with {PREFIX}; `pod.py status` lists them", 2)


def gpu_types(runpod, wanted):
    """The service's types for the wanted display names, in order: [{id, displayName, memoryInGb}]."""
    types = listed(runpod.get_gpus)
    found = []
    for name in wanted:
        exact = [kind for kind in types if kind["displayName"].lower() == name.lower()]
        near = [kind for kind in types if name.lower() in f"{kind['displayName']} {kind['id']}".lower()]
        found += [kind for kind in exact + sorted(near, key=lambda kind: kind["displayName"]) if kind not in found]
    if not found:
        offered = ", ".join(sorted(kind["displayName"] for kind in types)) or "none"
        raise Failure(f"the service lists no {' or '.join(wanted)}; it lists: {offered}", 4)
    return found


def price(runpod, kind, cloud):
    """Dollars an hour, the dearest of what the cloud may mean; None where the type is not to be had."""
    details = call(runpod.get_gpu, kind["id"])
    names = {"SECURE": ["securePrice"], "COMMUNITY": ["communityPrice"], "ALL": ["securePrice", "communityPrice"]}[cloud]
    return max((float(details.get(name) or 0) for name in names), default=0.0) or None


def check_budget(ledger, hours, gpu_price):
    """Refuses what could pass the budget even if it ran until it stops itself."""
    spent, committed = ledger.spent(), ledger.committed()
    if spent >= STOP:
        raise Failure(f"${spent:.2f} is spent; at ${STOP:.0f} nothing more is created (hard cap ${CAP:.0f})", 3)
    hour = hourly(gpu_price, VOLUME_GB)
    if spent + committed + hours * hour > CAP:
        left = max(0.0, (CAP - spent - committed) / hour)
        raise Failure(f"${spent:.2f} spent, ${committed:.2f} promised to running pods, and {hours:g} h at ${hour:.2f} would pass the hard "
                      f"cap of ${CAP:.0f}; remedy: --hours {int(left * 10) / 10:g}, or stop a pod", 3)
    return spent, committed


def public_key(path):
    text = Path(path).expanduser().read_text().strip()
    if not re.fullmatch(r"(ssh|ecdsa|sk)-[\w@.+/=-]+ [\w+/=]+( [\w@. +/=:-]*)?", text):
        raise Failure(f"{path} is not one public SSH key; remedy: give the .pub file", 2)
    return text


def create(options):
    runpod = sdk()
    ours = our_pods(runpod)
    ledger = open_ledger(options, ours)
    running = [pod["id"] for pod in ours if pod.get("desiredStatus") == "RUNNING"]
    if running and not options.another:
        raise Failure(f"{', '.join(running)} is running already; remedy: use it, stop it, or create --another", 2)
    environment = {"MAX_POD_HOURS": f"{options.hours:g}"}
    if options.public_key:
        environment["PUBLIC_KEY"] = public_key(options.public_key)
    check_budget(ledger, 0.0, 0.0)  # before any type is looked up: said even when no GPU is free
    refusals = []
    for kind in gpu_types(runpod, GPUS[options.gpu]):
        gpu_price = price(runpod, kind, options.cloud)
        if gpu_price is None:
            refusals.append(f"{kind['displayName']}: no price on the {options.cloud} cloud, so none to be had")
            continue
        spent, committed = check_budget(ledger, options.hours, gpu_price)
        say(f"{kind['displayName']}, at most ${gpu_price:.2f} an hour, stops itself after {options.hours:g} h "
            f"(${spent:.2f} spent, ${committed:.2f} promised, cap ${CAP:.0f})")
        if options.dry_run:
            say("dry run: nothing created")
            return
        slug = re.sub(r"[^a-z0-9]+", "-", kind["displayName"].lower()).strip("-")
        name = f"{PREFIX}{slug}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
        try:
            made = call(runpod.create_pod, name, options.image, kind["id"], tries=1, cloud_type=options.cloud, support_public_ip=True,
                        start_ssh=True, gpu_count=1, volume_in_gb=VOLUME_GB, container_disk_in_gb=DISK_GB, min_vcpu_count=4,
                        min_memory_in_gb=16, ports="22/tcp", volume_mount_path="/workspace", env=environment,
                        allowed_cuda_versions=CUDA_VERSIONS)
        except Unanswered as failure:
            made = recover(runpod, name, failure)
        except Failure as failure:
            if not NO_CAPACITY.search(str(failure)):
                raise
            made = None
        if made is None:
            refusals.append(f"{kind['displayName']}: none free now")
            continue
        ledger.created(made["id"], name, gpu_price, options.hours, VOLUME_GB, time.time())
        ledger.save()
        say(f"created {made['id']} ({name}); next: pod.py ssh-info {made['id']} --wait 600")
        return
    raise Failure("; ".join(refusals) + "; remedy: try later, or another --gpu or --cloud", 4)


def recover(runpod, name, failure):
    """After a lost answer: the pod, if it was made after all. Never a second one."""
    for pod in our_pods(runpod):
        if pod["name"] == name:
            say("the answer was lost, but the pod was made", sys.stderr)
            return pod
    raise Unanswered(f"{failure}. No pod {name} is listed; it may still appear: look with `pod.py status` before creating again")


def duration(seconds):
    return f"{int(seconds) // 3600}:{int(seconds) // 60 % 60:02d} h"


def status(options):
    runpod = sdk()
    pods = our_pods(runpod)
    open_ledger(options, pods)
    for pod in pods:
        gpu = (pod.get("machine") or {}).get("gpuDisplayName") or "?"
        reachable = "ssh ready" if ssh_address(pod) else "no ssh yet"
        say(f"{pod['id']}  {pod['name']}  {gpu}  {pod.get('desiredStatus')}  ${float(pod.get('costPerHr') or 0):.2f}/h  "
            f"up {duration(pod.get('uptimeSeconds') or 0)}  {reachable}")
    if not pods:
        say(f"no pods whose name starts with {PREFIX}")


def ssh_address(pod):
    for port in (pod.get("runtime") or {}).get("ports") or []:
        if port.get("privatePort") == 22 and port.get("isIpPublic") and pod.get("desiredStatus") == "RUNNING":
            return port["ip"], int(port["publicPort"])
    return None


def ssh_info(options):
    runpod = sdk()
    until = time.monotonic() + options.wait
    while True:
        pod = choose(runpod, our_pods(runpod), options.pod)
        address = ssh_address(pod)
        if address:
            say(f"root@{address[0]} -p {address[1]}")
            return
        if pod.get("desiredStatus") != "RUNNING":
            raise Failure(f"{pod['id']} is {pod.get('desiredStatus')}, so it has no SSH")
        if time.monotonic() >= until:
            raise Failure(f"{pod['id']} has no public SSH port yet (waited {options.wait:g} s); remedy: --wait 600, or look at it in the console")
        time.sleep(min(5.0, max(0.05, until - time.monotonic())))


def cost(options):
    runpod = sdk()
    pods = our_pods(runpod)
    ledger = open_ledger(options, pods)
    for pod_id, pod in sorted(ledger.pods.items(), key=lambda item: item[1]["created"]):
        state = "terminated" if pod["gone"] else "running" if pod["running"] else "stopped"
        say(f"{pod_id}  {pod['name']}  {state}  up {duration(pod['seconds'])}  ${pod['hourly']:.2f}/h  ${ledger.cost(pod):.2f}")
    spent, committed = ledger.spent(), ledger.committed()
    say(f"spent ${spent:.2f}, promised to running pods ${committed:.2f}, nothing new from ${STOP:.0f}, hard cap ${CAP:.0f}")
    if spent < CAP:
        if spent >= STOP:
            say(f"${STOP:.0f} is reached: create refuses from now on")
        return
    running = [pod["id"] for pod in pods if pod.get("desiredStatus") == "RUNNING"]
    if options.enforce:
        for pod_id in running:
            call(runpod.stop_pod, pod_id)
            say(f"stopped {pod_id}")
        open_ledger(options, our_pods(runpod))
    still = "" if options.enforce or not running else "; remedy: pod.py stop " + " or ".join(running)
    raise Failure(f"the hard cap of ${CAP:.0f} is passed{still}", 3)


def stop(options):
    runpod = sdk()
    pods = our_pods(runpod)
    chosen = [pod for pod in pods if pod.get("desiredStatus") == "RUNNING"] if options.all else [choose(runpod, pods, options.pod)]
    for pod in chosen:
        answer = call(runpod.stop_pod, pod["id"])
        say(f"{pod['id']} {(answer or {}).get('desiredStatus', 'asked to stop')}; its volume stays and costs "
            f"${(pod.get('volumeInGb') or 0) * DISK_GB_HOUR * 24:.2f} a day until: pod.py terminate {pod['id']} --yes")
    if not chosen:
        say("nothing is running")
    open_ledger(options, our_pods(runpod))


def terminate(options):
    runpod = sdk()
    pod = choose(runpod, our_pods(runpod), options.pod)
    if not options.yes:
        raise Failure(f"terminate deletes {pod['id']} and its volume with all results on it; remedy: fetch them, then --yes", 2)
    call(runpod.terminate_pod, pod["id"])
    open_ledger(options, our_pods(runpod))
    say(f"terminated {pod['id']}")


def hours(text):
    value = float(text)
    if not 0 < value <= 24:
        raise argparse.ArgumentTypeError(f"{text} h: expected more than 0 and at most 24")
    return value


def image(text):
    if not re.fullmatch(r"[\w./:@-]+", text):
        raise argparse.ArgumentTypeError(f"{text!r}: expected an image's name, as in {IMAGE}")
    return text


def parser():
    top = argparse.ArgumentParser(prog="pod.py", description=__doc__.split("\n", 1)[0])
    top.add_argument("--ledger", default=os.environ.get("CANOPY_LEDGER", str(Path(__file__).resolve().parent / "ledger.json")),
                     help="file with what was spent (default: infra/ledger.json, ignored by git)")
    commands = top.add_subparsers(dest="command", required=True)

    def add(function, name, words, pod=True):
        sub = commands.add_parser(name, help=words, description=words)
        sub.set_defaults(run=function)
        if pod:
            sub.add_argument("pod", nargs="?", help="id or name; may be left out where there is one")
        return sub

    sub = add(create, "create", "rent a pod: RTX 5090, else RTX PRO 6000", pod=False)
    sub.add_argument("--gpu", choices=sorted(GPUS), default="auto")
    sub.add_argument("--cloud", choices=["ALL", "SECURE", "COMMUNITY"], default="ALL")
    sub.add_argument("--hours", type=hours, default=os.environ.get("MAX_POD_HOURS", "6"), help="after which it stops itself (default: MAX_POD_HOURS, else 6)")
    sub.add_argument("--image", type=image, default=IMAGE, help=f"with CUDA 12.8 or later (default {IMAGE})")
    sub.add_argument("--public-key", metavar="FILE", help="SSH key to allow besides the account's own")
    sub.add_argument("--another", action="store_true", help="even while one is running")
    sub.add_argument("--dry-run", action="store_true", help="say what would be rented, and at what price")
    add(status, "status", "list the pods", pod=False)
    add(ssh_info, "ssh-info", "what to put behind ssh").add_argument("--wait", type=float, default=0, metavar="SECONDS", help="for the port to open")
    add(cost, "cost", "uptime and spend, terminated pods included", pod=False).add_argument(
        "--enforce", action="store_true", help="stop every running pod where the hard cap is passed")
    add(stop, "stop", "stop a pod; its volume stays").add_argument("--all", action="store_true", help="every running one")
    add(terminate, "terminate", "delete a pod and its volume").add_argument("--yes", action="store_true", help="without this nothing is deleted")
    return top


def main(arguments=None):
    options = parser().parse_args(arguments)
    try:
        options.run(options)
        return 0
    except Failure as failure:
        say(f"pod.py: {failure}", sys.stderr)
        return failure.code
    except LedgerError as error:
        say(f"pod.py: {error}; remedy: mend the file, or move it away and take its spend off the budget by hand", sys.stderr)
        return 3
    except OSError as error:
        say(f"pod.py: {error}", sys.stderr)
        return 1
    except KeyboardInterrupt:
        say("pod.py: interrupted; `pod.py status` shows what is running", sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())

"""What the rented pods have cost, kept in a file, because the service forgets a pod when it is terminated.

The file holds ids, names, prices and seconds, nothing secret. Every doubt is counted as cost: a pod that was running when
last seen is charged until the moment it is first seen stopped, at most the hours after which it stops itself.
"""

import json
import os
import tempfile
from pathlib import Path

# Dollars a GB and hour: the service's price of a stopped pod's volume (0.20 a month), which is the dearest of its disks.
DISK_GB_HOUR = 0.20 / 730


class LedgerError(Exception):
    """The file cannot be read, so the spend is not known."""


class Ledger:
    """Pods by id: name, hourly (dollars), hours (limit), disk_gb, created and seen (Unix seconds), seconds, running, run_seconds, gone."""

    def __init__(self, path):
        self.path = Path(path)
        self.pods = {}
        if self.path.exists():
            try:
                self.pods = json.loads(self.path.read_text())["pods"]
                for pod in self.pods.values():
                    self.cost(pod)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise LedgerError(f"{self.path} cannot be read ({type(error).__name__}), so the spend so far is not known") from None

    def save(self):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=".ledger-")
        with os.fdopen(handle, "w") as file:
            json.dump({"pods": self.pods}, file, indent=1, sort_keys=True)
        os.replace(name, self.path)

    def created(self, pod_id, name, hourly, hours, disk_gb, now):
        self.pods[pod_id] = dict(name=name, hourly=hourly, hours=hours, disk_gb=disk_gb, created=now, seen=now, seconds=0.0,
                                 run_seconds=0.0, running=True, gone=None)

    def observe(self, pods, now):
        """Charges what has passed. pods: the service's canopy pods; one that is missing from them was terminated."""
        for pod in pods:
            uptime = float(pod.get("uptimeSeconds") or 0)
            if pod["id"] not in self.pods:  # made by hand, or the ledger is another machine's
                self.created(pod["id"], pod["name"], 0.0, limit_hours(pod), pod.get("volumeInGb") or 0, now - uptime)
            entry = self.pods[pod["id"]]
            entry["hourly"] = max(entry["hourly"], float(pod.get("costPerHr") or 0))  # a stopped pod's is lower
            self._charge(entry, pod.get("desiredStatus") == "RUNNING", uptime, now)
        present = {pod["id"] for pod in pods}
        for pod_id, entry in self.pods.items():
            if pod_id not in present and entry["gone"] is None:
                self._charge(entry, False, 0.0, now)
                entry["gone"] = now

    @staticmethod
    def _charge(entry, running, uptime, now):
        passed = max(0.0, now - entry["seen"])
        if running and entry["running"]:
            added = max(passed, uptime - entry["run_seconds"])
        elif running:  # started again: the service counts the uptime of this run
            entry["run_seconds"] = 0.0
            added = uptime
        elif entry["running"]:  # stopped since, nobody knows when
            added = min(passed, max(0.0, entry["hours"] * 3600 - entry["run_seconds"]))
        else:
            added = 0.0
        entry["seconds"] += added
        entry["run_seconds"] += added
        entry["running"], entry["seen"], entry["gone"] = running, now, None

    @staticmethod
    def cost(entry):
        """Dollars so far, the volume included."""
        exists = (entry["gone"] or entry["seen"]) - entry["created"]
        return (entry["seconds"] * entry["hourly"] + exists * entry["disk_gb"] * DISK_GB_HOUR) / 3600

    def spent(self):
        return sum(map(self.cost, self.pods.values()))

    def committed(self):
        """Dollars that running pods may still cost before they stop themselves."""
        return sum(max(0.0, pod["hours"] - pod["run_seconds"] / 3600) * hourly(pod["hourly"], pod["disk_gb"])
                   for pod in self.pods.values() if pod["running"])


def hourly(gpu, disk_gb):
    """Dollars an hour of a running pod with its volume."""
    return gpu + disk_gb * DISK_GB_HOUR


def limit_hours(pod, default=6.0):
    """MAX_POD_HOURS as the pod's environment says it."""
    for item in pod.get("env") or []:
        name, _, value = str(item).partition("=")
        if name == "MAX_POD_HOURS":
            try:
                return float(value)
            except ValueError:
                break
    return default

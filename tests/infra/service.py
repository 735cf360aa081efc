"""A RunPod service on this machine, speaking the GraphQL that the pinned SDK sends: gpuTypes, pods, pod, podFindAndDeployOnDemand,
podStop, podTerminate. It refuses what it does not know, so a call that the SDK would not make fails a test."""

import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY = "rpa_TESTKEY0123456789SECRET"
# What a pod's environment holds on the real service and must never be shown.
POD_SECRET = "pod-scoped-SECRET-98765"
NO_CAPACITY = "There are no longer any instances available with the requested specifications. Please refresh and try again."
TYPES = [
    # id, display name, GB, secure price, community price
    ("NVIDIA A40", "A40", 48, 0.40, None),
    ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTX PRO 6000 WK", 96, 1.69, None),
    ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000", 96, 1.79, None),
    ("NVIDIA GeForce RTX 5090", "RTX 5090", 32, 0.94, 0.69),
    ("NVIDIA H100 80GB HBM3", "H100 SXM", 80, 2.69, None),
    ("NVIDIA H100 PCIe", "H100 PCIe", 80, 2.39, 1.99),
]
POD_FIELDS = ("id containerDiskInGb costPerHr desiredStatus dockerArgs dockerId env gpuCount imageName lastStatusChange machineId memoryInGb "
              "name podType port ports uptimeSeconds vcpuCount volumeInGb volumeMountPath").split()


class Service:
    """pods: id -> fields; full: type ids of which none is free; trouble: what to do to the next calls instead of answering;
    requests: (root field, query, headers) as they came."""

    def __init__(self):
        self.pods, self.full, self.trouble, self.requests = {}, set(), [], []
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                service.handle(self)

            def log_message(self, *arguments):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def add_pod(self, pod_id, name, hourly=0.94, status="RUNNING", uptime=0, ssh=True):
        ports = [{"ip": "10.1.2.3", "isIpPublic": False, "privatePort": 22, "publicPort": 60022, "type": "tcp"},
                 {"ip": "203.0.113.7", "isIpPublic": True, "privatePort": 22, "publicPort": 14022, "type": "tcp"}]
        pod = dict.fromkeys(POD_FIELDS)
        pod.update(id=pod_id, name=name, costPerHr=hourly, desiredStatus=status, uptimeSeconds=uptime, volumeInGb=50, gpuCount=1,
                   env=[f"RUNPOD_API_KEY={POD_SECRET}", "MAX_POD_HOURS=6"], runtime={"ports": ports} if ssh else None,
                   machine={"gpuDisplayName": "RTX 5090"})
        self.pods[pod_id] = pod
        return pod

    def roots(self):
        return [root for root, _, _ in self.requests]

    def handle(self, http):
        query = json.loads(http.rfile.read(int(http.headers["Content-Length"])))["query"]
        root = re.match(r"\s*(?:query \w+|mutation)\s*\{\s*(\w+)", query)[1]
        self.requests.append((root, query, dict(http.headers)))
        trouble = self.trouble.pop(0) if self.trouble else None
        if trouble and trouble.startswith("after:"):  # does what was asked, and loses the answer
            self.answer(root, query)
            trouble = trouble[len("after:"):]
        if trouble == "hang":
            time.sleep(1.5)
            return
        if trouble == "hang up":
            http.connection.close()
            return
        if trouble == "html":
            self.send(http, 502, "<html>Bad gateway</html>", "text/html")
        elif trouble == "null":
            self.send(http, 200, {"data": None})
        elif trouble:
            self.send(http, 200, {"errors": [{"message": trouble}], "data": None})
        elif http.path != "/graphql" or http.headers["Authorization"] != f"Bearer {KEY}":
            self.send(http, 401, {"message": "Unauthorized"})
        else:
            try:
                self.send(http, 200, {"data": self.answer(root, query)})
            except ValueError as error:
                self.send(http, 200, {"errors": [{"message": str(error)}]})

    def send(self, http, status, body, kind="application/json"):
        text = (body if isinstance(body, str) else json.dumps(body)).encode()
        http.send_response(status)
        http.send_header("Content-Type", kind)
        http.send_header("Content-Length", str(len(text)))
        http.end_headers()
        http.wfile.write(text)

    def answer(self, root, query):
        if root == "gpuTypes":
            wanted = re.search(r'gpuTypes\(input: \{id: "([^"]+)"\}\)', query)
            return {"gpuTypes": [dict(id=i, displayName=name, memoryInGb=gb, securePrice=secure, communityPrice=community)
                                 for i, name, gb, secure, community in TYPES if not wanted or i == wanted[1]]}
        if root == "myself":
            return {"myself": {"pods": list(self.pods.values())}}
        if root == "podFindAndDeployOnDemand":
            return {root: self.deploy(arguments(query))}
        pod_id = re.search(r'podId: "([^"]*)"', query)[1]
        if pod_id not in self.pods:
            raise ValueError("pod not found")
        if root == "pod":
            return {root: self.pods[pod_id]}
        if root == "podStop":
            self.pods[pod_id].update(desiredStatus="EXITED", runtime=None, uptimeSeconds=0)
            return {root: {"id": pod_id, "desiredStatus": "EXITED"}}
        if root == "podTerminate":
            del self.pods[pod_id]
            return {root: None}
        raise ValueError(f"unknown field {root}")

    def deploy(self, given):
        kind = next((t for t in TYPES if t[0] == given["gpuTypeId"]), None)
        if kind is None:
            raise ValueError("unknown gpuTypeId")
        if kind[0] in self.full:
            raise ValueError(NO_CAPACITY)
        pod = self.add_pod(f"pod{len(self.pods) + 1}xyz", given["name"], hourly=kind[3])
        pod["machine"] = {"gpuDisplayName": kind[1]}
        pod["given"] = given
        return {"id": pod["id"], "imageName": given["imageName"], "env": pod["env"], "machineId": "m1", "machine": {"podHostId": "h1"}}


def arguments(query):
    """The fields of a mutation's input: strings, numbers, true and false, null, names; lists as their text."""
    text = re.search(r"input: \{(.*)\}\s*\)\s*\{", query, re.S)[1]
    token = re.compile(r'(\w+): ("(?:[^"\\]|\\.)*"|\[[^\]]*\]|[\w.]+)\s*(?:,|$)')
    fields, at = {}, 0
    text = text.strip()
    while at < len(text):
        found = token.match(text, at)
        if not found:
            raise ValueError(f"Syntax Error at {text[at:at + 30]!r}")
        value = found[2]
        fields[found[1]] = value[1:-1] if value[0] == '"' else int(value) if value.isdigit() else value
        at = found.end()
        while at < len(text) and text[at].isspace():
            at += 1
    return fields

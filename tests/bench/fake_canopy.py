"""Stands in for the program on a machine with an RTX 5090: answers requests as `canopy bench --requests` would, with times by formula.

Told by the environment: FAKE_LOG counts its answers, FAKE_DIE_AFTER ends it after so many, FAKE_REFUSE refuses a family or a choice of contenders, FAKE_COMMIT names its
commit; everything else goes to the real program (CANOPY_PROGRAM).
"""

import json
import os
import subprocess
import sys

REAL = os.environ.get("CANOPY_PROGRAM", "build/canopy")
GPU = {"name": "NVIDIA GeForce RTX 5090", "multiprocessors": 170, "compute_capability": 120, "l2_bytes": 100663296, "driver": 13000,
       "runtime": 13000, "before": {"clocks.sm": 2400.0}}  # fmt: skip
TIMES = {"cuda_fused": lambda B, T: 6 + 0.05 * T * B / 4, "cuda_serial_resident": lambda B, T: 2 + 0.5 * T + 0.1 * B * T,
         "cuda_dense": lambda B, T: 6 * max(1, T / 32), "cuda_serial_snapshot": lambda B, T: 3 + 0.8 * T + 0.4 * B * T, "floor": lambda B, T: 2 + 0.01 * T * B}  # fmt: skip


def shape(request):
    names = ("B", "T", "H", "HV", "K", "V", "input", "state")
    record = {name: request[name] for name in names} | {"device": "cuda", "family": request.get("name", request["family"])}
    return record | {name: request[name] for name in ("keys", "cosine", "gates", "betas", "stash") if name in request}


def place(request):
    return {"seed": request["seed"], "depth": min(request["depth"], request["T"] - 1)}


def answer(request):
    measure = request.get("measure", "time")
    if measure == "environment":
        return [{"type": "environment", "schema": 1, "canopy": "0.1.0", "commit": os.environ.get("FAKE_COMMIT", "0123456789ab"), "cpu": "Test CPU",
                 "cores": 16, "gpu": GPU, "implementations": [{"name": name} for name in TIMES]}]  # fmt: skip
    if os.environ.get("FAKE_REFUSE") in (request["family"], request.get("contenders", "none")):
        raise ValueError("refused")
    if measure.startswith("conv"):
        names = ("B", "T", "depth", "seed", "channels", "width", "layers", "input", "silu")
        own = {"type": "conv", "schema": 1, "device": "cuda", "family": request["name"]} | {name: request[name] for name in names}
        kernel = {"contender": "cuda_" + measure, "relative": 0.0 if request["layers"] > 1 else 5e-8, "max_abs": 1e-6, "passed": True}
        return [own | {"cache": cache, "n": 200, "median_us": us, "p10_us": us, "p90_us": us, "bytes": 1e6} | said
                for cache in request["caches"] for us, said in ((4.0, kernel), (2.0, {"contender": "copy"}))]  # fmt: skip
    common = {"schema": 1, "contender": "cuda_fused", "strategy": "fused", "precision": "half"} | shape(request)
    error = {"relative": 2e-3, "max_abs": 1e-3, "passed": True}
    if measure == "accuracy":
        return [{"type": "accuracy"} | common | place(request) | error]
    if measure == "memory":
        peaks = {"snapshots": request["T"] << 21, "stash": request["T"] << 14, "resolve": 0}
        return [{"type": "memory", "way": way, "layers": request["layers"], "peak_bytes": peak * request["layers"], "kept_bytes": peak,
                 "workspace_bytes": 1024, "how": "free device memory"} | common for way, peak in peaks.items()]  # fmt: skip
    if measure == "rounds":
        return [{"type": "rounds", "method": "resolve", "rounds": [1, request["rounds"]], "state_error": [1e-7, 2e-7], "output_error": [2e-3, 2e-3],
                 "argmax": {"words": 256, "nodes": 16 * request["rounds"], "flips": 1}} | common]  # fmt: skip
    cells = []
    for cache in ["warm"] if measure == "commit" else request["caches"]:
        for name, time in TIMES.items():
            if request.get("stash") and name == "floor":
                continue
            slower = 3 if request.get("stash") and name == "cuda_fused" else 1  # as precise is
            median = round(time(request["B"], request["T"]) * slower * (1.1 if cache == "cold" else 1), 3)
            timed = {"cache": cache, "n": 200, "median_us": median, "p10_us": median * 0.99, "p90_us": median * 1.01, "bytes": 1e6}
            own = {"contender": name, "strategy": name.partition("_")[2] or name, "precision": "default"}
            cells.append({"type": "cell"} | common | own | place(request) | timed | (error if name != "floor" else {}) | ({"relative_u": 1e-6} if request.get("stash") else {}))
    return cells


def serve():
    left = int(os.environ.get("FAKE_DIE_AFTER", "1000000"))
    for line in sys.stdin:
        request = json.loads(line)
        if request.get("measure") != "environment":
            if left == 0:
                sys.exit(3)
            left -= 1
            with open(os.environ["FAKE_LOG"], "a") as log:
                log.write(line)
        try:
            for record in answer(request):
                print(json.dumps(record))
            print('{"type": "done"}', flush=True)
        except ValueError as why:
            print(json.dumps({"type": "failed", "message": str(why)}), flush=True)


if sys.argv[1:3] == ["bench", "--requests"]:
    serve()
elif sys.argv[1:2] == ["env"]:
    print(json.dumps({"implementations": [{"name": "cuda_fused", "kind": "verify", "usable": True, "description": "fake"}]}))
else:
    sys.exit(subprocess.run([REAL, *sys.argv[1:]]).returncode)

"""Triton's kernels compiled by many processes before they are needed: tuning is compiling, and one process compiles one at a time.

A process calls what a check will call, but of every tuned kernel only its share of the configurations, once each and untimed: the
compiled code is then in Triton's cache, and the check tunes alone on a quiet GPU, without compiling.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from common import say

Job = tuple[str, int]  # what a process does, and among how many processes its configurations are shared out


def share_of_configurations(part: int, parts: int) -> None:
    """From now on tuned kernels (FLA's too) take the share part of parts of their configurations, at least one, and do not time them."""
    from triton.runtime.autotuner import Autotuner

    every = Autotuner.prune_configs

    def some(self: Autotuner, kwargs: dict[str, Any]) -> list[Any]:
        configs = every(self, kwargs)
        return configs[part::parts] or configs[-1:]

    def once(call: Any, quantiles: Any = None) -> list[float]:
        call()
        return [0.0] * 3

    def untimed(self: Autotuner, key: Any, configs: Any, tune: Any) -> bool:
        tune()
        return False

    Autotuner.prune_configs = some
    Autotuner.do_bench = property(lambda self: once)
    Autotuner.check_disk_cache = untimed  # where FLA keeps what it found fastest


class Compiling:
    """Processes of `python COMMAND.. --warm JOB/PART/PARTS`, as many at a time as there are cores; their output in `logs`, if given."""

    def __init__(self, command: list[str], jobs: list[Job], logs: str | None = None, seconds: float = 240) -> None:
        self.command, self.logs, self.seconds = command, logs and pathlib.Path(logs), seconds
        self.until, self.started = time.monotonic() + seconds, time.monotonic()
        self.running: set[subprocess.Popen] = set()
        self.pool = ThreadPoolExecutor(max(1, min(len(os.sched_getaffinity(0)), 32)))
        if self.logs:
            self.logs.mkdir(parents=True, exist_ok=True)
        items = [f"{job}/{part}/{parts}" for job, parts in jobs for part in range(parts)]
        self.futures: dict[str, Future] = {item: self.pool.submit(self.one, item) for item in items}

    def one(self, item: str) -> str:
        """Why it failed, "" where it did not."""
        log = (
            self.logs / f"{item.replace('/', '-').replace(' ', '-').replace(':', '-')}.log"
            if self.logs
            else pathlib.Path(os.devnull)
        )
        with log.open("w") as file:
            process = subprocess.Popen([sys.executable, *self.command, "--warm", item], stdout=file, stderr=file)
            self.running.add(process)
            try:
                status = process.wait(timeout=max(self.until - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                process.kill()
                return f"was stopped {self.seconds:.0f} s after the first began"
            finally:
                self.running.discard(process)
        return f"ended with status {status}" if status else ""

    def wait(self) -> None:
        """One that fails or hangs is said and not fatal: the check that needs its kernels compiles them, or fails itself."""
        wait(self.futures.values())
        for item, future in self.futures.items():
            if why := future.result():
                say(f"       compiling {item} ahead {why}" + (f"; see {self.logs}" if self.logs else ""))
        if self.futures:
            say(f"       {len(self.futures)} processes compiled ahead for {time.monotonic() - self.started:.1f} s")

    def stop(self) -> None:
        self.pool.shutdown(wait=False, cancel_futures=True)
        for process in list(self.running):
            with contextlib.suppress(ProcessLookupError):
                process.kill()


def split(item: str) -> tuple[str, int, int]:
    job, part, parts = item.rsplit("/", 2)
    return job, int(part), int(parts)

"""Asks a program for measurements and keeps its answers in a result file: resumable, with progress and the time left.

The program is `canopy bench --requests -` or bench/torch_worker.py: a request is a line of JSON, its answer are records and then
{"type": "done"} or {"type": "failed"}. What a finished file or a broken off one already holds is not asked again.
"""

from __future__ import annotations

import json
import math
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import records
from records import Record

Request = dict[str, Any]
KINDS = {"time": "cell", "commit": "cell", "accuracy": "accuracy", "memory": "memory", "rounds": "rounds", "conv": "conv",
         "conv_commit": "conv"}  # fmt: skip
SHAPE = ("B", "T", "H", "HV", "K", "V", "input", "state", "keys", "cosine", "gates", "betas", "raw_gates", "l2norm", "stash", "channels",
         "width", "silu")  # fmt: skip


class Failed(Exception):
    """The program refused a request, died of it or did not answer in time."""


class Program:
    """A program that answers requests, started when it is asked and again after it died."""

    def __init__(self, command: list[str], patience: float = 900) -> None:
        self.command, self.patience = command, patience
        self.process: subprocess.Popen[str] | None = None
        self.lines: queue.Queue[str | None] = queue.Queue()
        self.following: Request | None = None  # what will be asked next, if that is known
        self.sent: Request | None = None  # the request that was sent ahead of its turn

    def start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        lines = self.lines = queue.Queue()

        def forward() -> None:
            for line in process.stdout or ():
                lines.put(line)
            lines.put(None)

        threading.Thread(target=forward, daemon=True).start()
        return process

    def announce(self, request: Request | None) -> None:
        """It will be asked after the next one: it is sent along, so that the program can make ready for it."""
        self.following = request

    def ask(self, request: Request) -> list[Record]:
        """The records of its answer. Raises Failed."""
        following = self.following
        if self.sent is not None and request is not self.sent:  # its answer, which nobody wants any more, would come first
            self.close()
        if self.process is None:
            self.process = self.start()
        sending = [one for one in (request if request is not self.sent else None, following) if one is not None]
        self.sent, self.following = following, None
        try:
            assert self.process.stdin
            self.process.stdin.write("".join(json.dumps(one) + "\n" for one in sending))
            self.process.stdin.flush()
        except OSError:
            pass  # it is dead: its output ends below
        answer: list[Record] = []
        limit = time.monotonic() + self.patience
        while True:
            try:
                line = self.lines.get(timeout=max(0.0, limit - time.monotonic()))
            except queue.Empty:
                self.close()
                raise Failed(f"no answer in {self.patience:.0f} s; the program was stopped") from None
            if line is None:
                status = self.close()
                raise Failed(f"{self.command[0]} ended with status {status}")
            record = json.loads(line)
            if record["type"] == "done":
                return answer
            if record["type"] == "failed":
                if record.get("ends"):  # it cannot go on
                    self.close()
                raise Failed(record["message"])
            answer.append(record)

    def close(self) -> int | None:
        process, self.process = self.process, None
        self.sent = self.following = None
        if process is None:
            return None
        if process.stdin:
            try:
                process.stdin.close()
            except OSError:
                pass
        try:
            return process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


def signature(source: dict[str, Any], kind: str, family: str, extra: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a request asks and a record answers: the same tuple for both."""
    exact = source["depth"] if family == "spine" else None  # spines of one size differ by their depth
    return (kind, family, exact, *(source.get(name) for name in SHAPE), *extra)


def asked(request: Request) -> list[tuple[Any, ...]]:
    """The signatures of the records that answer a request."""
    measure = request.get("measure", "time")
    kind, family = KINDS[measure], name_of(request)
    if measure == "time":
        return [signature(request, kind, family, (request.get("threads"), cache)) for cache in request["caches"]]
    if kind == "conv":
        return [signature(request, kind, family, (request["layers"], cache)) for cache in request["caches"]]
    if measure == "commit":
        return [signature(request, kind, family, (None, "warm"))]
    return [signature(request, kind, family, (request.get({"memory": "layers", "rounds": "rounds"}.get(measure, "")),))]


def answered(record: Record) -> tuple[Any, ...]:
    kind = record["type"]
    if kind == "cell":
        extra: tuple[Any, ...] = (record.get("threads"), record["cache"])
    elif kind == "conv":
        extra = (record["layers"], record["cache"])
    else:
        extra = (record["layers"] if kind == "memory" else record["rounds"][-1] if kind == "rounds" else None,)
    return signature(record, kind, record["family"], extra)


def name_of(request: Request) -> str:
    """The family as its records have it."""
    return str(request.get("name", request["family"]))


def words(request: Request) -> str:
    return f"{name_of(request)} T={request['T']} B={request['B']}"


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


class Progress:
    """A line on a terminal, rewritten; in a log one every half minute."""

    def __init__(self, label: str, total: int, until: float = math.inf) -> None:
        self.label, self.total, self.until, self.begun, self.said = label, total, until, time.monotonic(), float("-inf")
        self.terminal = sys.stderr.isatty()

    def step(self, done: int, what: str) -> None:
        now = time.monotonic()
        if now - self.said < (0.1 if self.terminal else 30):
            return
        self.said = now
        left = f"{duration((now - self.begun) / done * (self.total - done))} left" if done else "just begun"
        if self.until < math.inf:
            left += f", stops in {duration(max(0, self.until - now))}"
        text = f"{self.label} {done}/{self.total}, {left}: {what}"
        print(f"\r\033[K{text}" if self.terminal else text, end="" if self.terminal else "\n", file=sys.stderr, flush=True)

    def close(self, text: str) -> None:
        print(f"\r\033[K{text}" if self.terminal else text, file=sys.stderr, flush=True)


def open_file(path: Path, environment: Record) -> set[tuple[Any, ...]]:
    """Makes the file ready to be appended to and returns what it already answers. One file is of one environment (machine, driver,
    commit, build): a file of another begins anew."""
    held = records.read(path)
    if not any(record["type"] == "environment" and record["id"] == environment["id"] for record in held):
        if held:
            print(f"{path}: of another commit or machine, begun anew", file=sys.stderr)
        held = [environment]
    records.write(path, held)  # without a line that was cut off
    return {answered(record) for record in held if record["type"] != "environment"}


def fill(
    path: Path,
    environment: Record,
    requests: Iterable[Request],
    ask: Callable[[Request], list[Record]],
    until: float = math.inf,
    announce: Callable[[Request | None], None] = lambda request: None,
) -> tuple[list[str], int]:
    """Asks what the file does not hold yet and appends each answer as it comes; after `until` (time.monotonic()) nothing more. Returns
    what failed, in words, and how many were not asked. `announce` is told of the request after the one that is asked."""
    known = open_file(path, environment)
    todo = [request for request in requests if not known.issuperset(asked(request))]
    progress, failures, kept, cut = Progress(path.stem, len(todo), until), [], 0, 0
    with path.open("a") as file:
        for done, request in enumerate(todo):
            if time.monotonic() >= until:
                cut = len(todo) - done
                break
            progress.step(done, words(request))
            announce(todo[done + 1] if done + 1 < len(todo) else None)
            try:
                answer = ask(request)
            except Failed as why:
                failures.append(f"{words(request)}: {why}")
                continue
            file.write("".join(records.line(records.attach(record, environment)) for record in answer))
            file.flush()
            kept += len(answer)
    answered = len(todo) - len(failures) - cut
    progress.close(f"{path}: {kept} records of {answered} requests, {len(failures)} failed" + (f", {cut} not asked: the time was over" if cut else ""))
    return failures, cut

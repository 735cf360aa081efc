"""Asking, keeping, resuming: a run that was broken off asks only what is missing."""

import json
import subprocess
import sys

import command
import pytest
import records
import runner
import shapes

REQUESTS = [shapes.of_family("cuda", "chain", nodes, 1, caches=["warm", "cold"]) for nodes in (4, 8, 16)]


def fill(path, environment, fake, requests=REQUESTS, **more):
    program = command.serve(fake.path)
    try:
        return runner.fill(path, environment, requests, program.ask, **more)[0]
    finally:
        program.close()


def test_a_run_that_died_goes_on_where_it_stopped(tmp_path, fake, gpu_environment, monkeypatch):
    path = tmp_path / "sweep.jsonl"
    monkeypatch.setenv("FAKE_DIE_AFTER", "1")  # each start answers once and then dies of the next question
    failures = fill(path, gpu_environment, fake)
    assert len(failures) == 1 and "ended with status 3" in failures[0] and failures[0].startswith("chain T=8")
    assert fake.asked() == 2  # the third was asked of a program that was started again
    monkeypatch.delenv("FAKE_DIE_AFTER")
    assert fill(path, gpu_environment, fake) == [] and fake.asked() == 3
    assert fill(path, gpu_environment, fake) == [] and fake.asked() == 3
    held = records.read(path)
    assert [record["type"] for record in held].count("environment") == 1
    assert sorted({record["T"] for record in held[1:]}) == [4, 8, 16] and len(held) == 1 + 3 * 2 * 5


def test_a_cut_off_line_is_dropped_and_its_shape_asked_again(tmp_path, fake, gpu_environment):
    path = tmp_path / "sweep.jsonl"
    fill(path, gpu_environment, fake)
    whole = path.read_text()
    lines = whole.splitlines(keepends=True)
    path.write_text("".join(lines[: 1 + 20]) + lines[21] + lines[22][:40])  # T = 16 only warm, and half a line
    fill(path, gpu_environment, fake)
    assert fake.asked() == 4 and records.read(path)[-1]["T"] == 16
    assert {record["cache"] for record in records.read(path) if record.get("T") == 16} == {"warm", "cold"}


def test_a_broken_line_in_the_middle_is_an_error(tmp_path):
    path = tmp_path / "sweep.jsonl"
    path.write_text('{"type": "environment"}\n{"type": \n{"type": "cell"}\n')
    with pytest.raises(ValueError, match="sweep.jsonl:2: not JSON"):
        records.read(path)


def test_another_commit_begins_anew(tmp_path, fake, gpu_environment, capsys):
    path = tmp_path / "sweep.jsonl"
    fill(path, gpu_environment, fake)
    other = records.tidy_environment(gpu_environment | {"commit": "ba9876543210"})
    assert other["id"] != gpu_environment["id"]
    fill(path, other, fake, REQUESTS[:1])
    assert "begun anew" in capsys.readouterr().err
    assert {record.get("environment", other["id"]) for record in records.read(path)} == {other["id"]} and fake.asked() == 4


def test_clocks_and_the_day_are_no_other_environment(gpu_environment):
    hot = gpu_environment | {"gpu": gpu_environment["gpu"] | {"before": {"temperature.gpu": 80.0}}}
    assert records.tidy_environment(hot, "2026-01-01")["id"] == gpu_environment["id"]


def test_refusals_are_reported_and_the_rest_goes_on(tmp_path, fake, gpu_environment, monkeypatch):
    monkeypatch.setenv("FAKE_REFUSE", "best-first")
    requests = [*REQUESTS[:1], shapes.of_family("cuda", "best-first-4", 8, 1, caches=["warm"]), *REQUESTS[1:]]
    assert fill(tmp_path / "sweep.jsonl", gpu_environment, fake, requests) == ["best-first-4 T=8 B=1: refused"]
    assert fake.asked() == 4


def test_when_the_time_is_over_nothing_more_is_asked_and_the_next_run_goes_on(tmp_path, fake, gpu_environment, monkeypatch, capsys):
    path, program = tmp_path / "sweep.jsonl", command.serve(fake.path)
    until = runner.time.monotonic() + 1000
    real = program.ask

    def slow(request):
        monkeypatch.setattr(runner.time, "monotonic", lambda: until)  # this answer takes all that is left
        return real(request)

    assert runner.fill(path, gpu_environment, REQUESTS, slow, until) == ([], 2) and fake.asked() == 1
    assert "2 not asked: the time was over" in capsys.readouterr().err
    monkeypatch.undo()
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "asked"))
    assert runner.fill(path, gpu_environment, REQUESTS, real) == ([], 0) and fake.asked() == 3
    program.close()


ECHO = """import json, sys, time
for line in sys.stdin:
    request = json.loads(line)
    if request == "die": sys.exit(3)
    print(json.dumps({"type": "cell", "got": request}))
    print(json.dumps({"type": "done"}), flush=True)
"""


def test_what_is_announced_is_sent_once_and_its_answer_kept_for_its_turn():
    program = runner.Program([sys.executable, "-c", ECHO], patience=20)
    requests = [{"n": n} for n in range(4)]
    program.announce(requests[1])
    assert program.ask(requests[0]) == [{"type": "cell", "got": {"n": 0}}] and program.sent is requests[1]
    program.announce(requests[2])
    assert program.ask(requests[1])[0]["got"] == {"n": 1}  # nobody sent it a second time, or the next answer would be its
    assert program.ask(requests[2])[0]["got"] == {"n": 2} and program.sent is None
    assert program.ask(requests[3])[0]["got"] == {"n": 3}
    program.close()


def test_what_was_announced_and_is_not_asked_answers_nobody():
    program = runner.Program([sys.executable, "-c", ECHO], patience=20)
    program.announce({"n": 1})
    program.ask({"n": 0})
    assert program.ask({"n": 5})[0]["got"] == {"n": 5}  # the time was over: something else is asked
    program.close()


def test_a_program_that_died_of_what_was_announced_is_asked_anew():
    program = runner.Program([sys.executable, "-c", ECHO], patience=20)
    program.announce("die")
    assert program.ask({"n": 0})[0]["got"] == {"n": 0}
    program.announce({"n": 2})
    with pytest.raises(runner.Failed, match="ended with status 3"):
        program.ask("die")
    assert program.sent is None and program.ask({"n": 2})[0]["got"] == {"n": 2}
    program.close()


def test_a_program_that_cannot_go_on_is_started_again():
    failing = '    print(json.dumps({"type": "failed", "message": "spoilt", "ends": True}), flush=True); time.sleep(60)\n'
    spoilt = ECHO.replace("    if request", failing + "    if request")
    program = runner.Program([sys.executable, "-c", spoilt], patience=20)
    program.announce({"n": 1})
    with pytest.raises(runner.Failed, match="spoilt"):
        program.ask({"n": 0})
    assert program.process is None and program.sent is None


def test_a_program_that_hangs_is_stopped():
    program = runner.Program([sys.executable, "-c", "import time; time.sleep(60)"], patience=0.2)
    with pytest.raises(runner.Failed, match="no answer"):
        program.ask({})
    assert program.process is None


@pytest.mark.parametrize("seconds, words", [(0.4, "0 s"), (59.6, "1 min 00 s"), (200, "3 min 20 s"), (3600, "1 h 00 min"), (7384, "2 h 03 min")])
def test_durations(seconds, words):
    assert runner.duration(seconds) == words


def test_progress_tells_the_time_left(capsys, monkeypatch):
    clock = iter([0.0, 0.0, 60.0, 70.0])
    monkeypatch.setattr(runner.time, "monotonic", lambda: next(clock))
    progress = runner.Progress("sweep", 4)
    progress.step(0, "chain")
    progress.step(1, "star")  # a minute for one of four
    progress.step(2, "soon after: not said again in a log")
    assert capsys.readouterr().err == "sweep 0/4, just begun: chain\nsweep 1/4, 3 min 00 s left: star\n"


def test_progress_tells_when_it_stops(capsys, monkeypatch):
    clock = iter([0.0, 60.0])
    monkeypatch.setattr(runner.time, "monotonic", lambda: next(clock))
    runner.Progress("sweep", 4, until=150.0).step(1, "star")
    assert capsys.readouterr().err == "sweep 1/4, 3 min 00 s left, stops in 1 min 30 s: star\n"


@pytest.mark.parametrize("line, message", [('{"T":', "no JSON from byte 6"), ("[1, 2]", "one JSON object a line"), ('{"T": "many"}', "one JSON object a line"), ('{"TT": 4}', '"TT": no such field')])  # fmt: skip
def test_a_line_that_is_no_request_is_answered_in_words(program, line, message):
    done = subprocess.run([program, "bench", "--requests", "-"], input=line + "\n", capture_output=True, text=True)
    answer = json.loads(done.stdout)
    assert answer["type"] == "failed" and message in answer["message"] and "exception" not in answer["message"]

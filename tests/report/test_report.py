"""bench/report.py on small results, and the committed FINAL_REPORT.md and post/draft.md against the committed files."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

root = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(root / "bench"))
import report  # noqa: E402

BASE = dict(type="cell", schema=1, device="cuda", B=1, T=128, depth=8, family="best-first", seed=0, H=16, HV=32, K=128, V=128, state="f32", cache="cold", n=200)


def cell(contender, median, **more):
    return BASE | dict(contender=contender, median_us=median, p10_us=median, p90_us=median) | more


@pytest.fixture
def folder(tmp_path):
    """A root with one result file, one quoted document and the two texts."""
    cells = [cell("cuda_fused", 10.0, relative=1e-3), cell("cuda_fused", 12.0, T=4, family="chain", depth=3, relative=2e-3),
             cell("cuda_dense", 13.0, T=4, family="chain", depth=3, relative=3e-4, relative_timed=1.7e-3, error_of="o in f32"),
             cell("cuda_split", 13.0, T=4, family="chain", depth=3, relative=3e-4, error_of="o in f32"),
             cell("cuda_serial_resident", 62.345, relative=1e-7), cell("cuda_serial_resident", 6.0, T=4, family="chain", depth=3, relative=3e-7),
             cell("cuda_serial_snapshot", 1234.5), cell("floor", 4.0)]
    environment = dict(type="environment", commit="abc", gpu=dict(name="NVIDIA Test", compute_capability=90))
    (tmp_path / "results").mkdir()
    (tmp_path / "results/gpu-test.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [environment, *cells]))
    (tmp_path / "NOTES.md").write_text("# Lab book\n\n## Choices the papers leave open\n\n- One.\n  Two.\n\n## Next\n\nFive checks, 3 failed\nin all.\n")
    (tmp_path / "post").mkdir()
    (tmp_path / "docs").mkdir()
    for text in ("post/draft.md", "docs/benchmarks.md", "README.md"):
        (tmp_path / text).write_text("nothing\n")
    (tmp_path / "FINAL_REPORT.md").write_text("nothing\n")
    return tmp_path


def run(folder, *arguments):
    done = subprocess.run([sys.executable, str(root / "bench/report.py"), "--root", str(folder), *arguments], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def written(folder, text):
    (folder / "FINAL_REPORT.md").write_text(text)
    code, said = run(folder)
    return code, said, (folder / "FINAL_REPORT.md").read_text()


def test_committed_files_are_what_the_results_say():
    assert run(root, "--check") == (0, "")


@pytest.mark.parametrize(
    "path, expected",
    [("gpu-test/us/cuda_fused/B1/best-first/T128/cold", "10.0"), ("gpu-test/us/cuda_serial_snapshot/B1/best-first/T128/cold", "1,234"),
     ("gpu-test/us/floor/B1/best-first/T128/cold", "4.00"), ("gpu-test/ratio/cuda_serial_resident:cuda_fused/B1/best-first/T128/cold", "6.2"),
     ("gpu-test/error/cuda_fused/B1/chain/T4/cold", "2.0e-3"), ("gpu-test/rounded/cuda_fused/B1/chain/T4/cold", "2.0e-3"),
     ("gpu-test/error/cuda_dense/B1/chain/T4/cold", "3.0e-4"), ("gpu-test/rounded/cuda_dense/B1/chain/T4/cold", "1.7e-3"), ("kept/snapshots/128/1", "256.0 MiB"), ("kept/stash/128/24", "48.4 MiB")])
def test_numbers(folder, path, expected):
    code, said, text = written(folder, f"takes 99.9<!-- = {path} --> us, and 7 more")
    assert (code, text) == (0, f"takes {expected}<!-- = {path} --> us, and 7 more"), said
    # Written once, it stays.
    assert run(folder) == (0, "") and run(folder, "--check") == (0, "")


@pytest.mark.parametrize(
    "path, words",
    [("gpu-test/us/cuda_fused/B2/best-first/T128/cold", "0 cells of cuda_fused"), ("gpu-none/us/cuda_fused/B1/best-first/T128/cold", "0 cells"),
     ("gpu-test/speed/cuda_fused/B1/best-first/T128/cold", "speed is not us, ratio, error or rounded"), ("numerics/full/fp32/equal/neumann/64", "no study"),
     ("gpu-test/rounded/cuda_split/B1/chain/T4/cold", "its o was not rounded"),
     ("published/Bole/A100/B1/median_us", "no such published number"), ("kept/everything/128/1", "everything")])
def test_number_that_nobody_measured(folder, path, words):
    code, said, text = written(folder, f"takes 99.9<!-- = {path} -->")
    assert code == 1 and words in said and "99.9" in text


def test_check_changes_nothing_and_names_the_line(folder):
    stale = "fine\ntakes 11.0<!-- = gpu-test/us/cuda_fused/B1/best-first/T128/cold --> us\n"
    (folder / "post/draft.md").write_text(stale)
    code, said = run(folder, "--check")
    assert code == 1 and "make report" in said and "takes 11.0" in said and (folder / "post/draft.md").read_text() == stale


@pytest.mark.parametrize("text, words", [
    ("3 failed<!-- NOTES.md: checks, 3 failed in all -->", None), ("4<!-- NOTES.md: checks, 3 failed -->", "4 is not in what it quotes"),
    ("3<!-- NOTES.md: 3 passed -->", "does not say: 3 passed"), ("3<!-- docs/none.md: 3 -->", "none.md")])
def test_quotes(folder, text, words):
    code, said, after = written(folder, text)
    assert (code == 0) == (words is None) and after == text and (words is None or words in said)


def test_every_table_is_filled_and_prose_is_left_alone(folder):
    text = "".join(f"before {name}\n<!-- begin: {name} -->\n<!-- end -->\nafter {name}\n" for name in ("parity", "bole-shape", "contenders", "crossover", "memory", "coverage", "choices"))
    code, said, after = written(folder, text)
    assert code == 0, said
    assert re.sub(r"(<!-- begin: [\w-]+ -->\n).*?(<!-- end -->)", r"\1\2", after, flags=re.S) == text
    for line in ["| `cuda_fused` | default | f32 | gpu-test | 2 | o in bf16 | 2.0e-3 | chain, T=4, B=1 | none |",
                 "| NVIDIA Test (commit abc) | 1 | cold | 10.0 | 62.3 | 6.2x | 1,234 | 123.5x | 4.00 |",
                 "| gpu-test, HV 32, state f32 | 1 | cold | serial resident | 2 | 0.50 to 6.2x | chain T=4 (0.50x) | T=128 |",
                 "| gpu-test, HV 32, state f32 | 1 | cold | serial snapshot | 1 | 123.45 to 123.5x | nowhere | T=128 |",
                 "| RTX 5090 (sm_120) | 0 | none | none | everything: no such card was at hand |", "- One.\n  Two.\n<!-- end -->"]:
        assert line in after, line
    assert "B 2, 4, 8, 16; T 3, 8, 16, 32, 64, 100, 200, 256; HV 48; state bf16; cache warm" in after


def test_a_new_card_shows_up_by_itself(folder):
    lines = [dict(type="environment", commit="def", gpu=dict(name="NVIDIA GeForce RTX 5090", compute_capability=120)), cell("cuda_fused", 8.0)]
    (folder / "results/gpu-rtx-5090.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    _, _, after = written(folder, "<!-- begin: bole-shape -->\n<!-- end -->\n<!-- begin: coverage -->\n<!-- end -->\n")
    assert "| NVIDIA GeForce RTX 5090 (commit def) | 1 | cold | 8.00 | not measured |" in after and "no such card" not in after


@pytest.mark.parametrize("text", ["<!-- begin: parity -->\ntext\n", "<!-- begin: parity -->\n<!-- begin: memory -->\n<!-- end -->\n", "text\n<!-- end -->\n"])
def test_markers_that_do_not_pair(folder, text):
    code, said, after = written(folder, text)
    assert code == 1 and "stands alone" in said and after == text


def test_unknown_table(folder):
    assert written(folder, "<!-- begin: wishes -->\nold\n<!-- end -->\n")[::2] == (1, "<!-- begin: wishes -->\nold\n<!-- end -->\n")


def test_section_of_the_lab_book_is_gone(folder):
    (folder / "NOTES.md").write_text("# Lab book\n")
    code, said, _ = written(folder, "<!-- begin: choices -->\n<!-- end -->\n")
    assert code == 1 and "no section" in said


post = (root / "post/draft.md").read_text()
visible = re.sub(r"<!--.*?-->", "", post, flags=re.S)


def test_length_of_the_post():
    assert 1200 <= len(visible.split()) <= 1800


def test_every_measured_number_of_the_post_says_where_it_is_from():
    """What stands in its prose without a comment is a shape, a count, arithmetic or an arXiv number."""
    prose = re.sub(r"```.*?```|<!-- begin.*?<!-- end -->", "", post, flags=re.S)
    prose = re.sub(r"[\d.,]+(?:e-?\d+)?(?: [KMG]iB)?<!-- (?:= |[\w./-]+\.md: ).*?-->", "", prose, flags=re.S)
    prose = re.sub(r"<!--.*?-->|\b\d{4}\.\d{5}\b|[A-Z]+\d+\w*|RTX 5090|Qwen\d\.\d|\d+B\b|bf16", "", prose, flags=re.S)
    shapes = {"128", "16,384", "24", "8", "16", "256", "4", "32", "64", "9"}  # nodes, depths, widths, layers
    arithmetic = {"155", "31", "2.3", "1"}  # C(30, 15) in millions, at depth 31; NOTES.md's count; entries of 1
    allowed = shapes | arithmetic | {"17"}  # of 5,217 checks, as 31 of 136 blocks: one comment for two numbers
    assert set(re.findall(r"\d[\d,.]*\d|\d", prose)) <= allowed

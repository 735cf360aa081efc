"""The package around the calls: import, types, env, README."""

import contextlib
import json
import pathlib
import re
import subprocess
import sys

import canopy_gdn
import pytest

ROOT = pathlib.Path(__file__).parents[2]


def python(*arguments):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)


def test_import_takes_under_50_ms_and_brings_nothing():
    # The interpreter's own time: the tests run beside others.
    probe = ("import sys, time; start = time.process_time(); import canopy_gdn; "
             "print(time.process_time() - start, 'torch' in sys.modules, 'numpy' in sys.modules)")  # fmt: skip
    best = min((python("-c", probe).stdout.split() for _ in range(5)), key=lambda out: float(out[0]))
    assert float(best[0]) < 0.05 and best[1:] == ["False", "False"], best


def test_numpy_calls_do_not_load_torch():
    probe = ("import sys, canopy_gdn, numpy as np; z = lambda *s: np.zeros(s, np.float32); "
             "o = canopy_gdn.verify(z(1, 2, 1, 8), z(1, 2, 1, 8), z(1, 2, 1, 8), g=z(1, 2, 1), beta=z(1, 2, 1), "
             "state=z(1, 1, 8, 8), parents=np.int32([[-1, 0]])); print(o.shape, 'torch' in sys.modules)")  # fmt: skip
    assert python("-c", probe).stdout.strip() == "(1, 2, 1, 8) False"


def test_every_public_name_is_there_and_documented():
    for name in canopy_gdn.__all__:
        value = getattr(canopy_gdn, name)
        assert name == "__version__" or value.__doc__, name
    assert set(canopy_gdn.__all__) == {*canopy_gdn._HOME, "__version__"} and set(canopy_gdn.__all__) <= set(
        dir(canopy_gdn)
    )
    assert (pathlib.Path(canopy_gdn.__file__).parent / "py.typed").exists()
    with pytest.raises(AttributeError, match="no attribute 'shrub'"):
        canopy_gdn.shrub  # noqa: B018


def test_package_library_and_project_have_one_version():
    assert canopy_gdn.__version__ == canopy_gdn.library_version()
    assert f'version = "{canopy_gdn.__version__}"' in (ROOT / "pyproject.toml").read_text()
    assert f"VERSION {canopy_gdn.__version__} " in (ROOT / "CMakeLists.txt").read_text()


def test_calls_from_several_threads_at_once():
    import concurrent.futures

    import numpy as np
    from problems import TREES, problem, tensors

    given = problem(TREES["best-first"])
    expected = canopy_gdn.verify(**given)
    ways = [given]
    with contextlib.suppress(ImportError):
        ways.append(tensors(given))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for got in pool.map(lambda i: canopy_gdn.verify(**ways[i % len(ways)]), range(40)):
            assert np.array_equal(np.asarray(got), expected)


def test_env_reports_and_survives_a_missing_library(monkeypatch, tmp_path):
    found = json.loads(python("-m", "canopy_gdn.env", "--json").stdout)
    assert found["canopy_gdn"] == canopy_gdn.__version__ and found["packages"]["numpy"][0].isdigit()
    assert {"verify", "commit", "conv1d_tree", "conv1d_commit"} == {entry["kind"] for entry in found["implementations"]}
    assert all(entry["usable"] or entry["missing"] for entry in found["implementations"])
    with_cuda = any(entry["device"] == "cuda" for entry in found["implementations"])
    assert found["CUDA kernels"].startswith("in this build" if with_cuda else "none in this build"), (
        "and what to do about it"
    )
    monkeypatch.setenv("CANOPY_LIBRARY_DIR", str(tmp_path))
    broken = python("-m", "canopy_gdn.env")
    assert broken.returncode == 0 and "libcanopy.so.0: expected it in" in broken.stdout and "cpu " in broken.stdout


def test_readme_quickstart_runs():
    """README's first Python block after a heading that begins with Python or From Python."""
    text = (ROOT / "README.md").read_text()
    found = re.search(r"^##+ (?:From )?Python\b.*?^```python\n(.*?)^```", text, re.M | re.S)
    assert found, "README has a Python section with a quickstart"
    code = found[1]
    assert len(code.splitlines()) <= 15
    ran = python("-c", code)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip(), "the quickstart prints something"

"""tests/python/gpu, as far as a CPU can run it: its arguments, its report, and the checks themselves with "cuda" read as "cpu".

A check that nobody runs rots; a GPU is rarely at hand. What only a GPU has (graphs, streams, refusals that name cuda:0, times) is
left to it.
"""

import pathlib
import sys
import types

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
from canopy_gdn import Tree  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402

GPU = pathlib.Path(__file__).with_name("gpu")


class CudaIsCpu(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function is torch.Tensor.cuda or (function is torch.Tensor.to and str(args[1]).startswith("cuda")):
            return args[0]
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = "cpu"
        return function(*args, **kwargs)


@pytest.fixture
def gpu(monkeypatch):
    """The modules of tests/python/gpu; what a call costs is one call here."""
    monkeypatch.syspath_prepend(str(GPU))
    import common
    import contenders
    import convolution
    import devices
    import operators
    import peers
    import transformers_layer

    once = lambda call, *_: call() is None or 1.0
    here = {
        "microseconds": once,
        "host_times": lambda calls: {name: once(call) for name, call in calls.items()},
        "captured": lambda call, **_: call,  # a graph is its call
    }
    for module in (operators, convolution, peers, contenders, transformers_layer):
        for name in here.keys() & vars(module).keys():
            monkeypatch.setattr(module, name, here[name])
    real = torch.Generator
    monkeypatch.setattr(
        torch, "Generator", type("Generator", (), {"__new__": lambda cls, device="cpu": real()})
    )  # a type: PyTorch writes Generator | None
    monkeypatch.setattr(torch.cuda, "current_stream", lambda *_: types.SimpleNamespace(cuda_stream=None))
    monkeypatch.setattr(common, "sections", [common.Section("test")])
    with CudaIsCpu():
        yield types.SimpleNamespace(
            common=common,
            contenders=contenders,
            convolution=convolution,
            devices=devices,
            operators=operators,
            peers=peers,
            transformers_layer=transformers_layer,
        )


def test_operators(gpu):
    from canopy_gdn import ops

    for raw in (False, True):
        for precision, out, limit in (("fp32", torch.float32, 1e-5), ("default", None, 4e-3)):
            gpu.operators.parity(raw, precision, out, limit)
    for method in ("resolve", "stash", "replay"):
        gpu.operators.commit_parity(method)
    for name in ("plan", "plan_out", "verify", "verify_out", "commit"):
        gpu.operators.opcheck(ops, name)
    assert gpu.operators.graphs() == "3 replays, bitwise"
    gpu.operators.views()
    gpu.operators.malformed()
    gpu.operators.overhead(ops)


def test_convolution(gpu):
    from canopy_gdn import ops

    for pool in ("", "pool of fp32", "pool by taps"):
        gpu.convolution.parity(torch.bfloat16, 4, pool)
    gpu.convolution.commit_parity()
    for name in ("conv1d_tree", "conv1d_tree_out", "conv1d_commit"):
        gpu.convolution.opcheck(ops, name)
    assert gpu.convolution.graphs() == "3 replays, bitwise"
    gpu.convolution.views()
    gpu.convolution.malformed()
    gpu.convolution.overhead(ops)


def test_several_devices(gpu):
    layer, conv = gpu.devices.inputs()
    there = gpu.devices.moved(layer, "cuda:1"), gpu.devices.moved(conv, "cuda:1")
    results = gpu.devices.whole_round(layer, conv)
    assert len(results) == 8
    gpu.devices.same(results, gpu.devices.whole_round(*there))
    with pytest.raises(AssertionError, match="result 2"):
        gpu.devices.same(results, [*results[:2], results[2] + 1, *results[3:]])


@pytest.fixture
def sglang_kernels(gpu, monkeypatch):
    """The model of SGLang's calls in place of its kernels."""
    import sglang_model as model

    def recur(*, initial_state_source, initial_state_indices, cu_seqlens, **more):
        return model.target_verify(
            ssm_states=initial_state_source, cache_indices=initial_state_indices, query_start_loc=cu_seqlens, **more
        )

    scatter = model.fused_mamba_state_scatter_with_mask
    made = gpu.peers.TreeVerifier
    monkeypatch.setattr(gpu.peers, "HEADS", (1, 2))
    monkeypatch.setattr(gpu.peers, "TreeVerifier", lambda **options: made(device="cpu", **options))
    return types.SimpleNamespace(
        causal_conv1d_triton=types.SimpleNamespace(causal_conv1d_update=model.causal_conv1d_update),
        fused_sigmoid_gating_recurrent=types.SimpleNamespace(fused_sigmoid_gating_delta_rule_update=recur),
        mamba_state_scatter_triton=types.SimpleNamespace(
            fused_mamba_state_scatter_with_mask=scatter, fused_conv_window_scatter_with_mask=scatter
        ),
    )


def test_sglang_beside_the_adapter(gpu, sglang_kernels):
    assert "states" in gpu.peers.beside(sglang_kernels, 2, 5, layers=2)


def test_sglang_with_padding_and_tracked_states(gpu, sglang_kernels):
    assert "states" in gpu.peers.padded(sglang_kernels, 5, 4, layers=2, padding=1)
    assert gpu.peers.in_a_graph(sglang_kernels, 5, 4, layers=1) == "3 replays, bitwise"


@pytest.mark.parametrize(("change", "piece"), [
    (lambda arguments: arguments[1].fill_(-1), "windows are copies"),  # nothing tracked
    (lambda arguments: arguments[0].clamp_(min=0), "windows are copies"),  # who accepts nothing is moved
])  # fmt: skip
def test_an_adapter_that_commits_otherwise_is_found(gpu, sglang_kernels, monkeypatch, change, piece):
    committed = gpu.peers.Step.my_commit

    def other(self, *arguments, **more):
        arguments = [argument.clone() for argument in arguments]
        change(arguments)
        committed(self, *arguments, **more)

    monkeypatch.setattr(gpu.peers.Step, "my_commit", other)
    with pytest.raises(AssertionError, match=piece):
        gpu.peers.padded(sglang_kernels, 5, 4, layers=1, padding=1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_layer_of_transformers(gpu, monkeypatch, dtype):
    pytest.importorskip("transformers.models.qwen3_5")
    trees = Tree.family("best-first", 9), Tree.family("random", 7, seed=3)
    monkeypatch.setattr(gpu.transformers_layer, "TREES", trees)
    layer, cache = gpu.transformers_layer.made(dtype, (1, 2), 32)
    assert "window" in gpu.transformers_layer.root_paths(layer, cache)
    gpu.transformers_layer.nothing_accepted(layer, cache)
    assert gpu.transformers_layer.graphs(layer, cache) == "4 replays, bitwise"
    if dtype == torch.float32:
        assert "cache" in gpu.transformers_layer.rounds(layer, cache)


@pytest.mark.parametrize("call", ["verify", "commit"])
def test_a_layer_that_goes_another_path_is_found(gpu, monkeypatch, call):
    pytest.importorskip("transformers.models.qwen3_5")
    from canopy_gdn.integrations import transformers as adapter

    def chains(layer, hidden, parents, cache, real=adapter.verify, **more):
        chain = torch.arange(-1, parents.shape[1] - 1, dtype=torch.int32).repeat(2, 1)
        return real(layer, hidden, chain, cache, **more)

    def parent(step, leaf, real=adapter.commit):
        real(step, leaf - 1)

    monkeypatch.setattr(adapter, call, {"verify": chains, "commit": parent}[call])
    with pytest.raises(AssertionError, match={"verify": "output", "commit": "state"}[call]):
        gpu.transformers_layer.root_paths(*gpu.transformers_layer.made(torch.float32, (1, 2), 32))


def test_without_transformers_it_says_so(gpu, monkeypatch, capsys):
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    gpu.transformers_layer.run()
    assert gpu.common.sections[-1].absent == ["a tree through Qwen3_5GatedDeltaNet: transformers is not installed"]


def test_the_report_counts_what_failed_and_what_was_not_run(gpu, capsys):
    def broken():
        raise ValueError("seen")

    common = gpu.common
    with common.section("one"):
        assert common.check("fine", lambda: "5 us") == "5 us"
    with common.section("two"):
        common.not_run("peer", "not installed")
    assert common.verdict() == 0
    with common.section("one"):
        common.check("broken", broken)
    assert common.verdict() == 1
    said = capsys.readouterr().out
    assert (
        "FAILED broken: ValueError: seen" in said
        and "FAILED  one: broken" in said
        and "not run two: peer: not installed" in said
    )
    assert said.splitlines()[-1] == "1 passed, 1 failed"
    common.sections[:] = [common.Section("none")]
    assert common.verdict() == 1, "a run without checks is no success"


def test_a_failure_is_a_line_and_its_traceback_goes_to_standard_error(gpu, capsys):
    def deep():
        raise ValueError("seen\nin detail")

    gpu.common.check("broken", deep)
    said = capsys.readouterr()
    assert said.out.endswith("FAILED broken: ValueError: seen\n"), "a line"
    assert "---- broken" in said.err and "in deep" in said.err and "in detail" in said.err


def test_measurements_are_kept_as_they_are_made(gpu, monkeypatch, tmp_path):
    monkeypatch.setattr(gpu.common, "kept", None)
    gpu.common.record(us=1.0)  # nowhere
    gpu.common.keep(str(tmp_path / "x.jsonl"))
    assert (tmp_path / "x.jsonl").read_text() == ""
    gpu.common.record(us=2.0)
    assert (tmp_path / "x.jsonl").read_text() == '{"us": 2.0}\n'


@pytest.mark.parametrize(
    ("parts", "taken"), [(1, [[0, 1, 2, 3, 4]]), (2, [[0, 2, 4], [1, 3]]), (6, [[0], [1], [2], [3], [4], [4]])]
)
def test_configurations_are_shared_out_and_not_timed(gpu, monkeypatch, parts, taken):
    import ahead
    import triton
    from triton.runtime.autotuner import Autotuner

    for name in ("prune_configs", "do_bench", "check_disk_cache"):
        monkeypatch.setattr(Autotuner, name, Autotuner.__dict__[name])  # put back afterwards
    every = Autotuner.prune_configs
    for part in range(parts):
        ran = []
        monkeypatch.setattr(Autotuner, "prune_configs", every)
        ahead.share_of_configurations(part, parts)
        kernel = types.SimpleNamespace(fn=lambda: None, run=lambda x, ran=ran, **options: ran.append(options["BV"]))
        tuner = Autotuner(
            kernel, ["x"], [triton.Config({"BV": i}) for i in range(5)], ["x"], None, None, cache_results=True
        )
        tuner.run(1)
        assert ran == [*taken[part], taken[part][0]], "each once, then the first as if it were the fastest"


def test_what_compiles_ahead_may_fail_or_hang(gpu, tmp_path, capsys):
    import ahead

    script = tmp_path / "script.py"
    script.write_text(
        "import sys, time\nitem = sys.argv[2]\nprint('begun', item, flush=True)\n"
        "time.sleep(60 if 'slow' in item else 0)\nsys.exit(3 if 'bad:b/1' in item else 0)\n"
    )
    compiling = ahead.Compiling([str(script)], [("good", 1), ("bad:b", 2), ("slow", 1)], str(tmp_path / "logs"), 5)
    compiling.wait()
    compiling.stop()
    said = capsys.readouterr().out
    assert (
        "compiling bad:b/1/2 ahead ended with status 3; see" in said
        and "compiling slow/0/1 ahead was stopped 5 s after" in said
    )
    assert "good" not in said and "bad:b/0/2" not in said and "4 processes compiled ahead" in said
    assert (tmp_path / "logs" / "bad-b-0-2.log").read_text() == "begun bad:b/0/2\n"
    assert ahead.split("triton:fused:precise/1/3") == ("triton:fused:precise", 1, 3)


def test_jobs_name_what_can_be_compiled(gpu):
    assert dict(gpu.contenders.jobs()).keys() == {f"triton:{s}:{p}" for s, p in gpu.contenders.VARIANTS}
    assert {("sglang:4x64", 1), ("sglang:padded", 1)} <= set(gpu.peers.jobs("folder")) and not any(
        "sglang" in job for job, _ in gpu.peers.jobs(None)
    )


@pytest.fixture
def worker(gpu, monkeypatch):
    """bench/torch_worker.py with a clock that says 0.5 ms a replay."""
    monkeypatch.syspath_prepend(str(GPU.parents[2] / "bench"))
    for name in ("contenders", "peers", "common"):  # bench/ has a contenders.py too
        monkeypatch.delitem(sys.modules, name, raising=False)
    import torch_worker

    moment = types.SimpleNamespace(record=lambda: None, synchronize=lambda: None, elapsed_time=lambda end: 0.5)
    monkeypatch.setattr(torch.cuda, "Event", lambda **_: moment)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: types.SimpleNamespace(L2_cache_size=8_000))
    yield torch_worker
    for name in ("torch_worker", "contenders", "records"):
        sys.modules.pop(name, None)


def test_the_worker_of_the_benchmark_answers_with_the_cells_it_was_asked_for(worker, monkeypatch):
    import runner
    import schema
    import shapes

    captured = []

    def capture(copies, seconds):
        captured.append(len([copy() for copy in copies]))
        return types.SimpleNamespace(replay=lambda: None), 40

    monkeypatch.setattr(worker, "capture", capture)
    request = shapes.of_family("cuda", "chain", 6, 2, caches=["warm", "cold"], repeat=7, warm_ups=2, checked=1, replay_seconds=1e-4, share=1, least=2,
                               H=1, HV=2, K=16, V=16)  # fmt: skip
    found = worker.answer(request)
    asked, checker = runner.asked(request), schema.validator()
    for record in found:
        checker.validate(record | {"commit": "0123456789ab", "environment": "01234567"})
        assert record["passed"] and record["checked_sequences"] == 1, record
        assert (record["n"], record["median_us"]) == (7, 12.5) and runner.answered(record) in asked
    names = {record["contender"] for record in found}
    assert len(found) == 2 * len(names) and {"dispatched", "triton_split fast", "triton_serial fp32"} <= names
    assert set(captured) == {1, 3}, "warm: the same buffers; cold: over twice the L2 of 8 kB at 6568 bytes a set"


def test_a_contender_leaves_the_rounds_with_its_share_of_time(worker, monkeypatch):
    monkeypatch.setattr(worker, "capture", lambda copies, seconds: (types.SimpleNamespace(replay=lambda: None), 40))
    request = {"repeat": 200, "warm_ups": 25, "least": 20, "replay_seconds": 1e-4}
    number = lambda share: len(worker.times({"dispatched": []}, request | {"share": share})["dispatched"])
    assert [number(share) for share in (1.0, 0.05, 0.001)] == [200, 75, 20], "0.5 ms a replay"


def test_a_contender_that_fails_is_named_and_left_out(worker, monkeypatch, capsys):
    import shapes

    def broken(contender, arguments, output=None):
        raise ValueError("no such kernel")

    monkeypatch.setattr(worker, "triton_call", broken)
    monkeypatch.setattr(worker, "times", lambda calls, request: {name: [1.0] for name in calls})
    request = shapes.of_family("cuda", "chain", 6, 1, H=1, HV=2, K=16, V=16, caches=["warm"])
    names = {record["contender"] for record in worker.answer(request)}
    assert "dispatched" in names and not any(name.startswith("triton_") for name in names)
    assert "triton_fused precise is left out: ValueError: no such kernel" in capsys.readouterr().err


@pytest.mark.parametrize(("arguments", "piece"), [
    (["--help"], "contenders | the Triton kernels"),
    (["--only", "operators,shrubs"],
     "--only shrubs: expected sections of operators, devices, contenders, transformers, peers"),
    (["--sglang", "."], "--sglang .: expected a folder with sglang/kernels in it"),
    (["--json", "nowhere/file"], "--json nowhere/file: expected a file in a folder that exists"),
])  # fmt: skip
def test_arguments(gpu, monkeypatch, capsys, arguments, piece):
    import run

    monkeypatch.setattr(sys, "argv", ["run.py", *arguments])
    with pytest.raises(SystemExit) as stopped:
        run.main()
    said = capsys.readouterr()
    assert stopped.value.code == (0 if arguments == ["--help"] else 2) and piece in said.out + said.err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(gpu, monkeypatch, capsys):
    import run

    monkeypatch.setattr(sys, "argv", ["run.py"])
    assert run.main() == 2, "and so do the processes that compile ahead"
    monkeypatch.setattr(sys, "argv", ["run.py", "--warm", "triton:fused:precise/0/1"])
    assert run.main() == 2
    assert capsys.readouterr().err.startswith("run.py: GPU: expected one that PyTorch sees, got none (torch ")

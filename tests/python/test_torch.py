"""The PyTorch operators: registration, compilation, views, gradients, autocast."""

import ctypes

import canopy_gdn
import numpy as np
import pytest
from canopy_gdn import Tree
from problems import TREES, commit_arguments, problem, relative, tensors

torch = pytest.importorskip("torch")
from canopy_gdn import ops  # noqa: E402, loads the operators

INPUTS = "parents plan g beta slot_index count a b a_log dt_bias next_token next_sibling".split()
ORDER = ["q", "k", "v", "state", *INPUTS]
COMMIT_ORDER = [
    "k",
    "v",
    "leaf",
    "state",
    "workspace",
    *INPUTS,
    *"dst_slot track_leaf track_slot stash_u stash_l row_status".split(),
]
OUT_ORDER = ["q", "k", "v", "state", "o", "workspace", *INPUTS, "stash_u", "stash_l", "row_status"]


def positional(arguments, order):
    return tuple(arguments.get(name) for name in order)


def plan_of(arguments):
    return canopy_gdn.plan(parents=arguments["parents"], count=arguments["count"])


@pytest.mark.parametrize("raw", [False, True], ids=["gates", "raw"])
def test_opcheck(raw):
    arguments = tensors(problem(TREES["ragged"], raw=raw))
    trees = positional(arguments, ["parents", "next_token", "next_sibling", "count", "slot_index"])
    options = {"l2norm": True} if raw else {}
    torch.library.opcheck(ops._plan, trees, {"slots": 4})
    arguments["plan"] = plan = ops._plan(*trees, slots=4)
    torch.library.opcheck(ops._plan_out, (*trees, torch.empty_like(plan)), {"slots": 4})
    torch.library.opcheck(ops._verify, positional(arguments, ORDER), options)
    outputs = {"o": torch.zeros(3, 20, 4, 24), "stash_u": torch.zeros(3, 20, 4, 24), "stash_l": torch.zeros(3, 20, 4),
               "row_status": torch.zeros(3, dtype=torch.int32), "workspace": torch.zeros(1 << 20, dtype=torch.uint8)}  # fmt: skip
    torch.library.opcheck(ops._verify_out, positional(arguments | outputs, OUT_ORDER), options)
    arguments["leaf"] = torch.tensor([0, 4, 9], dtype=torch.int32)
    torch.library.opcheck(ops._commit, positional(arguments, COMMIT_ORDER), options)


def test_a_plan_leaves_padding_rows_out():
    arguments = tensors(problem(TREES["ragged"]))
    trees = {n: arguments[n] for n in ("parents", "count")}
    plan = canopy_gdn.plan(**trees, slot_index=torch.tensor([0, 1, 2]), slots=4, padding_slot=1)
    assert not plan[:2].any() and torch.equal(plan[2], plan_of(arguments)[2])


@pytest.mark.parametrize("batch", [1, 2, 3, 16])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_plan_is_a_row_a_tree(device, batch):
    """What the fake tells is what canopy_plan asks for, on a GPU too: neither needs one."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    width = canopy_gdn._abi.plan_row_bytes(device)
    if not width:
        pytest.skip(f"this build has no plans on {device}")
    with FakeTensorMode():
        plan = ops._plan(torch.zeros(batch, 5, dtype=torch.int32, device=device), None, None, None, None)
    problem = canopy_gdn._abi.Problem(device=int(device == "cuda"), batch=batch, nodes=5)
    assert plan.shape == (batch, width) and plan.device.type == device
    assert plan.numel() == canopy_gdn._abi.library().canopy_plan_bytes(ctypes.byref(problem))


def test_a_row_of_a_plan_is_the_plan_of_its_tree():
    arguments = tensors(problem(TREES["ragged"]))
    plan, o = plan_of(arguments), canopy_gdn.verify(**arguments)
    rows = {n for n, v in arguments.items() if isinstance(v, torch.Tensor)} - {"state"}
    for row in range(3):
        one = {n: v[row : row + 1] if n in rows else v for n, v in arguments.items()}
        assert torch.equal(canopy_gdn.verify(**one, plan=plan[row : row + 1]), o[row : row + 1])


def step(q, k, v, g, beta, state, parents, leaf):
    plan = canopy_gdn.plan(parents=parents)
    o = canopy_gdn.verify(q, k, v, g=g, beta=beta, state=state, parents=parents, plan=plan, l2norm=True)
    canopy_gdn.commit(k, v, g=g, beta=beta, state=state, parents=parents, plan=plan, leaf=leaf, l2norm=True)
    return o * 2


def stash_step(q, k, v, g, beta, state, parents, leaf):
    stash_u, stash_l, o = torch.zeros_like(v), torch.zeros_like(g), torch.zeros_like(v)
    canopy_gdn.verify(q, k, v, g=g, beta=beta, state=state, parents=parents, o=o, stash_u=stash_u, stash_l=stash_l)
    canopy_gdn.commit(
        k,
        None,
        g=g,
        beta=beta,
        state=state,
        parents=parents,
        leaf=leaf,
        method="stash",
        stash_u=stash_u,
        stash_l=stash_l,
    )
    return o + stash_u.sum()


@pytest.mark.parametrize("function", [step, stash_step])
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_compile_takes_the_whole_step_as_one_graph(function, dynamic):
    compiled = torch.compile(function, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for batch in (2, 3):  # the second shape recompiles, or not when dynamic
        arguments = tensors(problem([Tree.family("random", 9, seed=s) for s in range(batch)], slots=batch))
        inputs = [arguments[n] for n in ("q", "k", "v", "g", "beta", "state", "parents")] + [
            torch.full((batch,), 3, dtype=torch.int32)
        ]
        mine = [t.clone() for t in inputs]
        expected, got = function(*inputs), compiled(*mine)
        assert torch.equal(got, expected) and torch.equal(mine[5], inputs[5]), "output and committed pool"
    torch._dynamo.reset()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_inputs(dtype):
    given = problem(TREES["best-first"])
    arguments = tensors(given)
    for name in ("q", "k", "v"):
        arguments[name] = arguments[name].to(dtype)
        given[name] = arguments[name].float().numpy()
    o = canopy_gdn.verify(**arguments)
    exact = canopy_gdn.oracle(**given)[0]
    assert o.dtype == dtype and relative(o.float(), exact) < 3e-3  # what rounding o costs
    full = canopy_gdn.verify(**arguments, out_dtype=torch.float32)
    assert full.dtype == torch.float32 and relative(full, exact) < 1e-5
    half_state = arguments | {"state": arguments["state"].to(dtype)}
    given["state"] = half_state["state"].float().numpy()
    assert relative(canopy_gdn.verify(**half_state, out_dtype=torch.float32), canopy_gdn.oracle(**given)[0]) < 1e-5


def test_views_of_one_buffer_are_read_in_place():
    """Engines pass q, k, v as slices of one [B*T, channels] buffer, a and b as halves of another, a pool with a slot stride."""
    given = problem(TREES["best-first"], raw=True)
    arguments = tensors(given)
    B, T, H, K = given["q"].shape
    HV, V = given["v"].shape[2:]
    buffer = torch.full((B * T, 2 * H * K + HV * V + 5), float("nan"))
    parts = buffer[:, :-5].split([H * K, H * K, HV * V], 1)
    views = dict(arguments)
    for name, part, heads in zip("qkv", parts, (H, H, HV)):
        views[name] = part.view(B, T, heads, -1)
        views[name].copy_(arguments[name])
    gates = torch.full((B, T, 2, HV), float("nan"))
    for index, name in enumerate("ab"):
        views[name] = gates[:, :, index]
        views[name].copy_(arguments[name])
    pool = torch.full((arguments["state"].shape[0], 2, HV, V, K), float("nan"))
    views["state"] = pool[:, 1]
    views["state"].copy_(arguments["state"])
    assert not any(views[name].is_contiguous() for name in ("q", "k", "v", "a", "b", "state"))
    assert torch.equal(canopy_gdn.verify(**views), canopy_gdn.verify(**arguments))
    leaf = torch.tensor([7, 20], dtype=torch.int32)
    canopy_gdn.commit(**commit_arguments(views, leaf))
    canopy_gdn.commit(**commit_arguments(arguments, leaf))
    assert torch.equal(views["state"], arguments["state"]) and torch.isnan(pool[:, 0]).all()


@pytest.mark.parametrize("name", ["q", "k", "v", "g", "beta", "state", "a", "b", "a_log", "dt_bias"])
def test_gradients_are_refused_with_the_reason(name):
    arguments = tensors(problem(TREES["one"], raw=name in ("a", "b", "a_log", "dt_bias")))
    arguments[name].requires_grad_()
    with pytest.raises(
        RuntimeError, match=f"{name}: expected a tensor that does not require grad.*no backward pass.*no_grad"
    ):
        canopy_gdn.verify(**arguments)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert not canopy_gdn.verify(**arguments).requires_grad
    if name != "q":
        with pytest.raises(RuntimeError, match=f"{name}: expected a tensor that does not require grad"):
            canopy_gdn.commit(**commit_arguments(arguments, torch.zeros(1, dtype=torch.int32)))


def test_autocast_changes_nothing():
    arguments = tensors(problem(TREES["star"]))
    expected = canopy_gdn.verify(**arguments)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = canopy_gdn.verify(**arguments)
    assert got.dtype == torch.float32 and torch.equal(got, expected)


def test_parameters_and_subclasses_are_tensors():
    arguments = tensors(problem(TREES["star"], raw=True))
    arguments["a_log"] = torch.nn.Parameter(arguments["a_log"], requires_grad=False)
    assert torch.isfinite(canopy_gdn.verify(**arguments)).all()


def test_functional_calls_under_fake_tensors_tell_shape_and_dtype():
    from torch._subclasses.fake_tensor import FakeTensorMode

    arguments = tensors(problem(TREES["ragged"]))
    with FakeTensorMode() as mode:
        fake = {n: mode.from_tensor(v) if isinstance(v, torch.Tensor) else v for n, v in arguments.items()}
        o = canopy_gdn.verify(**fake, out_dtype=torch.bfloat16)
        plan = canopy_gdn.plan(parents=fake["parents"], count=fake["count"])
        none = canopy_gdn.plan(parents=fake["parents"][:0])
    assert o.shape == (3, 20, 4, 24) and o.dtype == torch.bfloat16
    assert plan.shape == plan_of(arguments).shape and plan.dtype == torch.uint8
    assert none.shape == canopy_gdn.plan(parents=arguments["parents"][:0]).shape == (1, plan.shape[1]), (
        "of a batch of nothing"
    )


def test_nothing_is_kept_alive_or_leaked():
    """A thousand calls with their own workspace leave the process as large as ten."""
    import resource

    arguments = tensors(problem([Tree.family("chain", 64)], (4, 8), (64, 64)))
    used = []
    for calls in (10, 1000):
        for _ in range(calls):
            canopy_gdn.verify(**arguments)
        used.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    assert used[1] - used[0] < 20_000, f"KiB grew from {used[0]} to {used[1]}"


def test_the_binary_needs_no_cuda_library():
    import subprocess

    needed = subprocess.run(["readelf", "-d", str(canopy_gdn._abi.library_folder() / "libcanopy_torch.so")], capture_output=True, text=True,
                            check=True).stdout  # fmt: skip
    libraries = [line.split("[")[1].rstrip("]") for line in needed.splitlines() if "(NEEDED)" in line]
    assert "libtorch_cpu.so" in libraries and not any(
        "cuda" in name or "c10" in name or "python" in name for name in libraries
    )


def test_leaves_and_rows_of_a_long_run():
    """Rounds of verify and commit stay with the oracle that carries its own state."""
    state = None
    for seed in range(20):
        given = problem([Tree.family("best-first", 12, seed=seed)], seed=seed, slots=1)
        given["state"] = given["state"] if state is None else state.astype(np.float32)
        exact = given if state is None else given | {"state": state}
        arguments = tensors(given)
        leaf = np.int32([seed % 12])
        canopy_gdn.commit(**commit_arguments(arguments, torch.from_numpy(leaf)))
        state = canopy_gdn.oracle_state(**exact | {"state": exact["state"].astype(np.float32)}, leaf=leaf)
        state = np.ascontiguousarray(state.swapaxes(-1, -2))
        assert relative(arguments["state"], state) < 1e-5


def test_the_overhead_script_measures_every_call():
    import overhead

    rows = overhead.measure(runs=1)
    assert {row[0] for row in rows} == {"verify", "commit", "conv1d_tree", "conv1d_commit", "to compare"}
    assert all(0 < us < 1e5 for _, _, us, _ in rows)

"""The convolution's PyTorch operators: registration, compilation, dtypes, engine layouts, gradients."""

import canopy_gdn
import pytest
from canopy_gdn import Tree
from problems import TREES, relative, tensors
from test_conv import commit_arguments, definition, problem, silu

torch = pytest.importorskip("torch")
from canopy_gdn import ops  # noqa: E402, loads the operators

TREE_INPUTS = "parents plan slot_index count next_token next_sibling".split()
ORDER = ["x", "state", "weight", "bias", *TREE_INPUTS]
OUT_ORDER = ["x", "state", "weight", "o", "bias", *TREE_INPUTS, "row_status"]
COMMIT_ORDER = ["x", "leaf", "state", *TREE_INPUTS, "dst_slot", "track_leaf", "track_slot", "row_status"]


def positional(arguments, order):
    return tuple(arguments.get(name) for name in order)


def int32(*values):
    return torch.tensor(values, dtype=torch.int32)


def test_opcheck():
    arguments = tensors(problem(TREES["ragged"]))
    torch.library.opcheck(ops._conv, positional(arguments, ORDER), {"silu": True})
    torch.library.opcheck(ops._conv, positional(arguments, ORDER), {"out_dtype": torch.float32, "padding_slot": 0})
    outputs = {"o": torch.zeros(3, 20, 70), "row_status": int32(0, 0, 0)}
    torch.library.opcheck(ops._conv_out, positional(arguments | outputs, OUT_ORDER))
    given_ = problem(TREES["ragged"], layers=2, slots=9) | {"slot_index": int32(0, 1, 2)}
    arguments = tensors(given_) | {"leaf": int32(0, 4, 9), "dst_slot": int32(3, 4, 5), "row_status": int32(0, 0, 0)}
    arguments |= {"track_leaf": int32(0, 2, 1), "track_slot": int32(6, 7, 8)}
    torch.library.opcheck(ops._conv_commit, positional(arguments, COMMIT_ORDER))


def step(x, weight, bias, state, parents, leaf):
    plan = canopy_gdn.plan(parents=parents)
    o = canopy_gdn.conv1d_tree(x, weight, bias, state=state, parents=parents, plan=plan, silu=True)
    canopy_gdn.conv1d_commit(x, state=state, parents=parents, plan=plan, leaf=leaf)
    return o * 2


def out_step(x, weight, bias, state, parents, leaf):
    o, status = torch.zeros(x.shape, dtype=torch.float32), torch.zeros(x.shape[0], dtype=torch.int32)
    canopy_gdn.conv1d_tree(x, weight, bias, state=state, parents=parents, o=o, row_status=status)
    canopy_gdn.conv1d_commit(x, state=state, parents=parents, leaf=leaf, row_status=status)
    return o + status.sum()


@pytest.mark.parametrize("function", [step, out_step])
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_compile_takes_the_step_as_one_graph(function, dynamic):
    compiled = torch.compile(function, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for batch in (2, 3):
        arguments = tensors(problem([Tree.family("random", 9, seed=s) for s in range(batch)], slots=batch))
        inputs = [arguments[n] for n in ("x", "weight", "bias", "state", "parents")] + [int32(*[3] * batch)]
        mine = [t.clone() for t in inputs]
        expected, got = function(*inputs), compiled(*mine)
        assert torch.equal(got, expected) and torch.equal(mine[3], inputs[3]), "output and committed pool"
    torch._dynamo.reset()


def test_compile_through_inductor():
    """The default backend with the code that it generates: a layer's convolution, its verification and both commits as one graph."""
    import problems
    import test_torch

    trees = [Tree.family("random", 9)]
    given, layer = tensors(problem(trees, slots=1)), tensors(problems.problem(trees, slots=1))
    inputs = [given[n] for n in ("x", "weight", "bias", "state", "parents")] + [int32(3)]
    others = [layer[n] for n in ("q", "k", "v", "g", "beta", "state", "parents")] + [int32(3)]
    both = lambda one, two: (step(*one), test_torch.step(*two))
    mine, theirs = [t.clone() for t in inputs], [t.clone() for t in others]
    expected, got = both(inputs, others), torch.compile(both, fullgraph=True)(mine, theirs)
    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))
    assert torch.equal(mine[3], inputs[3]) and torch.equal(theirs[5], others[5]), "committed pools"
    torch._dynamo.reset()


@pytest.mark.parametrize("state", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision(dtype, state):
    """Inputs as they are, sums in fp32, one rounding at the end; the commit rounds to the pool's type."""
    given_ = problem(TREES["best-first"])
    arguments = tensors(given_)
    for name in ("x", "weight", "bias"):
        arguments[name] = arguments[name].to(dtype)
        given_[name] = arguments[name].float().numpy()
    arguments["state"] = before = arguments["state"].to(state)
    given_["state"] = before.float().numpy().copy()
    expected = torch.from_numpy(definition(given_))
    full, own = canopy_gdn.conv1d_tree(**arguments, out_dtype=torch.float32), canopy_gdn.conv1d_tree(**arguments)
    assert full.dtype == torch.float32 and torch.equal(full, expected)
    assert own.dtype == dtype and torch.equal(own, expected.to(dtype))
    activated = canopy_gdn.conv1d_tree(**arguments | {"silu": True}, out_dtype=torch.float32)
    assert relative(activated, silu(definition(given_))) < 1e-6
    after, slots = before.clone(), arguments["slot_index"].long()
    canopy_gdn.conv1d_commit(**commit_arguments(arguments, [0, 0]) | {"leaf": int32(0, 0), "state": after})
    assert torch.equal(after[slots, :, 2], arguments["x"][:, 0].to(state))
    assert torch.equal(after[slots, :, :2], before[slots, :, 1:])


def test_sglangs_layout_needs_no_copy():
    """x [B, C, T], a view of [B*T, C]; conv_state [slots, C, W-1] of one layer of a pool of all layers."""
    given_ = problem(TREES["best-first"])
    arguments = tensors(given_)
    B, T, C = given_["x"].shape
    x = arguments["x"].view(B * T, C).view(B, T, C).transpose(1, 2)
    pool = torch.stack([arguments["state"]] * 3, 1)[:, 1]
    assert not x.is_contiguous() and not pool.is_contiguous()
    o = torch.empty(B * T, C)
    canopy_gdn.conv1d_tree(**arguments | {"x": x.transpose(1, 2), "state": pool}, o=o.view(B, T, C))
    assert torch.equal(o.view(B, T, C), canopy_gdn.conv1d_tree(**arguments))


def test_fake_tensors_tell_shape_and_dtype():
    from torch._subclasses.fake_tensor import FakeTensorMode

    arguments = tensors(problem(TREES["ragged"]))
    with FakeTensorMode() as mode:
        fake = {n: mode.from_tensor(v) if isinstance(v, torch.Tensor) else v for n, v in arguments.items()}
        own, half = canopy_gdn.conv1d_tree(**fake), canopy_gdn.conv1d_tree(**fake, out_dtype=torch.bfloat16)
    assert own.shape == half.shape == arguments["x"].shape and (own.dtype, half.dtype) == (
        torch.float32,
        torch.bfloat16,
    )


def test_a_made_output_is_zero_where_no_row_writes():
    """Memory that a tensor of NaN has just left is what an allocator hands out next."""
    arguments = tensors(problem(TREES["ragged"]))
    for more in ({}, {"row_status": int32(0, 0, 0)}):
        for _ in range(8):
            torch.full_like(arguments["x"], float("nan"))
            o = canopy_gdn.conv1d_tree(**arguments, **more)
            assert not o[0, 1:].any() and not o[1, 5:].any()


@pytest.mark.parametrize("name", ["x", "weight", "bias", "state"])
def test_gradients_are_refused_with_the_reason(name):
    arguments = tensors(problem(TREES["one"]))
    arguments[name].requires_grad_()
    with pytest.raises(RuntimeError, match=f"{name}: expected a tensor that does not require grad.*no backward pass"):
        canopy_gdn.conv1d_tree(**arguments)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert not canopy_gdn.conv1d_tree(**arguments).requires_grad
    if name in ("x", "state"):
        with pytest.raises(RuntimeError, match=f"{name}: expected a tensor that does not require grad"):
            canopy_gdn.conv1d_commit(**commit_arguments(arguments, [0]) | {"leaf": int32(0)})


def test_autocast_changes_nothing():
    arguments = tensors(problem(TREES["star"]))
    expected = canopy_gdn.conv1d_tree(**arguments)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = canopy_gdn.conv1d_tree(**arguments)
    assert got.dtype == torch.float32 and torch.equal(got, expected)

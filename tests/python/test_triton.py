"""The Triton contenders against the oracle: under Triton's interpreter on small shapes here, on a GPU with tests/python/gpu/run.py."""

import numpy as np
import pytest
from canopy_gdn import Tree, oracle, oracle_state
from problems import TREES, problem, relative, tensors

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
import canopy_gdn.triton as ct  # noqa: E402
from canopy_gdn.triton.common import INTERPRETED  # noqa: E402

pytestmark = pytest.mark.skipif(
    not INTERPRETED and not torch.cuda.is_available(), reason="neither a GPU nor TRITON_INTERPRET=1"
)
DEVICE = "cpu" if INTERPRETED else "cuda"
SOLVES = [s for s in ct.STRATEGIES if s not in ("serial", "resident")]


def on_device(given):
    return {n: t.to(DEVICE) if isinstance(t, torch.Tensor) else t for n, t in tensors(given).items()}


def run(given, **more):
    """verify of a problem(): o as NumPy, the stash, the plan and the arguments."""
    arguments = on_device(given)
    plan = ct.plan(arguments.pop("parents"), arguments.pop("count"))
    o, stash = ct.verify(**arguments, plan=plan, precision="fp32", **more)
    return o.cpu().numpy(), stash, plan, arguments


@pytest.mark.parametrize("trees", TREES.values(), ids=TREES)
def test_the_plan_is_the_tree(trees):
    import canopy_gdn

    parents, count = (torch.from_numpy(t).to(DEVICE) for t in canopy_gdn.batch(trees))
    plan = ct.plan(parents, count)
    for row, tree in enumerate(trees):
        n = len(tree)
        order = plan.order[row, :n].tolist()
        assert tuple(order) == tree.dfs_order and [order[r] for r in plan.rank[row, :n].tolist()] == list(range(n))
        words = plan.ancestors[row, :n].cpu().numpy().astype(np.uint32)
        for r, node in enumerate(order):
            above = {order[j] for j in range(n) if words[r, j // 32] >> (j % 32) & 1}
            assert above == set(tree.path(node)[:-1])
            first = order[r - r % 16]
            outside = [a for a in tree.path(node)[:-1] if order.index(a) < r - r % 16]
            assert plan.prefix[row, r].item() == len(outside)
            path = [order[j] for j in plan.path[row, r // 16, : len(outside)].tolist()]
            assert path == outside == list(tree.path(first))[: len(outside)]
    assert not plan.status.any()


@pytest.mark.parametrize("strategy", ct.STRATEGIES)
@pytest.mark.parametrize("raw", [False, True], ids=["gates", "raw"])
def test_verify_agrees_with_the_oracle(strategy, raw):
    """Three blocks with root paths outside them, a second row that is shorter."""
    trees = [Tree.family("best-first", 34, seed=1), Tree.family("random", 5, seed=5)]
    given = problem(trees, (1, 2), (16, 32), raw=raw, layout="kv" if raw else "vk")
    if raw:
        given |= {"l2norm": True, "beta_doubled": True, "scale": 0.3}
    o, stash, plan, _ = run(given, strategy=strategy)
    exact = oracle(**given)
    assert relative(o, exact[0]) < 1e-5 and np.max(np.abs(o - exact[0])) < 1e-4
    if stash is not None:
        for row, n in enumerate(given["count"]):
            u = stash.u[row, :, plan.rank[row, :n].long()].cpu().numpy().swapaxes(0, 1)
            assert relative(u, exact[1][row, :n]) < 1e-5


@pytest.mark.parametrize("strategy", ["fused", "split", "serial", "resident"])
def test_stable_strategies_survive_similar_keys_on_a_chain(strategy):
    given = problem([Tree.family("chain", 34)], (1, 1), (16, 16), similar=True)
    assert relative(run(given, strategy=strategy)[0], oracle(**given)[0]) < 1e-5


def test_series_lose_their_digits_where_substitution_does_not():
    """Keys of cosine .99, beta 1, no decay: docs/numerics.md. In a block of 16 the powers of G reach binomial coefficients, and
    their sum cancels."""
    given = problem([Tree.family("chain", 16)], (1, 1), (16, 16), similar=True)
    given["beta"][:], given["g"][:] = 1, 0
    exact = oracle(**given)[0]
    errors = {s: relative(run(given, strategy=s)[0], exact) for s in ("fused", "neumann", "squaring")}
    assert errors["fused"] < 1e-6 and min(errors["neumann"], errors["squaring"]) > 10 * errors["fused"], errors


@pytest.mark.parametrize("strategy", ct.STRATEGIES)
def test_strong_gates_do_not_cost_digits(strategy):
    given = problem([Tree.family("random", 20, seed=4)], (1, 2), (16, 16))
    given["g"][0, 0], given["g"][0, 7], given["g"][0, 9] = -1e4, -np.inf, 0.01
    assert relative(run(given, strategy=strategy)[0], oracle(**given)[0]) < 1e-5


@pytest.mark.parametrize("strategy", ct.STRATEGIES)
@pytest.mark.parametrize("name", ["k", "v", "q"])
def test_a_poisoned_branch_stays_alone(strategy, name):
    tree = Tree.family("random", 18, seed=5)
    given = problem([tree], (1, 1), (16, 16))
    clean = run(given, strategy=strategy)[0]
    node = 3
    given[name][0, node] = np.nan
    got = run(given, strategy=strategy)[0]
    below = [i for i in range(18) if (node == i if name == "q" else node in tree.path(i))]
    outside = [i for i in range(18) if i not in below]
    assert np.array_equal(got[0, outside], clean[0, outside]) and np.isnan(got[0, below]).all()


@pytest.mark.parametrize("strategy", ["fused", "split", "serial"])
def test_padding_skipped_and_malformed_rows(strategy):
    given = problem([Tree.family("random", 9, seed=s) for s in range(4)], (1, 1), (16, 16), slots=4)
    given["slot_index"] = np.int32([2, -1, 0, 1])
    reference = run(given, strategy=strategy)[0]
    given["parents"][2, 4] = 6
    given["count"][3] = 0
    marked = torch.full((4, 9, 1, 16), 7.0, device=DEVICE)
    arguments = on_device(given)
    plan = ct.plan(arguments.pop("parents"), arguments.pop("count"))
    got = ct.verify(**arguments, plan=plan, precision="fp32", strategy=strategy, o=marked)[0].cpu().numpy()
    assert plan.status.tolist() == [0, 0, 1, 0]
    assert (
        np.array_equal(got[0], reference[0]) and (got[1] == 7).all() and np.isnan(got[2]).all() and (got[3] == 7).all()
    )


@pytest.mark.parametrize("layout", ["vk", "kv"])
def test_commit_agrees_with_the_oracle(layout):
    given = problem(TREES["best-first"], (1, 1), (16, 16), layout=layout, slots=4)
    for leaf in ([32, 0], [33, 11]):
        _, stash, plan, arguments = run(given)
        leaf = np.int32(leaf)
        before = arguments["state"].cpu().numpy().copy()
        ct.commit(arguments["k"], plan=plan, leaf=torch.from_numpy(leaf).to(DEVICE), state=arguments["state"], stash=stash,
                  slot_index=arguments["slot_index"], state_layout=layout, precision="fp32")  # fmt: skip
        after = arguments["state"].cpu().numpy()
        wanted = oracle_state(**given, leaf=leaf)
        for row, slot in enumerate(given["slot_index"]):
            state = after[slot] if layout == "kv" else after[slot].swapaxes(-1, -2)
            assert relative(state, wanted[row]) < 1e-6
            if not 0 <= leaf[row] < 33:
                assert np.array_equal(after[slot], before[slot])


def test_a_malformed_row_is_not_committed():
    given = problem([Tree.family("random", 9, seed=s) for s in range(2)], (1, 1), (16, 16))
    given["parents"][1, 4] = 6
    _, stash, plan, arguments = run(given)
    ct.commit(arguments["k"], plan=plan, leaf=torch.tensor([8, 3], dtype=torch.int32, device=DEVICE), state=arguments["state"], stash=stash,
              slot_index=arguments["slot_index"])  # fmt: skip
    after, slots = arguments["state"].cpu().numpy(), given["slot_index"]
    assert np.array_equal(after[slots[1]], given["state"][slots[1]]) and not np.array_equal(
        after[slots[0]], given["state"][slots[0]]
    )


def test_commit_of_layers_into_other_slots():
    layers = [problem([Tree.family("random", 18, seed=2)], (1, 1), (16, 16), seed=s, slots=3) for s in range(2)]
    for layer in layers:
        layer["slot_index"] = np.int32([0])
    runs = [run(layer) for layer in layers]
    plan = runs[0][2]
    state = torch.stack([r[3]["state"] for r in runs])
    stash = type(runs[0][1])(torch.stack([r[1].u for r in runs]), torch.stack([r[1].gates for r in runs]))
    ct.commit(torch.stack([r[3]["k"] for r in runs]), plan=plan, leaf=torch.tensor([17], dtype=torch.int32, device=DEVICE), state=state,
              stash=stash, slot_index=torch.tensor([0], device=DEVICE), dst_slot=torch.tensor([2], device=DEVICE), precision="fp32")  # fmt: skip
    for index, layer in enumerate(layers):
        wanted = oracle_state(**layer, leaf=np.int32([17]))[0].swapaxes(-1, -2)
        assert relative(state[index, 2].cpu().numpy(), wanted) < 1e-6
        assert np.array_equal(state[index, 0].cpu().numpy(), layer["state"][0])


@pytest.mark.parametrize(("change", "piece"), [
    ({"strategy": "hope"}, "strategy = 'hope': expected one of 'fused'"),
    ({"precision": "double"}, "precision = 'double': expected one of 'fp32'"),
    ({"g": None}, "gates: expected g and beta"),
    ({"state_layout": "kk"}, "state_layout = 'kk'"),
])  # fmt: skip
def test_wrong_calls(change, piece):
    arguments = on_device(problem(TREES["one"], (1, 1), (16, 16)))
    plan = ct.plan(arguments.pop("parents"), arguments.pop("count"))
    with pytest.raises(RuntimeError, match=piece):
        ct.verify(**arguments | change, plan=plan)
    with pytest.raises(RuntimeError, match="plan: expected one of 1 trees of 1 nodes"):
        ct.verify(**arguments, plan=ct.plan(torch.zeros((2, 1), dtype=torch.int32, device=DEVICE)))
    with pytest.raises(RuntimeError, match="parents: expected int32"):
        ct.plan(torch.zeros((2, 1), device=DEVICE))


def test_strided_integers_are_refused_or_read_as_they_are():
    """Kernels read integers one behind the other: a view with gaps would give them its neighbours."""
    given = problem([Tree.family("random", 9, seed=s) for s in range(2)], (1, 1), (16, 16))
    arguments = on_device(given)
    parents, count = arguments.pop("parents"), arguments.pop("count")
    gaps = lambda tensor: tensor.repeat_interleave(2)[::2]
    plan = ct.plan(parents, gaps(count))
    assert np.array_equal(ct.verify(**arguments, plan=plan, precision="fp32")[0].cpu().numpy(), run(given)[0])
    _, stash = ct.verify(**arguments, plan=plan)
    commit = {"k": arguments["k"], "plan": plan, "leaf": count - 1, "state": arguments["state"], "stash": stash}
    before = arguments["state"].clone()
    for call, change, piece in (
        (ct.verify, {"slot_index": gaps(arguments["slot_index"])}, "slot_index: expected a last stride of 1, got 2"),
        (
            ct.verify,
            {"slot_index": arguments["slot_index"].float()},
            "slot_index.dtype = torch.float32: expected torch.int32 or torch.int64",
        ),
        (ct.commit, {"leaf": gaps(count)}, "leaf: expected a last stride of 1, got 2"),
        (ct.commit, {"leaf": count[:1]}, r"leaf: expected shape \[2\], got \[1\]"),
        (ct.commit, {"precision": "double"}, "precision = 'double': expected one of 'fp32'"),
        (ct.commit, {"k": arguments["k"].repeat_interleave(2, -1)[..., ::2]}, "k: expected a last stride of 1, got 2"),
    ):
        with pytest.raises(RuntimeError, match=piece):
            call(**(arguments | {"plan": plan} if call is ct.verify else commit) | change)
    with pytest.raises(RuntimeError, match=r"count: expected shape \[B\] = \[2\], got \[1\]"):
        ct.plan(parents, count[:1])
    assert torch.equal(arguments["state"], before)


def test_kernels_compile_for_the_target_that_nobody_has():
    """sm_120, without a GPU: types, layouts, shared memory. The interpreter knows none of them."""
    import os
    import pathlib
    import subprocess
    import sys

    script = pathlib.Path(__file__).with_name("compile_triton.py")
    ran = subprocess.run([sys.executable, str(script), "120"], env=os.environ | {"TRITON_INTERPRET": "0"}, capture_output=True, text=True,
                         check=False)  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr[-2000:]

"""The tree convolution (E9) and its commit against the definition: what a node has behind it, tap by tap. From NumPy and PyTorch."""

import canopy_gdn
import numpy as np
import pytest
from canopy_gdn import Tree
from hypothesis import given
from hypothesis import strategies as st
from problems import TREES, relative, tensors


def problem(trees, *, channels=70, width=4, bias=True, silu=False, seed=0, slots=None, layers=None):
    """Arguments of conv1d_tree, float32; with `layers`, x and state of commit."""
    random = np.random.default_rng(seed)
    normal = lambda *shape: random.standard_normal(shape).astype(np.float32)
    parents, count = canopy_gdn.batch(trees)
    B, T = parents.shape
    slots = slots or B + 1
    lead = () if layers is None else (layers,)
    arguments = {"x": normal(*lead, B, T, channels), "weight": normal(channels, width), "state": normal(*lead, slots, channels, width - 1),
                 "silu": silu, "parents": parents, "count": count,
                 "slot_index": random.permutation(slots)[:B].astype(np.int32)}  # fmt: skip
    return arguments | ({"bias": normal(channels)} if bias else {})


def behind(arguments, row, node, x=None, state=None):
    """All inputs that a node of a row has behind it, its own last: [W - 1 + depth + 1, C]."""
    x = arguments["x"] if x is None else x
    state = arguments["state"] if state is None else state
    path = []
    while True:
        path.append(node)
        if node == 0:
            break
        node = int(arguments["parents"][row, node])
    return np.concatenate([state[arguments["slot_index"][row]].T, x[row, path[::-1]]])


def definition(arguments):
    """E9 to the bit: fp32, a tap one multiply-add with a single rounding. The extended precision in between holds a product of
    two floats exactly, and rounds its sum with the accumulator 2^40 times finer than fp32."""
    x, weight = arguments["x"], arguments["weight"].astype(np.longdouble)
    o = np.zeros(x.shape, np.float32)
    for row in range(x.shape[0]):
        for node in range(int(arguments["count"][row])):
            y = arguments.get("bias", np.zeros(x.shape[2], np.float32))
            for tap, h in enumerate(behind(arguments, row, node)[-weight.shape[1] :]):
                y = (weight[:, tap] * h + y).astype(np.float32)
            o[row, node] = y
    return o


def silu(y):
    return y / (1 + np.exp(-y.astype(np.float64)))


def commit_arguments(arguments, leaf):
    return {n: v for n, v in arguments.items() if n not in ("weight", "bias", "silu")} | {"leaf": np.int32(leaf)}


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "plain"])
@pytest.mark.parametrize("width", [2, 3, 4])
@pytest.mark.parametrize("trees", TREES.values(), ids=TREES)
def test_every_node_is_the_definition(to, trees, width, bias):
    given_ = problem(trees, width=width, bias=bias)
    o, expected = np.asarray(canopy_gdn.conv1d_tree(**to(given_))), definition(given_)
    assert np.array_equal(o, expected), "bit for bit, and zeros past a count"
    activated = canopy_gdn.conv1d_tree(**to(given_ | {"silu": True}))
    assert relative(activated, silu(expected)) < 1e-6


@given(st.integers(1, 24), st.integers(0, 1000), st.integers(2, 4))
def test_a_node_is_its_path_through_pytorchs_convolution(nodes, seed, width):
    torch = pytest.importorskip("torch")
    tree = Tree.family("random", nodes, seed=seed)
    given_ = problem([tree], channels=6, width=width, seed=seed)
    o = canopy_gdn.conv1d_tree(**given_)
    for node in range(nodes):
        fed = torch.from_numpy(behind(given_, 0, node).T.astype(np.float64))
        weight, bias = (torch.from_numpy(given_[n].astype(np.float64)) for n in ("weight", "bias"))
        expected = torch.nn.functional.conv1d(fed[None], weight[:, None], bias, groups=6)[0, :, -1]
        assert np.allclose(o[0, node], expected, rtol=1e-5, atol=1e-5)


def test_siblings_see_the_same_window_and_not_each_other(to):
    tree = Tree([-1, 0, 1, 1, 1, 2])
    given_ = problem([tree])
    given_["x"][0, 3] = given_["x"][0, 2]
    o = np.asarray(canopy_gdn.conv1d_tree(**to(given_)))
    assert np.array_equal(o[0, 2], o[0, 3])
    other = given_ | {"x": given_["x"].copy()}
    other["x"][0, 2] += 1
    changed = np.asarray(canopy_gdn.conv1d_tree(**to(other)))
    assert [np.array_equal(changed[0, i], o[0, i]) for i in range(6)] == [True, True, False, True, True, False]


@pytest.mark.parametrize(
    "name", [i.name for i in canopy_gdn.implementations() if i.kind == "conv1d_tree" and i.device == "cpu"]
)
def test_every_implementation_by_name(to, name):
    given_ = problem(TREES["best-first"])
    assert np.array_equal(np.asarray(canopy_gdn.conv1d_tree(**to(given_), implementation=name)), definition(given_))


def test_links_and_the_plan_of_the_layer(to):
    given_ = problem([Tree([-1, 0, 0, 1, 1, 2])])
    expected = definition(given_)
    links = {n: v for n, v in given_.items() if n != "parents"}
    links["next_token"] = np.int32([[2, 4, 5, -1, -1, -1]])  # siblings in descending order
    links["next_sibling"] = np.int32([[-1, -1, 1, -1, 3, -1]])
    arguments = to(links)
    trees = {n: arguments[n] for n in ("next_token", "next_sibling", "count")}
    plan = canopy_gdn.plan(**trees)
    assert np.array_equal(np.asarray(canopy_gdn.conv1d_tree(**arguments, plan=plan)), expected)
    leaf = [4]
    committed, same = to(commit_arguments(links, leaf)), to(commit_arguments(given_, leaf))
    canopy_gdn.conv1d_commit(**committed, plan=plan)
    canopy_gdn.conv1d_commit(**same)
    assert np.array_equal(np.asarray(committed["state"]), np.asarray(same["state"]))


def test_padding_rows_counts_and_bad_rows(to):
    given_ = problem([Tree.family("random", n, seed=n) for n in (6, 9, 20)], slots=4)
    given_ |= {"slot_index": np.int64([2, 0, 1]), "padding_slot": 0, "count": np.int32([4, 9, 0])}  # vLLM's padding
    expected = definition(given_)
    made = np.asarray(canopy_gdn.conv1d_tree(**to(given_)))
    assert np.array_equal(made[0, :4], expected[0, :4]) and not made[0, 4:].any() and not made[1:].any()
    o = to({"o": np.full_like(made, 7)})["o"]
    status = to({"s": np.int32([9, 9, 9])})["s"]
    assert canopy_gdn.conv1d_tree(**to(given_), o=o, row_status=status) is o
    assert np.array_equal(np.asarray(o)[0, :4], expected[0, :4])
    assert np.all(np.asarray(o)[0, 4:] == 7) and np.all(np.asarray(o)[1:] == 7), "what no row has is left alone"
    assert np.asarray(status).tolist() == [0, 0, 0]
    committed = to(commit_arguments(given_, [-1, 2, 0]))  # skipped, padding, no nodes
    canopy_gdn.conv1d_commit(**committed)
    assert np.array_equal(np.asarray(committed["state"]), given_["state"])

    broken = given_ | {
        "parents": given_["parents"].copy(),
        "slot_index": np.int64([2, 3, 1]),
        "count": np.int32([4, 9, 20]),
    }
    broken["parents"][1, 2] = 4
    status = to({"s": np.zeros(3, np.int32)})["s"]
    got = np.asarray(canopy_gdn.conv1d_tree(**to(broken), row_status=status))
    assert np.asarray(status).tolist() == [0, 1, 0] and np.isnan(got[1, :9]).all()
    assert np.array_equal(got[0, :4], expected[0, :4]) and np.isfinite(got[2]).all()


@pytest.mark.parametrize("width", [2, 3, 4])
def test_commit_keeps_the_last_inputs_of_the_path(to, width):
    """Windows that reach past the root, and that do not; skipped rows and slots of nobody stay as they were."""
    chain = Tree.family("chain", 6)
    given_ = problem([chain] * 7, width=width, slots=9)
    given_["count"][6] = 3
    leaf = [0, 1, 2, 5, -1, 6, 3]
    committed = to(commit_arguments(given_, leaf))
    canopy_gdn.conv1d_commit(**committed)
    after, written = np.asarray(committed["state"]), []
    for row in range(4):
        slot = given_["slot_index"][row]
        written.append(slot)
        assert np.array_equal(after[slot], behind(given_, row, leaf[row])[1 - width :].T), row
    others = np.setdiff1d(np.arange(9), written)
    assert np.array_equal(after[others], given_["state"][others])


def test_commit_of_all_layers_with_destination_and_track_slots(to):
    trees = [Tree.family("random", 12, seed=s) for s in range(3)]
    given_ = problem(trees, layers=3, slots=9)
    given_["slot_index"] = np.int32([0, 1, 2])
    extra = {"dst_slot": np.int32([3, 1, -1]), "track_slot": np.int32([6, 7, 8]), "track_leaf": np.int32([2, -1, 9])}
    committed = to(commit_arguments(given_, [11, 5, 7]) | extra)
    canopy_gdn.conv1d_commit(**committed)
    for layer in range(3):
        expected = given_["state"][layer].copy()
        for slot, row, node in ((3, 0, 11), (1, 1, 5), (6, 0, 2), (8, 2, 9)):
            expected[slot] = behind(given_, row, node, given_["x"][layer], given_["state"][layer])[-3:].T
        assert np.array_equal(np.asarray(committed["state"])[layer], expected)


def test_a_flagged_row_is_not_committed(to):
    given_ = problem(TREES["ragged"])
    good = to(commit_arguments(given_, [0, 1, 11]))
    canopy_gdn.conv1d_commit(**good)
    given_["parents"][1, 2] = 4
    with pytest.raises(RuntimeError, match=r"parents\[b=1\]\[2\] = 4: a parent must precede"):
        canopy_gdn.conv1d_commit(**to(commit_arguments(given_, [0, 1, 11])))
    broken = to(commit_arguments(given_, [0, 1, 11]) | {"row_status": np.int32([9, 9, 9])})
    canopy_gdn.conv1d_commit(**broken)
    assert np.asarray(broken["row_status"]).tolist() == [0, 1, 0]
    one, other = (int(slot) for slot in given_["slot_index"][[0, 2]])
    after, expected = np.asarray(broken["state"]), given_["state"].copy()
    expected[[one, other]] = np.asarray(good["state"])[[one, other]]
    assert np.array_equal(after, expected)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_destinations_without_slots_have_a_type_of_their_own(to, dtype):
    given_ = problem(TREES["best-first"], slots=4)
    del given_["slot_index"]
    plain, moved = (to(commit_arguments(given_, [20, 3]) | more) for more in ({}, {"dst_slot": dtype([3, 2])}))
    canopy_gdn.conv1d_commit(**plain)
    canopy_gdn.conv1d_commit(**moved)
    assert np.array_equal(np.asarray(moved["state"])[[3, 2]], np.asarray(plain["state"])[:2])
    assert np.array_equal(np.asarray(moved["state"])[:2], given_["state"][:2])


def test_rounds_are_one_long_convolution(to):
    """Committed windows carry on: the nodes of the accepted paths are those of one sequence fed token by token."""
    state, fed, given_ = None, None, None
    for seed in range(4):
        given_ = problem([Tree.family("random", 7, seed=seed)], seed=seed, slots=1)
        given_["weight"], given_["bias"] = np.ones((70, 4), np.float32) / 4, np.zeros(70, np.float32)
        given_["state"] = given_["state"] if state is None else state
        fed = behind(given_, 0, 6) if fed is None else np.concatenate([fed, behind(given_, 0, 6)[3:]])
        o = np.asarray(canopy_gdn.conv1d_tree(**to(given_)))
        assert np.allclose(o[0, 6], fed[-4:].mean(0), atol=1e-6)
        committed = to(commit_arguments(given_, [6]))
        canopy_gdn.conv1d_commit(**committed)
        state = np.asarray(committed["state"]).copy()
    assert np.array_equal(state[0], fed[-3:].T)


def test_views_are_read_and_written_in_place(to):
    """x as rows of a wider buffer, a pool whose taps lie apart with a gap between slots, an output inside a larger one."""
    given_ = problem(TREES["best-first"], bias=False)
    B, T, C = given_["x"].shape
    slots = given_["state"].shape[0]
    wide = to({"x": np.full((B, T, C + 9), np.nan, np.float32), "state": np.full((slots, 5, C), np.nan, np.float32),
               "o": np.full((B, T, 2, C), 7, np.float32), "weight": np.full((4, C, 2), np.nan, np.float32)})  # fmt: skip
    arguments = to(given_)
    views = arguments | {"x": wide["x"][:, :, 4 : C + 4], "state": wide["state"][:, 1:4].swapaxes(1, 2),
                         "weight": wide["weight"][:, :, 1].swapaxes(0, 1)}  # fmt: skip
    for name in ("x", "state", "weight"):
        views[name][...] = arguments[name]
    o = wide["o"][:, :, 1]
    canopy_gdn.conv1d_tree(**views, o=o)
    assert np.array_equal(np.asarray(o), definition(given_)) and np.all(np.asarray(wide["o"][:, :, 0]) == 7)
    committed = to(commit_arguments(given_, [20, 3]))
    canopy_gdn.conv1d_commit(**committed)
    leaf = committed.pop("leaf")
    canopy_gdn.conv1d_commit(**committed | {"x": views["x"], "state": views["state"]}, leaf=leaf)
    assert np.array_equal(np.asarray(views["state"]), np.asarray(committed["state"]))
    assert np.isnan(np.asarray(wide["state"])[:, [0, 4]]).all()


def test_a_batch_of_nothing_and_a_channel(to):
    given_ = problem([Tree([-1, 0])], channels=1)
    assert np.array_equal(np.asarray(canopy_gdn.conv1d_tree(**to(given_))), definition(given_))
    gaps = to(given_)
    gaps["x"] = to({"x": np.repeat(given_["x"], 2, -1)})["x"][..., ::2]  # one channel: its stride means nothing
    assert np.array_equal(np.asarray(canopy_gdn.conv1d_tree(**gaps)), definition(given_))
    empty = {n: v[:0] if n in ("x", "parents", "count", "slot_index") else v for n, v in given_.items()}
    assert tuple(canopy_gdn.conv1d_tree(**to(empty)).shape) == (0, 2, 1)


@given(st.integers(0, 2**32), st.integers(2, 24))
def test_a_poisoned_branch_stays_alone(seed, nodes):
    tree = Tree.family("random", nodes, seed=seed)
    clean = problem([tree], seed=seed % 1000, channels=9)
    node = 1 + seed % (nodes - 1)
    within_reach = [i for i in range(nodes) if node in list(tree.path(i))[-4:]]
    outside = [i for i in range(nodes) if i not in within_reach]
    poisoned = clean | {"x": clean["x"].copy()}
    poisoned["x"][0, node] = np.nan
    expected, got = canopy_gdn.conv1d_tree(**clean), canopy_gdn.conv1d_tree(**poisoned)
    assert np.array_equal(got[0, outside], expected[0, outside]) and np.isnan(got[0, within_reach]).all()


@given(st.integers(0, 2**32))
def test_numpy_and_torch_give_the_same_bits(seed):
    pytest.importorskip("torch")
    tree = Tree.family("best-first", 1 + seed % 30, seed=seed)
    given_ = problem([tree], seed=seed % 1000, width=2 + seed % 3, silu=bool(seed & 1))
    mine, theirs = canopy_gdn.conv1d_tree(**given_), canopy_gdn.conv1d_tree(**tensors(given_))
    assert np.array_equal(mine, np.asarray(theirs))
